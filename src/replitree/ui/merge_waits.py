"""Why the parts of a partition are not merged yet, as the leader's selector sees them.

The page asks the selector that ships (`replitree.protocol.propose.select_merges`) about the parts that a replica shows, so the
answer is what a leader with the default settings decides.  What keeps parts from being free (an open quorum, a merge that
runs) is in the status of the replicas, and the browser says that first.

Absent on purpose: parts that the leader lacks, limits of its configuration, and its free slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from replitree.protocol.core.parts import Part
from replitree.protocol.propose.select_merges import MergeCandidate, SelectorSettings, select_merges

PARTITIONS_MAX = 200
"""Partitions of which the answer tells, those with the most parts."""


def candidates_of(columns: Mapping[str, Any], born_ms: Mapping[Part, int], now_ms: int) -> tuple[MergeCandidate, ...]:
    """Return the parts of `columns_of` as the selector sees them, ascending.

    Parameters
    ----------
    columns
        Partitions and columns of parts, as the browser gets them.
    born_ms
        When a part came into being, in milliseconds since 1970, as far as the log tells; any other part is new.
    now_ms
        The time of the answer.
    """
    numbers = (columns[name] for name in ("partition", "min", "max", "level", "mutation", "rows", "bytes"))
    found = []
    for partition, block_min, block_max, level, mutation, rows, size in zip(*numbers, strict=True):
        part = Part(columns["partitions"][partition], block_min, block_max, level, mutation)
        found.append(MergeCandidate(part, rows, size, max(0, now_ms - born_ms.get(part, now_ms)) // 1000))
    return tuple(sorted(found, key=lambda each: each.part))


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
