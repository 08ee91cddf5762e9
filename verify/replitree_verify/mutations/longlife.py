"""Mutations of cleaning, recovery, joining and dropping: holes and bugs that systems of the field have had.

Cleaning has more than one lock on each door: most holes of ClickHouse's `clearOldLogs` show only when the check of the versions
of `is_lost` is taken away too, which ClickHouse does not have.  `docs/known-bugs.md` says which bug each one is.
"""

# ruff: noqa: SLF001 - a mutation reaches into what it breaks

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.epochs import Noted
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.log import LogStart, encode_log
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership import table
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.program import life
from replitree.protocol.program.stages import AwaitIdle, AwaitPull
from replitree.protocol.rescue import recover
from replitree.protocol.state import pull
from replitree.protocol.state.pull import load
from replitree.protocol.state.start import sweep_staging
from replitree.protocol.upkeep import clean_log
from replitree_verify.mutations.changes import Asked
from replitree_verify.mutations.changes import Change as EffectChange
from replitree_verify.mutations.stages import leaving_out
from replitree_verify.mutations.table import Patches

Some = Generator[Any, Any, Any]

# --- cleaning -----------------------------------------------------------------------------------------------------------------


def _removes(commit: fx.Commit) -> bool:
    return any(isinstance(each, fx.Set) and each.path.endswith("/log") for each in commit.operations)


def _is_check(operation: fx.Operation, *ends: str) -> bool:
    return isinstance(operation, fx.Check) and operation.path.endswith(ends)


def _of_lost(operation: fx.Operation, commit: fx.Commit) -> bool:
    return _removes(commit) and _is_check(operation, "/is_lost")


def _of_others(operation: fx.Operation, commit: fx.Commit) -> bool:
    own = commit.operations[0].path
    return _removes(commit) and _is_check(operation, "/is_lost", "/host") and operation.path != own


def _of_replicas(operation: fx.Operation, commit: fx.Commit) -> bool:
    return _removes(commit) and _is_check(operation, "/replicas")


def _of_marked(operation: fx.Operation, commit: fx.Commit) -> bool:
    return not _removes(commit) and _is_check(operation, "/host") and operation is not commit.operations[0]


def _of_added_when_marking(operation: fx.Operation, commit: fx.Commit) -> bool:
    return not _removes(commit) and _is_check(operation, "/replicas")


marking_joined = leaving_out(_of_added_when_marking)
without_lost_checks = leaving_out(_of_lost)
without_other_checks = leaving_out(_of_others)
without_added_check = leaving_out(_of_replicas)
without_mark_checks = leaving_out(_of_marked)


def _pointers_first(replicas: tuple[Replica, ...]) -> Some:
    """Read pointers before `is_lost`, as ClickHouse does."""
    early: fx.Many = yield fx.GetMany(tuple(layout.log_pointer(replica) for replica in replicas))
    found = yield from LOOK(replicas)
    if found is None or None in early.nodes:
        return None
    pointers = {r: layout.pointer_index(n.value) for r, n in zip(replicas, early.nodes, strict=True) if n is not None}
    return tuple(seen if seen.is_lost else replace(seen, pointer=pointers[seen.replica]) for seen in found)


def _read_once(replicas: tuple[clean_log.Seen, ...]) -> Some:
    yield from ()
    return replicas


def _plan_for_good_ones(
    cleaner: Replica, replicas: tuple[clean_log.Seen, ...], first: fx.LogIndex, keep: clean_log.Keep
) -> clean_log.Plan | None:
    """Keep nothing for those that a recovering replica may be cloning."""
    asleep = tuple(replace(seen, is_lost=False) if seen.is_lost and seen.is_active else seen for seen in replicas)
    return PLAN(cleaner, asleep, first, keep)


def _plan_with_itself(
    cleaner: Replica, replicas: tuple[clean_log.Seen, ...], first: fx.LogIndex, keep: clean_log.Keep
) -> clean_log.Plan | None:
    """Mark every replica that is good and not needed, the cleaner too."""
    planned = PLAN(cleaner, replicas, first, keep)
    if planned is None:
        return None
    return clean_log.Plan(tuple(seen for seen in replicas if not seen.is_lost), planned.end)


