"""Mutants: the production procedures with one rule broken, each with the invariant that must notice.

A checker that finds nothing wrong may have looked at nothing.  A mutant is a small transformation around a real stage: effects are
changed, left out, put off or added, outcomes are made up.  Each names the model that catches it; three of them (`MUTANTS` says which)
are bugs that the explorer found in this code base, kept as the mistakes they were.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

from replitree.protocol import layout
from replitree.protocol.activate import Activated, activate, renew_epoch
from replitree.protocol.effects import (
    ANY_VERSION,
    AdoptEpoch,
    Answer,
    Applied,
    Check,
    Children,
    Commit,
    Create,
    CurrentEpoch,
    Epoch,
    Failed,
    Fetched,
    FetchMany,
    Get,
    GetMany,
    Inserted,
    LogIndex,
    Many,
    Node,
    Operation,
    OutcomeUnknown,
    Procedure,
    Publish,
    Published,
    Reason,
    Refused,
    RemoveStaging,
    RequestId,
    Reveal,
    Set,
    Stage,
    StagingId,
    Unknown,
)
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Pointer
from replitree.protocol.start import list_idle_staging, sweep_staging
from replitree.verify import life
from replitree.verify.kernel import Stage as StageFunction
from replitree.verify.life import Quieten, Stop, TakeOver, Then

Asked: TypeAlias = Generator[Any, Any, Any]
"""What is asked instead of one effect; returns the outcome that the procedure hears."""

Change: TypeAlias = Callable[[Any], Asked]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule.

    Attributes
    ----------
    name, description
        For people.
    model
        Name of the model that catches it.
    breaks
        The invariant that notices: what the violation begins with.
    stages
        The broken stages, by the name of the stage that each replaces.
    """

    name: str
    description: str
    model: str
    breaks: str
    stages: Mapping[str, StageFunction]


def changed(stage: StageFunction, new_change: Callable[..., Change]) -> StageFunction:
    """Return a stage whose every effect goes through a change.

    Parameters
    ----------
    stage
        A stage of `life`.
    new_change
        Makes the change for one run of the stage, from the stage's arguments.
    """

    @wraps(stage)
    def run(*arguments: Any) -> Procedure[Any]:
        procedure, change = stage(*arguments), new_change(*arguments)
        outcome: Any = None
        while True:
            try:
                effect = procedure.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = yield from change(effect)

    return run


def _stages(new_change: Callable[..., Change], *names: str) -> dict[str, StageFunction]:
    return {name: changed(getattr(life, name), new_change) for name in names}


def _appends(effect: Any) -> bool:
    """Whether an effect is the commit of an insert."""
    return isinstance(effect, Commit) and any(isinstance(each, Create) and each.sequential for each in effect.operations)


# --- epochs -----------------------------------------------------------------------------------------------------------------


def _without_check(*_: Any) -> Change:
    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            kept = tuple(each for each in effect.operations if not isinstance(each, Check))
            effect = Commit(*kept) if kept else effect
        return (yield effect)

    return change


def _without_bump(*_: Any) -> Change:
    """After an unknown commit pretend that a new epoch was had, and go on under the old one."""
    pretended = 0

    def change(effect: Any) -> Asked:
        nonlocal pretended
        if isinstance(effect, CurrentEpoch) and pretended:
            return Epoch(pretended * 1000)
        if isinstance(effect, Commit):
            asked = Commit(*(_real(each) for each in effect.operations))
            outcome = yield asked
            pretended += isinstance(outcome, Unknown)
            return outcome
        return (yield effect)

    def _real(operation: Operation) -> Operation:
        if isinstance(operation, Check) and operation.version >= 1000:
            return Check(operation.path, 1)
        return operation

    return change


def _taking_back(replica: Replica, me: bytes) -> Change:
    """Believe that `host` still names this process."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, GetMany) and effect.paths[0] == layout.host(replica):
            host, active = outcome.nodes
            return Many((replace(host, value=me), active))
        return outcome

    return change


def _any_version(*_: Any) -> Change:
    """Take the replica whatever the version of `host` is."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            effect = Commit(*(replace(each, version=ANY_VERSION) if isinstance(each, Set) else each for each in effect.operations))
        return (yield effect)

    return change


