"""Recover: a lost replica, or a new one, takes over the state of a good one.

A replica is lost when entries that it had not pulled were removed from the log; a new one is lost from the start.  It becomes
active first, then:

1. *choose*  the good replica that lags least: the *source*
2. *begin*   take the source's pointer and mark this replica half-built, in one commit that proves that the source's pointer is
             unchanged and the source good; from here on the log is kept from that pointer on
3. *bring*   fetch the parts that the source has registered, from any replica that has them, and register them
4. *release* the parts that the source does not have: set them aside, and delete their registrations
5. *queue*   take over the entries below the pointer that the source has not executed
6. *end*     clear `is_lost`, in one commit that proves that the source was good all the time, and that this replica was
             active: for one that is lost and inactive the log keeps nothing

The pointer is taken first, the queue is read second and the parts third: an entry that the source executes meanwhile moves
from its queue to its parts and is seen in one of them.  The copy may be ahead of the pointer, because applying an entry again
changes nothing (`protocol.core.fold`); so the state of the source may be read again as often as the fetching takes.

Until step 6 the replica is both lost and active: no replica copies from it (I6), and the log is kept for it.  After a crash it
begins again with step 1.  Parts that are on disk with the right content are not fetched again, so a repetition is cheap.

A part that is set aside is never deleted: it may hold rows that only this replica had.  A part that is broken at the source and
whole here stays: it may be the only copy; what a part was made of that is broken at both is set aside.

(Spec 9.3 and 9.4; of ClickHouse's defects there: a queue that was not emptied #24777, parts that were dropped meanwhile and
came back #6522, parts kept because a bigger part reaches over them #42134.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.fold import maximal, restore
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import read_start
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.insert.quorum import find_end
from replitree.protocol.membership.table import HALF_BUILT, LOST, NOT_LOST, good_replica
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.registration import broken_value, content_of, is_broken, register
from replitree.protocol.upkeep.clean_log import look

BATCH = 64
"""Parts fetched at once, and nodes written in one commit."""

ROUNDS_MAX = 8
"""How often the source's state is read again because parts have left it before they could be fetched."""


@dataclass(frozen=True, slots=True)
class Good:
    """The replica need not recover: it is not lost, and the log has what it has not pulled."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The replica is lost, and marked so."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The replica is good again, as a copy of `source` at `pointer`; `detached` parts were set aside."""

    source: str
    pointer: fx.LogIndex
    detached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoSource:
    """No other replica is good: an operator must choose one (`survive`)."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """It could not be finished now, and why.  The replica stays lost; try again."""

    reason: str


Standing: TypeAlias = Good | Lost | NoSource | NotYet | Fenced
RecoverOutcome: TypeAlias = Good | Recovered | NoSource | NotYet | Fenced


def stand_in_log(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[Standing]:
    """Find out whether a replica that has just become active must recover; mark it lost when the log says that it is.

    `NoSource`: entries are missing, and there is no other good replica.
    """
    # While a replica is active every cleaner respects its pointer, so it is enough to ask once, after the activation.
    table = replica.table
    yield fx.Sync(layout.log(table))
    lost = yield fx.Get(layout.is_lost(replica))
    start = yield from read_start(table)
    if lost is None or start is None:
        return NotYet("the table is being dropped")
    if lost.value != NOT_LOST:
        return Lost()
    if start.is_whole:
        return Good()
    pointer = yield fx.Get(layout.log_pointer(replica))
    if pointer is None:
        return NotYet("the replica is being dropped")
    if layout.pointer_index(pointer.value) >= start.first:
        return Good()
    good = yield from good_replica(table, besides=replica.name)
    if good is None:
        return NoSource()
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch), *good, fx.Set(layout.is_lost(replica), LOST, lost.version)
    )
    return Lost() if isinstance(committed, fx.Applied) else _refused(committed, replica)


def recover(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[RecoverOutcome]:
    """Take over the state of a good replica.

    Parameters
    ----------
    replica, epoch
        The replica that recovers: active under `epoch`, and executing nothing.

    Returns
    -------
    `Fenced`: go on under a new epoch, if the replica is still this process's.  Either the epoch is over, or an answer was
    lost: a commit that comes late would register parts, or take them back, in the middle of the next attempt.  Or the session
    is over.
    """
    lost = yield fx.Get(layout.is_lost(replica))
    if lost is None:
        return NotYet("the replica is being dropped")
    if lost.value == NOT_LOST:
        return Good()
    source = yield from choose_source(replica)
    if source is None:
        return NoSource()
    begun = yield from _begin(replica, epoch, source, lost.version)
    if not isinstance(begun, _Recovery):
        return begun
    brought = yield from _bring_all(begun)
    if not isinstance(brought, _SourceState):
        return brought
    left = yield from _release(begun, brought)
    if not isinstance(left, tuple):
        return left
    trouble = yield from _take_queue(begun, brought)
    if trouble is not None:
        return trouble
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch),
        fx.Check(layout.is_active(replica), fx.ANY_VERSION),
        *source.proof,
        fx.Set(layout.is_lost(replica), NOT_LOST, begun.lost),
    )
    if isinstance(committed, fx.Applied):
        return Recovered(source.replica.name, begun.pointer, left)
    return _refused(committed, replica)


# --- choose and begin -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A good replica: the version of its `is_lost` says so, as long as no replica was added since.

    One that was dropped and has joined again has an `is_lost` whose version begins anew; that of `replicas` (`added`) tells.
    """

    replica: Replica
    lost: fx.Version
    added: fx.Version

    @property
    def proof(self) -> tuple[fx.Check, fx.Check]:
        """What proves, in a commit, that it is good and has been all the time."""
        return fx.Check(layout.is_lost(self.replica), self.lost), fx.Check(
            layout.replicas(self.replica.table), self.added
        )


