"""Mutations: small transformations around real stages, each of which breaks one rule.

A mutation changes the effects that a stage asks for, leaves one out, puts it off, adds one, or makes an outcome up.
`replitree_verify.mutants` names them, and the invariant that must notice each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.run import translate
from replitree.protocol.insert.quorum import rejoin
from replitree.protocol.membership.activate import Activated, activate, renew_epoch
from replitree.protocol.program import (
    candidate,
    cleaner,
    commands,
    executor,
    inserter,
    keeper,
    leader,
    life,
    mender,
    puller,
    quorum_waiter,
)
from replitree.protocol.program.stages import AskReload, BeginLoad, End, Lack, Quieten, Serve, TakeOver, Then
from replitree.protocol.program.stages import Stage as Running
from replitree.protocol.state.pull import load
from replitree.protocol.state.start import compare_parts, forget_covered, list_idle_staging, sweep_staging
from replitree_verify.process import longlife, losing, quorums, restoring, threads, upkeep
from replitree_verify.world.kernel import Stage as StageFunction

Asked: TypeAlias = Generator[Any, Any, Any]
"""What is asked instead of one effect; returns the outcome that the procedure hears."""

Change: TypeAlias = Callable[[Any], Asked]

_ROOMS = (
    life,
    puller,
    executor,
    keeper,
    candidate,
    mender,
    quorum_waiter,
    leader,
    cleaner,
    commands,
    inserter,
    threads,
    longlife,
    upkeep,
    losing,
    quorums,
    restoring,
)


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


def find_stage(name: str) -> StageFunction:
    """Return a stage of a thread, or of a duty, by its name."""
    found: StageFunction = next(getattr(room, name) for room in _ROOMS if hasattr(room, name))
    return found


def stages_with(new_change: Callable[..., Change], *names: str) -> dict[str, StageFunction]:
    """Return the stages of `life` with these names, changed."""
    return {name: changed(find_stage(name), new_change) for name in names}


def _appends(effect: Any) -> bool:
    """Whether an effect is the commit of an insert."""
    return isinstance(effect, fx.Commit) and any(
        isinstance(each, fx.Create) and each.sequential for each in effect.operations
    )


# --- epochs -----------------------------------------------------------------------------------------------------------------


def without_check(*_: Any) -> Change:
    """Commit without checking the epoch."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            kept = tuple(each for each in effect.operations if not isinstance(each, fx.Check))
            effect = fx.Commit(*kept) if kept else effect
        return (yield effect)

    return change


def without_bump(*_: Any) -> Change:
    """After an unknown commit pretend that a new epoch was had, and go on under the old one."""
    pretended = 0

    def change(effect: Any) -> Asked:
        nonlocal pretended
        if isinstance(effect, fx.CurrentEpoch) and pretended:
            return fx.Epoch(pretended * 1000)
        if isinstance(effect, fx.Commit):
            asked = fx.Commit(*(_real(each) for each in effect.operations))
            outcome = yield asked
            pretended += isinstance(outcome, fx.Unknown)
            return outcome
        return (yield effect)

    def _real(operation: fx.Operation) -> fx.Operation:
        if isinstance(operation, fx.Check) and operation.version >= 1000:
            return fx.Check(operation.path, 1)
        return operation

    return change


def taking_back(replica: Replica, me: bytes) -> Change:
    """Believe that `host` still names this process."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, fx.GetMany) and effect.paths[0] == layout.host(replica):
            host, active = outcome.nodes
            return fx.Many((replace(host, value=me), active))
        return outcome

    return change


def any_version(*_: Any) -> Change:
    """Take the replica whatever the version of `host` is."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            effect = fx.Commit(
                *(
                    replace(each, version=fx.ANY_VERSION) if isinstance(each, fx.Set) else each
                    for each in effect.operations
                )
            )
        return (yield effect)

    return change


def listing_last(replica: Replica, me: bytes) -> Running:
    """List the idle staging folders after the activation instead of before."""
    yield Quieten()
    known: fx.Epoch | None = yield fx.CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, None))
    if not isinstance(outcome, Activated):
        return Then(life.become_active, (replica, me))
    idle = yield from list_idle_staging()
    return Then(life.take_stand, (replica, me, outcome.epoch, idle))


def content_with_known(replica: Replica, me: bytes) -> Running:
    """Be content, in a new session, with an epoch that another thread took (a bug that the explorer found)."""
    yield Quieten()
    idle = yield from list_idle_staging()
    known: fx.Epoch | None = yield fx.CurrentEpoch()
    outcome = yield from (activate(replica, me) if known is None else renew_epoch(replica, me, known))
    if not isinstance(outcome, Activated):
        return Then(life.become_active, (replica, me))
    return Then(life.take_stand, (replica, me, outcome.epoch, idle))


