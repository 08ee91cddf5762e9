"""Which rows parts have in the models of the feed, what reads show, and what a reader of the feed makes of it.

A row is a letter for its insert, a digit, and a mark for each update: of ``a0`` an update makes ``a0~u``.  An insert writes two
rows; updates change the first one, and deletions remove the second one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import GetEntry, LostEntry, MergeEntry, MutateEntry, RewriteEntry
from replitree.protocol.core.fold import settled
from replitree.protocol.core.parts import Part, inserted_part, mutated_part, parse_part
from replitree.protocol.feed.definition import Unit
from replitree.protocol.state.pull import Queued
from replitree_verify.feeds.desk import Written, folded, place_at

Rows: TypeAlias = tuple[str, ...]
Results: TypeAlias = tuple[tuple[str, Rows], ...]
"""The rows of mutated parts, as the first replica has made them: the others take these."""

UPDATE, DELETE = "update", "delete"


class Emitted(NamedTuple):
    """What a reader gets for one entry: the entry's time in microseconds, and (type of change, row), ascending."""

    us: int
    rows: tuple[tuple[str, str], ...]


def rows_of(letter: str) -> Rows:
    """Return the rows of an insert."""
    return (f"{letter}0", f"{letter}1")


def mutated(rows: Rows, command: str) -> Rows:
    """Return what a mutation makes of rows.

    >>> mutated(("a0", "a1"), UPDATE), mutated(("a0", "a1"), DELETE)
    (('a0~u', 'a1'), ('a0',))
    """
    if command == DELETE:
        return tuple(row for row in rows if row[1] != "1")
    return tuple(f"{row}~u" if row[1] == "0" else row for row in rows)


def without(rows: Rows, letters: Collection[str]) -> Rows:
    """Return rows without those of some inserts, in whatever form they are."""
    return tuple(row for row in rows if row[0] not in letters)


def content_of(rows: Rows) -> str:
    """Return what the log says of rows."""
    return "+".join(rows)


def rows_in(content: str) -> Rows:
    """Return the rows of which the log says this."""
    return tuple(content.split("+")) if content else ()


def brought(queued: Queued) -> dict[Part, Rows]:
    """Return the rows that an entry itself brings, by their parts."""
    match queued.entry:
        case GetEntry(parts=staged):
            return {inserted_part(each.partition, queued.index): rows_in(each.content_hash) for each in staged}
        case RewriteEntry(results=results, inserts=inserts):
            made = {mutated_part(parse_part(each.source), queued.index): rows_in(each.content_hash) for each in results}
            return made | {inserted_part(each.partition, queued.index): rows_in(each.content_hash) for each in inserts}
    return {}


@lru_cache(1 << 14)
def shown_in(log: tuple[Written, ...], results: Results) -> Mapping[LogIndex, tuple[Counter[str], Counter[str]] | None]:
    """Return the rows that reads show before and after each entry; None: no replica has made one of its parts yet."""
    known, rows = dict(results), dict[Part, Rows | None]()
    found = dict[LogIndex, tuple[Counter[str], Counter[str]] | None]()
    before: Counter[str] | None = Counter()
    for queued, written in zip(folded(log), log, strict=True):
        change = queued.change
        match queued.entry:
            case MergeEntry() if change.added:
                sources = [rows[part] for part in change.removed]
                rows[change.added[0]] = tuple(sorted(row for each in sources for row in each or ()))
                if None in sources:
                    rows[change.added[0]] = None
            case MutateEntry():
                rows |= {part: known.get(part.name) for part in change.added}
            case LostEntry(part=name) if change.added:
                (cover,) = change.added
                left = rows[cover]
                rows[cover] = None if left is None else without(left, lost_with(log, name))
            case _:
                rows |= {part: each for part, each in brought(queued).items() if part in change.added}
        place = place_at(log, written.index + 1)
        shown = [rows[part] for part in settled(place.parts, place.open)]
        after = None if None in shown else Counter(row for each in shown for row in each or ())
        found[queued.index] = None if before is None or after is None else (before, after)
        before = after
    return found


def lost_with(log: Iterable[Written], part: str) -> frozenset[str]:
    """Return the letters of the inserts whose rows were in a part that is declared lost."""
    lost = parse_part(part)
    inserts = ((each.index, entry) for each in log if isinstance(entry := each.entry, GetEntry))
    return frozenset(
        row[0]
        for index, entry in inserts
        if lost.block_min <= index <= lost.block_max
        for staged in entry.parts
        for row in rows_in(staged.content_hash)
    )


def named_by(units: Iterable[Unit]) -> tuple[str, ...]:
    """Return the names of the parts from which a reader takes the rows of units."""
    return tuple(part.name for unit in units for part in (unit.before, unit.part) if part is not None)


def emitted(units: Iterable[Unit], us: int, disk: Mapping[str, Rows]) -> Emitted:
    """Return what a reader gets for the units of an entry, from the parts on a disk.

    Raises
    ------
    KeyError
        The disk does not have one of the parts.
    """
    rows = list[tuple[str, str]]()
    for unit in units:
        now = disk[unit.part.name]
        if unit.before is None:
            rows += [(unit.type, row) for row in now]
            continue
        old = disk[unit.before.name]
        gone, new = sorted((Counter(old) - Counter(now)).elements()), sorted((Counter(now) - Counter(old)).elements())
        if unit.type == "mutate":
            changed = {_unmarked(row) for row in new}
            rows += [("update_preimage" if _unmarked(row) in changed else "delete", row) for row in gone]
            rows += [("update_postimage", row) for row in new]
        else:
            rows += [*(("delete", row) for row in gone), *(("insert", row) for row in new)]
    return Emitted(us, tuple(sorted(rows)))


def _unmarked(row: str) -> str:
    return row.partition("~")[0]


def net_of(emission: Emitted) -> Counter[str]:
    """Return how often each row comes, or leaves where that is below 0."""
    found = Counter[str]()
    for kind, row in emission.rows:
        found[row] += 1 if kind in {"insert", "update_postimage"} else -1
    return Counter({row: count for row, count in found.items() if count})


def difference(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Return how often each row has to come, or to leave where that is below 0."""
    found = Counter(after)
    found.subtract(before)
    return Counter({row: count for row, count in found.items() if count})
