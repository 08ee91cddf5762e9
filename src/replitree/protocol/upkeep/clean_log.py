"""Clean the log: remove the entries that no replica needs any more, and give up on replicas that are too far behind.

What is kept, counted in entries back from the cleaner's own pointer, which is not above the tail:

* the newest `keep_min`;
* every entry that an *active* replica has not pulled, however many;
* every entry that a *recovering* replica (active and lost) has not pulled, and while there is one, every entry that a replica
  has not pulled that it may be cloning;
* every entry from the first insert on whose quorum is open at the cleaner's pointer: a replica that joins it, or gives it up,
  reads its entry (`protocol.insert.quorum`);
* every entry that a *fresh* replica has not pulled: inactive, not lost, and no further behind than `keep_max`.

A replica that is inactive and further behind (*stale*) is marked lost first.  It will recover from another one.

Any number of replicas may clean at the same time; each commit proves that the facts behind its decision still hold:

* of **every** replica the version of `host` (none became active) and of `is_lost` (none was marked, none has recovered);
* the version of `replicas` (none was added);
* the version of `log` (no other cleaner has removed entries).

The order of the reads matters.  The version of `replicas` is read before their names; of all replicas `is_lost` before
`is_active` before `log_pointer`, because a recovery sets its pointer, possibly backwards, before it ends; and the pointers of
those that recover last of all, because a recovery takes its pointer from a replica whose pointer is read before.

The cleaner itself is active and not lost, and every commit proves it: it is the replica that is never marked (I5).

(ClickHouse's `clearOldLogs`, spec 8.2, with its holes H1 to H5 closed; the sources' *CleanOldLog*.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import LogStart, encode_log, read_start
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, LOST, NOT_LOST

REMOVE_BATCH = 100
"""Entries removed in one commit."""

SLACK = 10
"""Nothing is removed before this fraction (one in so many) of what always stays has gathered: few commits, each worth it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept whether or not a replica needs it, in entries.

    Attributes
    ----------
    at_least
        The newest entries that always stay.
    at_most
        How far an inactive replica may be behind before it is marked lost; at least `at_least`.
    """

    at_least: int = 100
    at_most: int = 1000


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Entries below `first` are gone; `removed` of them by this call.  `lost` were marked."""

    first: fx.LogIndex
    removed: int = 0
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogMoved:
    """Something has changed since it was read, or the outcome of a commit is unknown.  Try again later."""

    lost: tuple[str, ...] = ()


CleanOutcome: TypeAlias = Cleaned | LogMoved


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica as the cleaner saw it: `pointer` is the next entry that it will pull; it `is_whole` if it is not half-built.

    `opened` are the inserts that are open at its pointer.
    """

    replica: Replica
    host: fx.Version
    lost: fx.Version
    is_lost: bool
    is_active: bool
    pointer: fx.LogIndex
    is_whole: bool = True
    opened: tuple[fx.LogIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: mark `stale` replicas lost, then remove the entries below `end`."""

    stale: tuple[Seen, ...]
    end: fx.LogIndex


def clean_log(cleaner: Replica, epoch: fx.Epoch, keep: Keep) -> fx.Procedure[CleanOutcome]:
    """Remove the entries that no replica needs.

    Parameters
    ----------
    cleaner, epoch
        The replica that cleans, active under `epoch`.
    keep
        How much stays in any case.
    """
    table = cleaner.table
    start = yield from read_start(table)
    added: fx.Node | None = yield fx.Get(layout.replicas(table))
    names: tuple[str, ...] = (yield fx.Children(layout.replicas(table))) or ()
    if start is None or added is None:
        return LogMoved()
    replicas = yield from look(tuple(Replica(table, name) for name in names))
    planned = None if replicas is None else plan(cleaner, replicas, start.first, keep)
    if replicas is None or planned is None:
        return LogMoved() if replicas is None else Cleaned(start.first)
    nobody_added = fx.Check(layout.replicas(table), added.version)
    marked = yield from _mark(cleaner, epoch, replicas, planned.stale, nobody_added)
    if marked is None:
        return LogMoved()
    proof = (
        fx.Check(layout.host(cleaner), epoch),
        *(
            check
            for seen in marked
            for check in (
                *(() if seen.replica == cleaner else (fx.Check(layout.host(seen.replica), seen.host),)),
                fx.Check(layout.is_lost(seen.replica), seen.lost),
            )
        ),
        nobody_added,
    )
    lost = tuple(seen.replica.name for seen in planned.stale)
    return (yield from _remove(cleaner, start, planned.end, proof, lost))


def look(replicas: tuple[Replica, ...]) -> fx.Procedure[tuple[Seen, ...] | None]:
    """Read what is known of replicas, in the order that the module's text explains; None while one is added or removed."""
    hosts: fx.Many = yield fx.GetMany(tuple(layout.host(replica) for replica in replicas))
    lost: fx.Many = yield fx.GetMany(tuple(layout.is_lost(replica) for replica in replicas))
    active: fx.Many = yield fx.GetMany(tuple(layout.is_active(replica) for replica in replicas))
    pointers: fx.Many = yield fx.GetMany(tuple(layout.log_pointer(replica) for replica in replicas))
    found: list[Seen] = []
    for replica, host, mark, is_active, pointer in zip(
        replicas, hosts.nodes, lost.nodes, active.nodes, pointers.nodes, strict=True
    ):
        if host is not None and host.value == DROPPED_HOST:
            # The replica is being dropped and can't come back, so nothing is kept for it.
            continue
        if host is None or mark is None or pointer is None:
            return None
        found.append(
            Seen(
                replica,
                host.version,
                mark.version,
                mark.value != NOT_LOST,
                is_active is not None,
                layout.pointer_index(pointer.value),
                mark.value != HALF_BUILT,
                layout.pointer_open(pointer.value),
            )
        )
    return (yield from _look_again(tuple(found)))


