"""Why the parts of a partition are not merged yet, as the leader's selector sees them.

The page folds the log that it has read, so no replica is asked for parts, and asks the selector that ships
(`replitree.protocol.propose.select_merges`).  So the answer is what a leader with the default settings decides.

Guarantees: a part of an open insert is not free, as for a leader.  The size of a part that a merge or a mutation has made is
the sum of its sources', and its age counts from its entry.

Absent on purpose: parts that the leader lacks, merges that run, limits of its configuration, and its free slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from replitree.client.read.table_log import Logged
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import GetEntry, LostEntry, MutateEntry, RewriteEntry
from replitree.protocol.core.fold import apply, is_open, open_after
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part
from replitree.protocol.propose.select_merges import MergeCandidate, SelectorSettings, select_merges

PARTITIONS_MAX = 200
"""Partitions of which the answer tells, those with the most parts."""


class FoldedLog:
    """The parts of a log at the position that was read last, with sizes, and when each came into being.

    Parameters
    ----------
    base
        Columns of the parts at the base (`columns_of`); their age is not known.
    """

    def __init__(self, base: Mapping[str, Any]) -> None:
        names = ("partition", "min", "max", "level", "mutation", "rows", "bytes")
        rows = zip(*(base[name] for name in names), strict=True)
        self._sizes = {Part(base["partitions"][row[0]], *row[1:5]): (row[5], row[6]) for row in rows}
        self._parts = PartSet.of(self._sizes)
        self._opened: tuple[LogIndex, ...] = ()
        self._born_ms: dict[Part, int] = {}

    def take(self, entries: Iterable[Logged]) -> None:
        """Apply the entries that come next."""
        for each in entries:
            self._parts, change = apply(self._parts, each.index, each.entry, opened=self._opened)
            self._opened = open_after(self._opened, each.index, each.entry)
            gone = [self._sizes.pop(part, (0, 0)) for part in change.removed]
            for part in change.removed:
                self._born_ms.pop(part, None)
            entry, inserted = each.entry, dict[str, tuple[int, int]]()
            if isinstance(entry, GetEntry | RewriteEntry):
                staged = entry.parts if isinstance(entry, GetEntry) else entry.inserts
                inserted = {part.partition: (part.rows, part.bytes) for part in staged}
            # A mutation keeps the order of its parts, and so does a rewrite, whose new parts come last.
            pairs = gone if isinstance(entry, MutateEntry | RewriteEntry) else []
            # A lost part is empty.
            kept = [] if isinstance(entry, LostEntry) else gone
            whole = (sum(rows for rows, _ in kept), sum(size for _, size in kept))
            for number, part in enumerate(change.added):
                size = pairs[number] if number < len(pairs) else inserted.get(part.partition, whole)
                self._sizes[part], self._born_ms[part] = size, each.written_ms

    def candidates(self, now_ms: int) -> tuple[MergeCandidate, ...]:
        """Return the parts as the selector sees them; `now_ms` is the time, in milliseconds since 1970."""
        return tuple(
            MergeCandidate(
                part,
                *self._sizes.get(part, (0, 0)),
                max(0, now_ms - self._born_ms.get(part, now_ms)) // 1000,
                not is_open(part, self._opened),
            )
            for part in self._parts
        )


def merge_waits(candidates: Sequence[MergeCandidate]) -> list[dict[str, Any]]:
    """Return of each partition with several parts what the selector makes of them, those with the most parts first.

    `chosen`: parts that a merge takes as soon as a slot is free.  `fan_in`: that of a merge of all its parts.
    """
    settings = SelectorSettings(merges_max=1000)
    chosen: dict[str, int] = {}
    for choice in select_merges(candidates, settings):
        partition = choice.sources[0].partition
        chosen[partition] = chosen.get(partition, 0) + len(choice.sources)
    found = []
    for partition, group in groupby(candidates, key=lambda each: each.part.partition):
        members = tuple(group)
        if len(members) > 1:
            found.append(
                {
                    "partition": partition,
                    "parts": len(members),
                    "chosen": chosen.get(partition, 0),
                    "fan_in": _fan_in(members, settings),
                }
            )
    found.sort(key=lambda each: (-each["parts"], each["partition"]))
    return found[:PARTITIONS_MAX]


def _fan_in(members: Sequence[MergeCandidate], settings: SelectorSettings) -> float:
    """Return exp(H), H being the entropy of the members' shares in one merge of all (``docs/merge-selection.md``)."""
    weights = [settings.size(each.rows, each.bytes) + settings.part_overhead_bytes for each in members]
    total = sum(weights)
    return round(math.exp(-sum(weight / total * math.log(weight / total) for weight in weights)), 2)


WANTED = {
    name: getattr(SelectorSettings(), name) for name in ("fan_in_max", "fan_in_min", "parts_calm", "parts_crowded")
}
"""The settings of the selector that the page explains its answer with."""
