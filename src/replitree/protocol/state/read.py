"""Read: at which position of the log a read stands, and what it shows there.

What a read shows is a function of the log alone: the settled parts of ``fold(log[0:n])``.  The levels differ in how n is found:

================  ==========================================================================================================
``eventual``      no position: whatever the replica shows at the moment, whole inserts only
``sequential``    n is the replica's own pointer, or the last position that the client has seen or written, if that is higher
``linearizable``  n is the end of the log, read after a commit; or the last position that the client has seen, if higher
================  ==========================================================================================================

Order of a read, at every level: find n (`position_of`), wait until every entry below n is executed (`is_readable`), then show
exactly ``fold(log[0:n])`` (`parts_at`).  The end of the log is read *after* the read began and *after* a commit that changes
nothing, so it lies above every entry that was acknowledged before.  Entries above n that are executed are not shown: entries
are executed in any order, and a read that showed one without an earlier one would be at no position at all.

A `Sync` would not suffice.  ZooKeeper's leader answers it alone, and a deposed leader that does not know it yet answers from an
old state.  A commit needs the quorum of the servers, also one that only checks a node: once it is applied, the session sees
every earlier commit.

The commit counts for its session only.  A new session may begin behind it.  So a session that has changed meanwhile is treated
like a commit without an answer: the procedure trusts nothing it has read, and the caller asks again.

Merges need not be executed: the rows are the same before and after.  Mutations must be.

Absent on purpose: time limits.  A caller that has waited too long fails with an error; it never shows an older state instead.

(ClickHouse's ``select_sequential_consistency`` asks without either, and hides a merged part that reaches over its limit.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias, assert_never, get_args

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, MergeEntry
from replitree.protocol.core.fold import Change, settled
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part
from replitree.protocol.state.pull import Queued

ReadLevel: TypeAlias = Literal["eventual", "sequential", "linearizable"]
"""What a read is promised, besides whole inserts."""

READ_LEVELS: tuple[ReadLevel, ...] = get_args(ReadLevel)
"""All of them, the weakest first."""


def position_of(
    level: ReadLevel, at_least: fx.LogIndex, pointer: fx.LogIndex, end: fx.LogIndex | None = None
) -> fx.LogIndex:
    """Return the position at which a read stands.

    Parameters
    ----------
    level
        What the read is promised.
    at_least
        What must be below the position in any case: what the client has seen and written.
    pointer
        The index of the next entry that the replica pulls.
    end
        Of a linearizable read: the end of the log (`end_of_log`).

    >>> position_of("sequential", 3, 5), position_of("linearizable", 3, 5, 7), position_of("eventual", 3, 5)
    (5, 7, 3)
    """
    match level:
        case "eventual":
            return at_least
        case "sequential":
            return max(pointer, at_least)
        case "linearizable":
            assert end is not None, "a linearizable read asks for the end of the log first"
            return max(end, at_least)
    assert_never(level)


def end_of_log(table: TablePlace) -> fx.Procedure[fx.LogIndex | None]:
    """Return an index above every entry that was in the log when this began.

    None when that is in doubt: the commit has no answer, or the session has changed meanwhile; or when there is no such table.
    """
    session = yield fx.CurrentSession()
    if not isinstance((yield fx.Commit(fx.Check(layout.log(table), fx.ANY_VERSION))), fx.Applied):
        return None
    # A parent that the log has left is closed before the next one is created.  So when no further parent is seen, everything
    # that was committed before is below the number that was read.
    parent = table.parent
    number = yield fx.NextNumber(layout.log_parent(table, parent))
    while (yield fx.Exists(layout.log_parent(table, parent + 1))):
        parent += 1
        number = yield fx.NextNumber(layout.log_parent(table, parent))
    if number is None or (yield fx.CurrentSession()) != session:
        return None
    return fx.LogIndex(parent * layout.PARENT_ENTRIES + number)


def shown_now(held: PartSet, queue: Iterable[Queued]) -> tuple[Part, ...]:
    """Return what an eventual read shows: whole inserts, each once.

    An insert whose quorum was given up may be partly gone, because a merge reaches over its block in one of its partitions; and
    it may be there again, under a later index.  So what is known to have failed is not shown any more.

    Parameters
    ----------
    held
        What the replica has registered, whatever it is the state of.
    queue
        What it has pulled and not executed.
    """
    failed = frozenset(
        part
        for entry in (item.entry for item in queue)
        if isinstance(entry, FailEntry)
        for partition in entry.partitions
        for part in held.between(partition, entry.index, entry.index)
        if part.is_within(entry.index, entry.index)
    )
    return tuple(part for part in held if part not in failed) if failed else tuple(held)


def is_readable(
    pointer: fx.LogIndex, queue: Iterable[Queued], position: fx.LogIndex, opened: tuple[fx.LogIndex, ...] = ()
) -> bool:
    """Whether everything below a position is pulled and executed; merges and open inserts excepted.

    Parameters
    ----------
    pointer, queue
        How far the replica is: the next entry that it pulls, and what it has pulled and not executed.
    position
        Where the read stands.
    opened
        The inserts that are open at the position.
    """
    return pointer >= position and all(
        item.index >= position or item.index in opened or isinstance(item.entry, MergeEntry) for item in queue
    )


def parts_at(
    parts: PartSet,
    later: Iterable[Change],
    queue: Iterable[Queued],
    position: fx.LogIndex,
    is_here: Callable[[Part], bool],
    opened: tuple[fx.LogIndex, ...] = (),
) -> PartSet:
    """Return the settled parts of the table at a position; of merges that are not executed here the sources.

    Parameters
    ----------
    parts
        Those at the replica's pointer, which is not below the position.
    later
        What the entries from the position up to the pointer have changed, the last one first.
    queue
        What the replica has not executed, ascending: of a merge the sources are shown in place of the result.
    position
        Where the read stands.
    is_here
        Whether a part is on this disk.
    opened
        The inserts that are open at the position: they are left out.
    """
    for change in later:
        parts = parts if change.is_empty else parts.replace(change.added, change.removed)
    merges = [item for item in queue if item.index < position and isinstance(item.entry, MergeEntry)]
    for item in reversed(merges):
        for result in item.change.added:
            if result in parts and not is_here(result):
                parts = parts.replace((result,), item.change.removed)
    return settled(parts, opened)