def _from_the_top(
    cleaner: Replica, start: LogStart, end: fx.LogIndex, proof: tuple[fx.Operation, ...], lost: tuple[str, ...]
) -> Some:
    """Remove one by one, the newest first."""
    version = start.version
    for index in reversed(range(start.first, end)):
        committed = yield fx.Commit(
            *proof,
            fx.Set(layout.log(cleaner.table), encode_log(cleaner.table, end), version),
            fx.Delete(layout.log_entry(cleaner.table, index), fx.ANY_VERSION),
        )
        if not isinstance(committed, fx.Applied):
            return clean_log.LogMoved(lost)
        version = fx.Version(version + 1)
    return clean_log.Cleaned(end, end - start.first, lost)


def _wait_for_half_dropped(replicas: tuple[Replica, ...]) -> Some:
    hosts: fx.Many = yield fx.GetMany(tuple(layout.host(replica) for replica in replicas))
    if any(host is None or host.value == table.DROPPED_HOST for host in hosts.nodes):
        return None
    return (yield from LOOK(replicas))


class BeginsAnew(Noted):
    """Counts past no epoch, as it was before there were notes."""

    @override
    def passing(self) -> tuple[fx.Operation, ...]:
        return ()


LOOK, PLAN = clean_log.look, clean_log.plan

POINTERS_FIRST: Patches = {(clean_log, "look"): _pointers_first}
READ_ONCE: Patches = {(clean_log, "_look_again"): _read_once}
SOURCES_IGNORED: Patches = {(clean_log, "plan"): _plan_for_good_ones}
MARKS_ITSELF: Patches = {(clean_log, "plan"): _plan_with_itself}
FROM_THE_TOP: Patches = {(clean_log, "_remove"): _from_the_top}
EPOCHS_BEGIN_ANEW: Patches = {(table, "Noted"): BeginsAnew}
HALF_DROPPED_BLOCKS: Patches = {(clean_log, "look"): _wait_for_half_dropped}


def marking_last(*_: Any) -> EffectChange:
    """Mark replicas lost after their entries were removed."""
    held: list[fx.Commit] = []

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit) and not _removes(effect):
            held.append(effect)
            return fx.Applied()
        if isinstance(effect, fx.Commit) and held:
            marked = {each.path for each in held[0].operations if isinstance(each, fx.Set)}
            effect = fx.Commit(*(each for each in effect.operations if each.path not in marked))
            outcome = yield effect
            yield held.pop()
            return outcome
        return (yield effect)

    return change


# --- recovery -----------------------------------------------------------------------------------------------------------------