# --- insert -----------------------------------------------------------------------------------------------------------------


def retrying_blindly(*_: Any) -> Change:
    """Send a commit again as long as no answer comes."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        while _appends(effect) and isinstance(outcome, fx.Unknown):
            outcome = yield effect
        return outcome

    return change


def failing_in_doubt(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    """Answer "failed" when the outcome is unknown."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if _appends(effect) and isinstance(outcome, fx.Unknown):
            for request in requests:
                yield fx.Answer(request.id, fx.NotInserted("coordination did not answer"))
        return outcome

    return change


def deduplicating_first(*_: Any) -> Change:
    """Look whether the block ids exist, then commit without creating them, then create them."""

    def change(effect: Any) -> Asked:
        if not _appends(effect):
            return (yield effect)
        blocks = [each for each in effect.operations if isinstance(each, fx.Create) and not each.sequential]
        found = yield fx.GetMany(tuple(each.path for each in blocks))
        for each, node in zip(blocks, found.nodes, strict=True):
            if node is not None:
                return fx.Refused(each, fx.Reason.NODE_EXISTS)
        outcome = yield fx.Commit(*(each for each in effect.operations if each not in blocks))
        if isinstance(outcome, fx.Applied):
            yield fx.Commit(*blocks)
        return outcome

    return change


def staging_all_again(_inserter: Any, _epoch: Any, _staging: Any, requests: tuple[Any, ...]) -> Change:
    """Stage the whole group again, duplicates' rows included."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Stage):
            effect = fx.Stage(effect.staging, tuple(fx.RequestId(request.id) for request in requests))
        return (yield effect)

    return change


# --- pull and execute ---------------------------------------------------------------------------------------------------------


def pointer_first(*_: Any) -> Change:
    """Move the pointer in one commit and fill the queue in the next."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit) and any(isinstance(each, fx.Set) for each in effect.operations):
            check, pointer, *entries = effect.operations
            outcome = yield fx.Commit(check, pointer)
            return (yield fx.Commit(check, *entries)) if isinstance(outcome, fx.Applied) and entries else outcome
        return (yield effect)

    return change


def believing_gaps(*_: Any) -> Change:
    """Believe a gap in one batch of reads."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Get) and "/log/" in effect.path:
            return None
        return (yield effect)

    return change


def registering_first(*_: Any) -> Change:
    """Put files off until the parts are registered."""
    later: list[Any] = []

    def change(effect: Any) -> Asked:
        match effect:
            case fx.Publish():
                later.append(effect)
                return fx.Published()
            case fx.FetchMany(fetches):
                later.append(effect)
                return tuple(fx.Fetched(fetch.part) for fetch in fetches)
        outcome = yield effect
        if isinstance(effect, fx.Commit):
            yield from later
            later.clear()
        return outcome

    return change


def revealing_first(replica: Replica) -> Change:
    """Show parts before they are registered."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            prefix = f"{layout.parts(replica)}/"
            paths = [each.path for each in effect.operations if isinstance(each, fx.Create)]
            yield fx.Reveal(tuple(path.removeprefix(prefix) for path in paths if path.startswith(prefix)))
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


def sweeping_early(replica: Replica, me: bytes, epoch: fx.Epoch, idle: tuple[fx.StagingId, ...]) -> Running:
    """Sweep before catching up with the log."""
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    then: Then | End | None = yield from life.catch_up_with_log(replica, me, epoch, ())
    return then


def forgetting_first(replica: Replica, me: bytes, epoch: fx.Epoch, idle: tuple[fx.StagingId, ...]) -> Running:
    """Take back what is covered before the loaded state is taken over and compared with the disk.

    This is no mutant: the two orders show and register the same.  Taking over and comparing read the parts that are held and
    the queue; a covered registration is neither.  Taking back reads and deletes covered registrations only.  A crash in
    between leaves some of them, which the next activation takes back.  The models of the day were explored with it.
    """
    yield BeginLoad()
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    if not (yield from forget_covered(replica, epoch, loaded)):
        return Then(life.become_active, (replica, me))
    if (yield TakeOver(loaded)) is None:
        yield AskReload()
    compared = yield from compare_parts(replica, loaded)
    if compared.missing:
        yield Lack(compared.missing)
    yield from rejoin(replica, loaded, tuple(name for name, _ in compared.missing))
    yield Serve()
    return Then(life.wait_for_trouble, (replica, me))


def sweeping_everything(*_: Any) -> Change:
    """Sweep without looking at the queue."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Children) and effect.path.endswith("/queue"):
            return ()
        return (yield effect)

    return change
