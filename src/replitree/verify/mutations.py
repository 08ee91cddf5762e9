"""Mutations: small transformations around real stages, each of which breaks one rule.

A mutation changes the effects that a stage asks for, leaves one out, puts it off, adds one, or makes an outcome up.
`mutants` gives them names and says who notices.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeAlias

from replitree.protocol import layout
from replitree.protocol.activate import Activated, activate, renew_epoch
from replitree.protocol.effects import (
    ANY_VERSION,
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
    Operation,
    Publish,
    Published,
    Reason,
    Refused,
    RequestId,
    Reveal,
    Set,
    Stage,
    StagingId,
    Unknown,
)
from replitree.protocol.layout import Replica
from replitree.protocol.part_set import PartSet
from replitree.protocol.pull import load
from replitree.protocol.run import translate
from replitree.protocol.start import list_idle_staging, sweep_staging
from replitree.verify import life
from replitree.verify.kernel import Stage as StageFunction
from replitree.verify.life import BeginLoad, Quieten, TakeOver, Then

Asked: TypeAlias = Generator[Any, Any, Any]
"""What is asked instead of one effect; returns the outcome that the procedure hears."""

Change: TypeAlias = Callable[[Any], Asked]


def changed(stage: StageFunction, new_change: Callable[..., Change]) -> StageFunction:
    """Return a stage whose every effect goes through a change.

    Parameters
    ----------
    stage
        A stage of `life`.
    new_change
        Makes the change for one run of the stage, from the stage's arguments.
    """

    def run(*arguments: Any) -> Generator[Any, Any, Any]:
        return (yield from translate(stage(*arguments), new_change(*arguments)))

    return run


def stages_with(new_change: Callable[..., Change], *names: str) -> dict[str, StageFunction]:
    """Return the stages of `life` with these names, changed."""
    return {name: changed(getattr(life, name), new_change) for name in names}


def _appends(effect: Any) -> bool:
    """Whether an effect is the commit of an insert."""
    return isinstance(effect, Commit) and any(
        isinstance(each, Create) and each.sequential for each in effect.operations
    )


# --- epochs -----------------------------------------------------------------------------------------------------------------


def without_check(*_: Any) -> Change:
    """Commit without checking the epoch."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            kept = tuple(each for each in effect.operations if not isinstance(each, Check))
            effect = Commit(*kept) if kept else effect
        return (yield effect)

    return change


def without_bump(*_: Any) -> Change:
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


def taking_back(replica: Replica, me: bytes) -> Change:
    """Believe that `host` still names this process."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, GetMany) and effect.paths[0] == layout.host(replica):
            host, active = outcome.nodes
            return Many((replace(host, value=me), active))
        return outcome

    return change


def any_version(*_: Any) -> Change:
    """Take the replica whatever the version of `host` is."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            effect = Commit(
                *(replace(each, version=ANY_VERSION) if isinstance(each, Set) else each for each in effect.operations)
            )
        return (yield effect)

    return change


def listing_last(replica: Replica, me: bytes) -> life.Stage:
    """List the idle staging folders after the activation instead of before."""
    yield Quieten()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    if not isinstance(outcome, Activated):
        return Then(life.become_active, (replica, me))
    idle = yield from list_idle_staging()
    return Then(life.take_stand, (replica, me, outcome.epoch, idle))


def content_with_known(replica: Replica, me: bytes) -> life.Stage:
    """Be content, in a new session, with an epoch that another thread took (a bug that the explorer found)."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: Epoch | None = yield CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, known))
    if not isinstance(outcome, Activated):
        return Then(life.become_active, (replica, me))
    return Then(life.take_stand, (replica, me, outcome.epoch, idle))


# --- insert -----------------------------------------------------------------------------------------------------------------


def answering_early(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    """Answer when the rows are staged."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, Stage):
            for request in requests:
                yield Answer(request.id, Inserted(LogIndex(0)))
        return outcome

    return change


def retrying_blindly(*_: Any) -> Change:
    """Send a commit again as long as no answer comes."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        while _appends(effect) and isinstance(outcome, Unknown):
            outcome = yield effect
        return outcome

    return change


def failing_in_doubt(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    """Answer "failed" when the outcome is unknown."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if _appends(effect) and isinstance(outcome, Unknown):
            for request in requests:
                yield Answer(request.id, Failed("coordination did not answer"))
        return outcome

    return change


def deduplicating_first(*_: Any) -> Change:
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


def staging_all_again(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    """Stage the whole group again, duplicates' rows included."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Stage):
            effect = Stage(effect.staging, tuple(RequestId(request.id) for request in requests))
        return (yield effect)

    return change


# --- pull and execute ---------------------------------------------------------------------------------------------------------


def pointer_first(*_: Any) -> Change:
    """Move the pointer in one commit and fill the queue in the next."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit) and any(isinstance(each, Set) for each in effect.operations):
            check, pointer, *entries = effect.operations
            outcome = yield Commit(check, pointer)
            return (yield Commit(check, *entries)) if isinstance(outcome, Applied) and entries else outcome
        return (yield effect)

    return change


def believing_gaps(*_: Any) -> Change:
    """Believe a gap in one batch of reads."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Get) and "/log/" in effect.path:
            return None
        return (yield effect)

    return change


def registering_first(*_: Any) -> Change:
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
            yield from later
            later.clear()
        return outcome

    return change


def revealing_first(replica: Replica) -> Change:
    """Show parts before they are registered."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Commit):
            prefix = f"{layout.parts(replica)}/"
            paths = [each.path for each in effect.operations if isinstance(each, Create)]
            yield Reveal(tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix)))
        return (yield effect)

    return change


def never_noticing(*_: Any) -> Change:
    """Forget to show what was executed by a commit whose answer was lost."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, TakeOver):
            effect = TakeOver(replace(effect.loaded, held=PartSet()))
        return (yield effect)

    return change


def older_reload_wins(*_: Any) -> Change:
    """Take over what was loaded even when something newer is known (a bug that the explorer found)."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, TakeOver):
            yield BeginLoad()
        return (yield effect)

    return change


# --- start --------------------------------------------------------------------------------------------------------------------


def sweeping_early(replica: Replica, me: bytes, epoch: Epoch, idle: tuple[StagingId, ...]) -> life.Stage:
    """Sweep before catching up with the log."""
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    then: Then | None = yield from life.catch_up_with_log(replica, me, epoch, ())
    return then


def sweeping_everything(*_: Any) -> Change:
    """Sweep without looking at the queue."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, Children) and effect.path.endswith("/queue"):
            return ()
        return (yield effect)

    return change