def _of_source(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/is_lost")


def _of_source_pointer(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/log_pointer")


def _of_own_queue(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Delete) and "/queue/" in operation.path


def _of_own_activity(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/is_active")


without_source_check = leaving_out(_of_source)
without_pointer_check = leaving_out(_of_source_pointer)
with_own_queue = leaving_out(_of_own_queue)
without_activity_check = leaving_out(_of_own_activity)


def cleared_first(*_: Any) -> EffectChange:
    """Be good from the moment that the source's pointer was taken."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            effect = fx.Commit(
                *(
                    replace(each, value=NOT_LOST)
                    if isinstance(each, fx.Set) and each.path.endswith("/is_lost")
                    else each
                    for each in effect.operations
                )
            )
        return (yield effect)

    return change


def busy(*_: Any) -> EffectChange:
    """Recover while entries are still being executed."""

    def change(effect: Any) -> Asked:
        return None if isinstance(effect, AwaitIdle) else (yield effect)

    return change


def _any_source(replica: Replica) -> Some:
    """Choose the last replica in the list, lost or not."""
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(replica.table))) or ()
    seen = (yield from clean_log.look(tuple(Replica(replica.table, n) for n in names if n != replica.name))) or ()
    best = max(seen, key=lambda one: one.replica.name, default=None)
    added = yield fx.Get(layout.replicas(replica.table))
    return None if best is None else recover.Source(best.replica, best.lost, added.version)


def _parts_before_queue(recovery: Any) -> Some:
    """Read the source's parts before its queue."""
    source = recovery.source.replica
    parts = yield fx.Children(layout.parts(source))
    nodes: fx.Many = (yield fx.GetMany(tuple(layout.part(source, name) for name in parts))) if parts else fx.Many(())
    later = yield from READ_SOURCE(recovery)
    if later is None or None in nodes.nodes:
        return None
    registered = {parse_part(n): node.value for n, node in zip(parts, nodes.nodes, strict=True) if node}
    return recover._SourceState(registered, later.queue)


def _keep_everything(recovery: Any, state: Any) -> Some:
    del recovery, state
    yield from ()
    return ()


def _let_all_go(recovery: Any, state: Any) -> Some:
    """Release what is yet to come, too."""
    return (yield from RELEASE(replace(recovery, pointer=fx.LogIndex(1_000_000)), state))


def _go_on_in_doubt(committed: Any, replica: Replica) -> Any:
    return REFUSED(committed, replica) if isinstance(committed, fx.Refused) else recover.NotYet("no answer")


READ_SOURCE, RELEASE, REFUSED = recover._read_source, recover._release, recover._refused

ANY_SOURCE: Patches = {(recover, "choose_source"): _any_source}
PARTS_BEFORE_QUEUE: Patches = {(recover, "_read_source"): _parts_before_queue}
KEEP_EVERYTHING: Patches = {(recover, "_release"): _keep_everything}
LET_ALL_GO: Patches = {(recover, "_release"): _let_all_go}
GO_ON_IN_DOUBT: Patches = {(recover, "_refused"): _go_on_in_doubt}


def sweeping_before(replica: Replica, me: bytes, epoch: Any, idle: Any) -> Some:
    """Sweep staging before the source's queue was taken over."""
    yield AwaitIdle()
    loaded = yield from load(replica)
    yield from sweep_staging(idle, loaded)
    return (yield from life.recover_state(replica, me, epoch, idle))


def _from_zero(log: fx.Node | None) -> fx.Node | None:
    return None if log is None else replace(log, value=encode_log(layout.TablePlace("/t")))


def standing_anywhere(*_: Any) -> EffectChange:
    """Do not look where the log begins."""

    def change(effect: Any) -> Asked:
        answer = yield AwaitPull(removed=False) if isinstance(effect, AwaitPull) else effect
        if isinstance(effect, fx.Get) and effect.path.endswith("/log"):
            return _from_zero(answer)
        if isinstance(effect, fx.GetMany) and effect.paths[-1].endswith("/log"):
            return replace(answer, nodes=(*answer.nodes[:-1], _from_zero(answer.nodes[-1])))
        return answer

    return change


TAIL_BELIEVED: Patches = {(pull, "begins_after"): lambda *_: False}

# --- joining, leaving ---------------------------------------------------------------------------------------------------------


def _join_good(replica: Replica, start: LogStart, noted: Noted) -> tuple[fx.Operation, ...]:
    """Join a cleaned log as a good replica."""
    lost = layout.is_lost(replica)
    return tuple(fx.Create(lost, NOT_LOST) if each.path == lost else each for each in JOIN(replica, start, noted))


def _leave_any_version(replica: Replica, host: Any, lost: Any) -> tuple[fx.Operation, ...]:
    return LEAVE(replica, replace(host, version=fx.ANY_VERSION), replace(lost, version=fx.ANY_VERSION))


def _of_drop_mark(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/dropped") or (
        isinstance(operation, fx.Create | fx.Delete) and operation.path.endswith("/dropped")
    )


def _of_good_one(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/is_lost", "/replicas")


def _of_added_ones(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return _is_check(operation, "/replicas")


JOIN, LEAVE = table._join, table._mark_dropped

JOIN_GOOD: Patches = {(table, "_join"): _join_good}
LEAVE_ANY_VERSION: Patches = {(table, "_mark_dropped"): _leave_any_version}
without_drop_mark = leaving_out(_of_drop_mark)
without_good_one = leaving_out(_of_good_one)
unseen_added = leaving_out(_of_added_ones)