@dataclass(frozen=True, slots=True)
class _Recovery:
    """A recovery that has begun: `lost` is the version of the replica's own `is_lost`."""

    replica: Replica
    epoch: fx.Epoch
    source: Source
    pointer: fx.LogIndex
    lost: fx.Version


def choose_source(replica: Replica) -> fx.Procedure[Source | None]:
    """Choose the good replica that lags least, in entries not pulled and not executed; None when there is none."""
    table = replica.table
    added = yield fx.Get(layout.replicas(table))
    if added is None:
        return None
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table))) or ()
    seen = yield from look(tuple(Replica(table, name) for name in names if name != replica.name))
    good = tuple(one for one in seen or () if not one.is_lost)
    newest = max((one.pointer for one in good), default=fx.LogIndex(0))
    best: tuple[tuple[int, bool, str], Source] | None = None
    for one in good:
        queue = (yield fx.Children(layout.queue(one.replica))) or ()
        rank = (newest - one.pointer + len(queue), not one.is_active, one.replica.name)
        if best is None or rank < best[0]:
            best = (rank, Source(one.replica, one.lost, added.version))
    return None if best is None else best[1]


def _begin(
    replica: Replica, epoch: fx.Epoch, source: Source, lost: fx.Version
) -> fx.Procedure[_Recovery | NotYet | Fenced]:
    """Take the source's pointer, in a commit that proves that the source is good and still stands there."""
    theirs = yield fx.Get(layout.log_pointer(source.replica))
    mine = yield fx.Get(layout.log_pointer(replica))
    if theirs is None or mine is None:
        return NotYet("a replica is being dropped")
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch),
        *source.proof,
        fx.Check(layout.log_pointer(source.replica), theirs.version),
        fx.Set(layout.log_pointer(replica), theirs.value, mine.version),
        fx.Set(layout.is_lost(replica), HALF_BUILT, lost),
    )
    if isinstance(committed, fx.Applied):
        return _Recovery(replica, epoch, source, layout.pointer_index(theirs.value), fx.Version(lost + 1))
    return _refused(committed, replica)


