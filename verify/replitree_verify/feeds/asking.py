"""Ask a replica of another world of the checker for its feed: of the explorer, of the simulator, or of a conversation.

The code that answers is the replica's own, over a folder (`replitree_verify.feeds.desk`).  It gets what the process knows and
what is on its disk.  The version log, which these worlds do not have, is written here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import settled
from replitree.protocol.feed.definition import EntryFeed
from replitree_verify.feeds.desk import Kept, Standing, Written, desk_of
from replitree_verify.feeds.rows import Emitted, Rows, difference, emitted, named_by, net_of
from replitree_verify.world.disk import Disk, rows_in
from replitree_verify.world.history import Log
from replitree_verify.world.memory import Memory

ENTRY_MS = 1_000
"""Between two entries, by coordination's clock."""


class Fed(NamedTuple):
    """What a replica gives of its feed: entries from `start` up to `reached`, each with its time in microseconds."""

    start: LogIndex
    reached: LogIndex
    entries: tuple[tuple[LogIndex, int, EntryFeed], ...]


def written_in(log: Log) -> tuple[Written, ...]:
    """Return the entries of a log, those included that were removed; nodes have no times in these worlds."""
    return tuple(
        Written(LogIndex(index), entry, (number + 1) * ENTRY_MS) for number, (index, entry) in enumerate(log.raw)
    )


def noted(known: Standing, pointer: int, entries: tuple[Written, ...]) -> Standing:
    """Return a replica that has written down what it has pulled up to an index.

    A recovery may have set it back: then its version log goes on to say what it has said.
    """
    if known.pointer >= pointer and known.files:
        return known
    with desk_of(known, entries, 0, Kept(0.0)) as desk:
        if known.pointer < pointer:
            desk.pull(pointer)
        else:
            desk.catch_up()
        return desk.standing._replace(pointer=pointer)


def ask(known: Standing, memory: Memory, disk: Disk, entries: tuple[Written, ...], start: LogIndex | None) -> Fed:
    """Ask a replica that is active for its feed from an index on.

    Parameters
    ----------
    known
        Its version log, as `noted` has it.
    memory, disk, entries
        What its process knows, what is on its disk, and the log.
    start
        None: the first entry of its feed.

    Raises
    ------
    OffsetExpired, FeedGap, ReplicaUnavailable, BadInput
        As `replitree.replica.table.feeds.Feeds.take`.
    """
    assert memory.place is not None
    standing = known._replace(
        pointer=memory.place.pointer.index,
        queue=tuple(item.index for item in memory.queue),
        held=tuple(part.name for part in memory.held),
        old=disk.old,
    )
    with desk_of(standing, entries, 0, Kept(0.0)) as desk:
        desk.progress.hide(name for name, _ in memory.lacking)
        taken = desk.feeds.take(desk.feeds.earliest() if start is None else start, None, 0.0)
    return Fed(taken.start, taken.reached, tuple((each.index, each.timestamp_us, each.feed) for each in taken.entries))


def rows_on(disk: Disk) -> dict[str, Rows]:
    """Return the rows of the parts on a disk."""
    return {name: rows_in(content) for name, content in disk.parts}


def judge(fed: Fed, log: Log, disk: Mapping[str, Rows], told: dict[LogIndex, Emitted]) -> str | None:
    """Return what is wrong with what a replica gives, or None; F1, F2 and F5.

    Parameters
    ----------
    fed, log, disk
        What it gives, what coordination says, and the rows on its disk.
    told
        What readers got before, by entry; what they get now is added.
    """
    entries = {index: (us, feed) for index, us, feed in fed.entries}
    for item in log.entries:
        if not fed.start <= item.index < fed.reached:
            continue
        us, feed = entries.get(item.index, (0, EntryFeed()))
        lacking = [part for part in named_by(feed.units) if part not in disk]
        if lacking:
            return f"F5: entry {item.index} is given by {lacking[0]}, which is not there"
        emission = emitted(feed.units, us, disk)
        due = difference(_shown(log, item.index), _shown(log, item.index + 1))
        if net_of(emission) != due:
            return f"F1: entry {item.index} is given as {emission.rows}, and reads show {dict(due)}"
        if item.index in entries and told.setdefault(item.index, emission) != emission:
            return f"F2: entry {item.index} is given as {emission}, and was {told[item.index]}"
    return None


def _shown(log: Log, index: int) -> Counter[str]:
    """Return the rows that reads show at an index."""
    parts = settled(log.parts_at(index), log.open_at(index))
    return Counter(row for part in parts for row in log.lineage[part].rows)


__all__ = ["Fed", "ask", "judge", "noted", "rows_on", "written_in"]