def _listing_last(replica: Replica, me: bytes) -> Procedure[Then | None]:
    """List the idle staging folders after the activation instead of before."""
    yield Quieten()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    if not isinstance(outcome, Activated):
        yield Stop()
        return None
    idle = yield from list_idle_staging()
    return Then(life.catch_up_with_log, (replica, me, outcome.epoch, idle))


def _content_with_known(replica: Replica, me: bytes) -> Procedure[Then | None]:
    """Be content, in a new session, with an epoch that another thread took (a bug that the explorer found)."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, known))
    if not isinstance(outcome, Activated):
        yield Stop()
        return None
    return Then(life.catch_up_with_log, (replica, me, outcome.epoch, idle))


# --- insert -----------------------------------------------------------------------------------------------------------------


def _answering_early(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, Stage):
            for request in requests:
                yield Answer(request.id, Inserted(LogIndex(0)))
        return outcome

    return change


def _retrying_blindly(*_: Any) -> Change:
    def change(effect: Any) -> Asked:
        outcome = yield effect
        while _appends(effect) and isinstance(outcome, Unknown):
            outcome = yield effect
        return outcome

    return change


def _failing_in_doubt(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    def change(effect: Any) -> Asked:
        outcome = yield effect
        if _appends(effect) and isinstance(outcome, Unknown):
            for request in requests:
                yield Answer(request.id, Failed("coordination did not answer"))
        return outcome

    return change


def _deduplicating_first(*_: Any) -> Change:
    """Look whether the block ids exist, then commit without creating them, then create them."""

    def change(effect: Any) -> Asked:
        if not _appends(effect):
            return (yield effect)
        blocks = [each for each in effect.operations if isinstance(each, Create) and not each.sequential]
        found = yield GetMany(tuple(each.path for each in blocks))
        for each, node in zip(blocks, found.nodes, strict=True):
            if node is not None:
                return Refused(each, Reason.NODE_EXISTS)
        outcome = yield Commit(*(each for each in effect.operations if each not in blocks))
        if isinstance(outcome, Applied):
            yield Commit(*blocks)
        return outcome

    return change


def _staging_all_again(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    def change(effect: Any) -> Asked:
        if isinstance(effect, Stage):
            effect = Stage(effect.staging, tuple(RequestId(request.id) for request in requests))
        return (yield effect)

    return change


# --- pull and execute ---------------------------------------------------------------------------------------------------------


def _pointer_first(*_: Any) -> Change:
    """Move the pointer in one commit and fill the queue in the next."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit) and any(isinstance(each, Set) for each in effect.operations):
            check, pointer, *entries = effect.operations
            outcome = yield Commit(check, pointer)
            return (yield Commit(check, *entries)) if isinstance(outcome, Applied) and entries else outcome
        return (yield effect)

    return change


def _believing_gaps(*_: Any) -> Change:
    def change(effect: Any) -> Asked:
        if isinstance(effect, Get) and "/log/" in effect.path:
            return None
        return (yield effect)

    return change


def _registering_first(*_: Any) -> Change:
    """Put files off until the parts are registered."""
    later: list[Any] = []

    def change(effect: Any) -> Asked:
        match effect:
            case Publish():
                later.append(effect)
                return Published()
            case FetchMany(fetches):
                later.append(effect)
                return tuple(Fetched(fetch.part) for fetch in fetches)
        outcome = yield effect
        if isinstance(effect, Commit):
            for each in later:
                yield each
            later.clear()
        return outcome

    return change


def _revealing_first(replica: Replica) -> Change:
    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            prefix = f"{layout.parts(replica)}/"
            paths = [each.path for each in effect.operations if isinstance(each, Create)]
            yield Reveal(tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix)))
        return (yield effect)

    return change


def _never_noticing(*_: Any) -> Change:
    """Forget to show what was executed by a commit whose answer was lost."""

    def change(effect: Any) -> Asked:
        return None if isinstance(effect, Reveal) else (yield effect)

    return change


def _older_reload_wins(*_: Any) -> Change:
    """Take over a reading of pointer and queue even when it is older than what is known (a bug that the explorer found)."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, TakeOver):
            effect = TakeOver(Pointer(effect.pointer.index, effect.pointer.version + 1000), effect.queue)  # type: ignore[arg-type]
        return (yield effect)

    return change


# --- start --------------------------------------------------------------------------------------------------------------------


def _sweeping_early(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> Procedure[Then | None]:
    """Sweep before catching up with the log."""
    yield from sweep_staging(replica, idle)
    then: Then | None = yield from life.catch_up_with_log(replica, me, epoch, ())
    return then


def _judging_all(replica: Replica, *_: Any) -> Change:
    """Judge parts above the log pointer too (a bug that the explorer found)."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, Get) and effect.path == layout.log_pointer(replica):
            return Node(b"1000000", outcome.version)
        return outcome

    return change