def _refused(committed: fx.Committed, replica: Replica) -> NotYet | Fenced:
    """Return what a commit that was not applied means."""
    match committed:
        case fx.Refused(operation=fx.Check(path=path)) if path in (layout.host(replica), layout.is_active(replica)):
            return Fenced()
        case fx.Refused(operation=operation):
            return NotYet(f"{operation.path} has changed meanwhile")
    # An unknown commit may still take place, so nothing may go on under its epoch.
    return Fenced()


# --- bring the parts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourceState:
    """What the source has: registered parts that no other one covers, with their values, and its queue below the pointer."""

    registered: dict[Part, bytes]
    queue: dict[fx.LogIndex, bytes]


def _bring_all(recovery: _Recovery) -> fx.Procedure[_SourceState | NotYet | Fenced]:
    """Fetch and register what the source has; read its state again while parts leave it before they could be fetched."""
    missing: tuple[Part, ...] = ()
    for _ in range(ROUNDS_MAX):
        state = yield from _read_source(recovery)
        if state is None:
            continue
        outcome = yield from _bring(recovery, state)
        if not isinstance(outcome, tuple):
            return outcome
        missing = outcome
        if not missing:
            return state
    names = ", ".join(part.name for part in missing[:3])
    return NotYet(
        f"no replica could send {len(missing)} parts ({names})" if missing else "the source changes all the time"
    )


def _read_source(recovery: _Recovery) -> fx.Procedure[_SourceState | None]:
    """Read the source's queue, then its parts; None when a part has left meanwhile."""
    source = recovery.source.replica
    yield fx.Sync(layout.parts(source))
    indexes = sorted(layout.queue_index(name) for name in (yield fx.Children(layout.queue(source))) or ())
    below = tuple(index for index in indexes if index < recovery.pointer)
    entries: fx.Many = (
        (yield fx.GetMany(tuple(layout.queue_entry(source, index) for index in below))) if below else fx.Many(())
    )
    parts = maximal(parse_part(name) for name in (yield fx.Children(layout.parts(source))) or ())
    values: fx.Many = (
        (yield fx.GetMany(tuple(layout.part(source, part.name) for part in parts))) if parts else fx.Many(())
    )
    registered = {part: node.value for part, node in zip(parts, values.nodes, strict=True) if node is not None}
    # A part that left has a replacement that this read did not see.
    if len(registered) < len(parts):
        return None
    queue = {index: node.value for index, node in zip(below, entries.nodes, strict=True) if node is not None}
    return _SourceState(registered, queue)


def _bring(recovery: _Recovery, state: _SourceState) -> fx.Procedure[tuple[Part, ...] | NotYet | Fenced]:
    """Fetch and register what is not registered here with the same content; return the parts that no replica could send."""
    own = yield from _own_parts(recovery.replica)
    wanted: list[tuple[Part, bytes]] = []
    for part, theirs in state.registered.items():
        mine = own.get(part)
        is_same = mine is not None and content_of(mine) == content_of(theirs)
        # A part that is whole here and broken there is better than the source's.
        if mine is None or not is_same or (is_broken(mine) and not is_broken(theirs)):
            wanted.append((part, theirs))
    other = tuple(part for part, _ in wanted if part in own)
    trouble = yield from _take_back(recovery, other)
    if trouble is not None:
        return trouble
    for part in other:
        yield fx.RemovePart(part.name)
    # Any of the replicas may send a part; the source is the first to be asked.
    table, source = recovery.replica.table, recovery.source.replica.name
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table))) or ()
    holders: list[tuple[str, frozenset[str]]] = []
    for name in (source, *(name for name in names if name not in (source, recovery.replica.name))):
        parts: tuple[str, ...] = (yield fx.Children(layout.parts(Replica(table, name)))) or ()
        holders.append((name, frozenset(parts)))
    missing: list[Part] = []
    for first in range(0, len(wanted), BATCH):
        batch = wanted[first : first + BATCH]
        fetches = tuple(
            fx.FetchPart(part.name, content_of(value), _rotated(holders, part, first + number))
            for number, (part, value) in enumerate(batch)
        )
        outcomes = yield fx.FetchMany(fetches)
        creates: list[fx.Operation] = []
        for (part, value), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, fx.Fetched):
                creates.append(register(recovery.replica, part, content_of(value)))
            elif is_broken(value):
                # The source does not have the part either.  Its search of its own disk says nothing about this disk.
                broken = broken_value(content_of(value))
                creates.append(fx.Create(layout.part(recovery.replica, part.name), broken))
            else:
                missing.append(part)
        if creates:
            committed = yield fx.Commit(fx.Check(layout.host(recovery.replica), recovery.epoch), *creates)
            if not isinstance(committed, fx.Applied):
                return _refused(committed, recovery.replica)
    return tuple(missing)