def _look_again(replicas: tuple[Seen, ...]) -> fx.Procedure[tuple[Seen, ...] | None]:
    """Read the pointers of recovering replicas once more, after all others."""
    recovering = tuple(seen for seen in replicas if seen.is_lost and seen.is_active)
    if not recovering:
        return replicas
    again: fx.Many = yield fx.GetMany(tuple(layout.log_pointer(seen.replica) for seen in recovering))
    lowest: dict[Replica, fx.LogIndex] = {}
    for seen, node in zip(recovering, again.nodes, strict=True):
        if node is None:
            return None
        lowest[seen.replica] = min(seen.pointer, layout.pointer_index(node.value))
    return tuple(replace(seen, pointer=lowest.get(seen.replica, seen.pointer)) for seen in replicas)


def plan(cleaner: Replica, replicas: tuple[Seen, ...], first: fx.LogIndex, keep: Keep) -> Plan | None:
    """Decide which entries are removed and which replicas are marked lost; None if nothing is to be done.

    Parameters
    ----------
    first
        The lowest entry that is there.
    """
    own = next((seen for seen in replicas if seen.replica == cleaner), None)
    if own is None or own.is_lost:
        return None
    recovers = any(seen.is_lost and seen.is_active for seen in replicas)
    stale = tuple(
        seen
        for seen in replicas
        if not seen.is_active and not seen.is_lost and seen.pointer < own.pointer - keep.at_most
    )
    needed = tuple(
        seen.pointer for seen in replicas if (seen.is_active or not seen.is_lost) and (recovers or seen not in stale)
    )
    if layout.parent_of(first) < layout.parent_of(own.pointer) and own.pointer % layout.PARENT_ENTRIES < keep.at_most:
        # Between two parents there are unused indexes, so the distance to the tail means nothing yet.
        return None
    end = fx.LogIndex(min((*needed, own.pointer - keep.at_least, *own.opened)))
    if end - first <= keep.at_least // SLACK:
        return None
    return Plan(tuple(seen for seen in stale if seen.pointer < end), end)


def _mark(
    cleaner: Replica, epoch: fx.Epoch, replicas: tuple[Seen, ...], stale: tuple[Seen, ...], nobody_added: fx.Check
) -> fx.Procedure[tuple[Seen, ...] | None]:
    """Mark replicas lost, all in one commit; return all replicas as they are now, None when it was not certainly done.

    The versions of `host` prove that none of them came back, or was dropped and has joined again; that of `replicas`, that
    none was added; the cleaner's own `is_lost`, that it is good.
    """
    if not stale:
        return replicas
    own = next(seen for seen in replicas if seen.replica == cleaner)
    operations: list[fx.Operation] = [
        fx.Check(layout.host(cleaner), epoch),
        fx.Check(layout.is_lost(cleaner), own.lost),
        nobody_added,
    ]
    for seen in stale:
        operations += [
            fx.Check(layout.host(seen.replica), seen.host),
            fx.Set(layout.is_lost(seen.replica), LOST, seen.lost),
        ]
    if not isinstance((yield fx.Commit(*operations)), fx.Applied):
        return None
    return tuple(
        replace(seen, is_lost=True, lost=fx.Version(seen.lost + 1)) if seen in stale else seen for seen in replicas
    )


def _remove(
    cleaner: Replica, start: LogStart, end: fx.LogIndex, proof: tuple[fx.Operation, ...], lost: tuple[str, ...]
) -> fx.Procedure[CleanOutcome]:
    """Remove the entries from the first one up to `end`."""
    # The lowest go first, so a cleaner that is interrupted leaves no hole.
    table, first, version = cleaner.table, start.first, start.version
    while first < end:
        upto, there = fx.LogIndex(min(first + REMOVE_BATCH, end)), range(first, min(first + REMOVE_BATCH, end))
        if layout.parent_of(first) < layout.parent_of(end):
            upto, there = yield from _left_below(table, first)
        committed = yield fx.Commit(
            *proof,
            fx.Set(layout.log(table), encode_log(table, upto, has_views=start.has_views), version),
            *(fx.Delete(layout.log_entry(table, index), fx.ANY_VERSION) for index in there),
        )
        if not isinstance(committed, fx.Applied):
            return LogMoved(lost)
        first, version = upto, fx.Version(version + 1)
    return Cleaned(end, end - start.first, lost)


def _left_below(table: TablePlace, first: fx.LogIndex) -> fx.Procedure[tuple[fx.LogIndex, range]]:
    """Return the next entries below a parent that is closed, and the index that the log begins with after them."""
    batch = range(first, first + REMOVE_BATCH)
    many: fx.Many = yield fx.GetMany(tuple(layout.log_entry(table, index) for index in batch))
    count = next((number for number, node in enumerate(many.nodes) if node is None), REMOVE_BATCH)
    upto = first + count if count == REMOVE_BATCH else (layout.parent_of(first) + 1) * layout.PARENT_ENTRIES
    return fx.LogIndex(upto), range(first, first + count)