def _sweeping_everything(*_: Any) -> Change:
    """Sweep without looking at the queue."""
    swept = False

    def change(effect: Any) -> Asked:
        nonlocal swept
        if isinstance(effect, Children) and not swept:
            swept = True
            return ()
        swept = swept or not isinstance(effect, RemoveStaging)
        return (yield effect)

    return change


_ALL_COMMITS = ("insert_group", "pull_next", "execute_next", "catch_up_with_log")

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("no-epoch-check", "commits do not check the epoch", "replaced_insert", "I9", _stages(_without_check, *_ALL_COMMITS)),
        Mutant("pointer-and-queue-not-atomic", "the pointer moves in a commit of its own", "pull_and_execute", "I1", _stages(_pointer_first, "pull_next", "catch_up_with_log")),
        Mutant("acknowledge-before-commit", "clients hear of an insert when it is staged", "insert_one_token", "I2", _stages(_answering_early, "insert_group")),
        Mutant("blind-retry-after-unknown", "a commit without an answer is sent again", "insert_one_token", "I2", _stages(_retrying_blindly, "insert_group")),
        Mutant("look-without-new-epoch", "after an unknown outcome look without fencing the lost request", "insert_one_token", "I2", _stages(_without_bump, "insert_group")),
        Mutant("node-before-file", "parts are registered before their files are there", "pull_and_execute", "FILES", _stages(_registering_first, "execute_next")),
        Mutant("staging-swept-too-early", "staging is swept before the log's tail was pulled", "restart_anywhere", "I2", {"catch_up_with_log": wraps(life.catch_up_with_log)(_sweeping_early)}),
        Mutant("deduplication-in-two-steps", "block ids are looked for first and created later", "insert_one_token", "I3", _stages(_deduplicating_first, "insert_group")),
        Mutant("reveal-before-register", "reads show parts before they are registered", "pull_and_execute", "SIGHT", _stages(_revealing_first, "execute_next")),
        Mutant("failed-when-unknown", "clients hear \"failed\" when the outcome is unknown", "insert_one_token", "FAILED", _stages(_failing_in_doubt, "insert_group")),
        Mutant("gap-believed-at-once", "a gap in one batch of reads is believed", "pull_gap", "GAP", _stages(_believing_gaps, "pull_next")),
        Mutant("group-staged-whole-again", "a refused group is staged again with the duplicates' rows", "insert_groups", "I3", _stages(_staging_all_again, "insert_group")),
        Mutant("replaced-takes-back", "a process renews its epoch although `host` names another", "replaced_insert", "I9", _stages(_taking_back, "become_active")),
        Mutant("activation-at-any-version", "the take-over does not depend on the version of `host`", "replaced_insert", "I9", _stages(_any_version, "become_active", "insert_group")),
        Mutant("staging-listed-after-activation", "staging folders are listed after the activation", "insert_session", "I2", {"become_active": wraps(life.become_active)(_listing_last)}),
        Mutant("sweep-without-looking", "the sweep does not look at the queue", "restart_anywhere", "I2", _stages(_sweeping_everything, "tidy_up")),
        Mutant("unpulled-parts-set-aside", "parts that were not pulled yet count as garbage", "session_ends", "I2", _stages(_judging_all, "tidy_up")),
        Mutant("new-session-with-old-epoch", "a new session is content with an epoch of the old one", "insert_session", "CONVERGES", {"become_active": wraps(life.become_active)(_content_with_known)}),
        Mutant("older-reload-wins", "an older reading of the queue replaces a newer one", "session_ends", "SIGHT", _stages(_older_reload_wins, "reload_queue")),
        Mutant("executed-unnoticed", "what a lost answer executed is never shown", "pull_and_execute", "CONVERGES", _stages(_never_noticing, "reload_queue", "tidy_up")),
    )
}  # fmt: skip
"""Every mutant by its name.  Found in this code base: `unpulled-parts-set-aside`, `new-session-with-old-epoch`, `older-reload-wins`."""