def _own_parts(replica: Replica) -> fx.Procedure[dict[Part, bytes]]:
    """Return what this replica has registered, with the values."""
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    values: fx.Many = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))) if names else fx.Many(())
    return {parse_part(name): node.value for name, node in zip(names, values.nodes, strict=True) if node is not None}


def _rotated(holders: Sequence[tuple[str, frozenset[str]]], part: Part, turn: int) -> tuple[str, ...]:
    """Return the replicas that have a part, with another one first for each `turn`."""
    # So the replicas share the work of sending parts.
    names = tuple(name for name, parts in holders if part.name in parts)
    turn %= max(1, len(names))
    return names[turn:] + names[:turn]


# --- release, take the queue ------------------------------------------------------------------------------------------------


def _release(recovery: _Recovery, state: _SourceState) -> fx.Procedure[tuple[str, ...] | NotYet | Fenced]:
    """Take back what the source has neither registered nor still to bring; set aside what no whole part covers here."""
    replica = recovery.replica
    queue = tuple(
        (index, decode_entry(raw, layout.queue_entry(replica, index))) for index, raw in sorted(state.queue.items())
    )
    _, changes = restore(state.registered, queue)
    kept = {*state.registered, *(part for change in changes for part in change.added)}
    own = yield from _own_parts(replica)
    # A part that only a broken one covers, at the source and here, may have the last of its rows: it is set aside.
    whole = PartSet.of(tuple(sorted(part for part in state.registered if part in own and not is_broken(own[part]))))
    # A part that the source has still to bring, or to pull, may be here already, and here only.  What the log brings from the
    # pointer on follows from the log alone, so it is the same on every replica.
    left = tuple(part for part in own if part not in kept and part.block_min < recovery.pointer)
    aside = tuple(part.name for part in left if whole.covering(part) is None)
    if aside:
        detached = yield fx.Detach(aside)
        if isinstance(detached, fx.StoreFailed):
            return NotYet(detached.reason)
    trouble = yield from _take_back(recovery, left)
    return aside if trouble is None else trouble


def _take_back(recovery: _Recovery, parts: tuple[Part, ...]) -> fx.Procedure[NotYet | Fenced | None]:
    """Take back the registration of parts, and hide them."""
    replica = recovery.replica
    for first in range(0, len(parts), BATCH):
        batch = parts[first : first + BATCH]
        trouble = yield from _write(
            recovery, tuple(fx.Delete(layout.part(replica, p.name), fx.ANY_VERSION) for p in batch)
        )
        if trouble is not None:
            return trouble
        yield fx.Reveal((), tuple(part.name for part in batch))
    return None


def _take_queue(recovery: _Recovery, state: _SourceState) -> fx.Procedure[NotYet | Fenced | None]:
    """Make the queue what the source's was; an entry of one index is the same on all replicas."""
    replica = recovery.replica
    own = tuple(layout.queue_index(name) for name in (yield fx.Children(layout.queue(replica))) or ())
    gone = tuple(
        fx.Delete(layout.queue_entry(replica, index), fx.ANY_VERSION) for index in own if index not in state.queue
    )
    come = tuple(
        fx.Create(layout.queue_entry(replica, index), raw)
        for index, raw in sorted(state.queue.items())
        if index not in own
    )
    operations: tuple[fx.Operation, ...] = (*gone, *come)
    for first in range(0, len(operations), BATCH):
        trouble = yield from _write(recovery, operations[first : first + BATCH])
        if trouble is not None:
            return trouble
    return None


def _write(recovery: _Recovery, operations: tuple[fx.Operation, ...]) -> fx.Procedure[NotYet | Fenced | None]:
    committed = yield fx.Commit(fx.Check(layout.host(recovery.replica), recovery.epoch), *operations)
    return None if isinstance(committed, fx.Applied) else _refused(committed, recovery.replica)


# --- when all are lost ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survivor:
    """The replica is good again; it has missed the entries from `missed_from` up to `missed_to` (excluded) for good."""

    missed_from: fx.LogIndex
    missed_to: fx.LogIndex


@dataclass(frozen=True, slots=True)
class NotSurvivor:
    """Nothing was changed, and why."""

    reason: str


def survive(
    table: TablePlace, name: str, *, half_built: bool = False, behind: bool = False
) -> fx.Procedure[Survivor | NotSurvivor]:
    """Declare a replica's state the table's, when all are lost: the others will recover from it.  For an operator.

    Parameters
    ----------
    name
        The replica whose state becomes the truth.
    half_built
        Take it even if it is a mixture of its own state and of that which it was taking over.
    behind
        Take it even if another one that is whole has pulled more.
    """
    yield fx.Sync(layout.replicas(table))
    start = yield from read_start(table)
    added = yield fx.Get(layout.replicas(table))
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table))) or ()
    if start is None or added is None or name not in names:
        return NotSurvivor(f"table {table.name} has no replica {name}; `replitree status` shows them")
    chosen = Replica(table, name)
    seen = yield from look(tuple(Replica(table, each) for each in names))
    mark = yield fx.Get(layout.is_lost(chosen))
    one = next((each for each in seen or () if each.replica == chosen), None)
    pointer = yield fx.Get(layout.log_pointer(chosen))
    if seen is None or one is None or mark is None or pointer is None:
        return NotSurvivor("a replica is being added or dropped; try again")
    good = tuple(each.replica.name for each in seen if not each.is_lost)
    if good:
        return NotSurvivor(f"replica {good[0]} is good: start it, the others recover from it by themselves")
    if mark.value == HALF_BUILT and not half_built:
        return NotSurvivor(f"replica {name} was taking over another one's state and is half-built; choose another one")
    best = max((each for each in seen if each.is_whole), key=lambda each: each.pointer, default=one)
    if best.pointer > one.pointer and not behind:
        return NotSurvivor(
            f"replica {best.replica.name} has more of the table: it has pulled up to {best.pointer}, {name} only up to"
            f" {one.pointer}; choose {best.replica.name}"
        )
    # What the survivor has of an insert whose end it misses stays.  An end that is in the log is above its pointer, and an end
    # that comes meanwhile is appended there, so it pulls both.  The log is not cleaned beyond an open insert: while an insert's
    # entry is there, so is its end.
    still_open: list[fx.LogIndex] = []
    for index in layout.pointer_open(pointer.value):
        is_there = yield fx.Exists(layout.log_entry(table, index))
        if is_there or (yield from find_end(table, index)) is not None:
            still_open.append(index)
    first = fx.LogIndex(max(one.pointer, start.first))
    committed = yield fx.Commit(
        *(fx.Check(layout.is_lost(each.replica), each.lost) for each in seen if each != one),
        fx.Check(layout.host(chosen), one.host),
        fx.Check(layout.replicas(table), added.version),
        fx.Check(layout.log(table), start.version),
        fx.Set(layout.log_pointer(chosen), layout.pointer_value(first, tuple(still_open)), pointer.version),
        fx.Set(layout.is_lost(chosen), NOT_LOST, mark.version),
    )
    if isinstance(committed, fx.Applied):
        return Survivor(one.pointer, first)
    return NotSurvivor("something has changed meanwhile; look at `replitree status` and try again")
