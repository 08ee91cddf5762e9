"""Units of final reads: partitions, or ranges of the order key of large ones, each merged by itself in one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from replitree.client.read.final import final_batches_of
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.key_range import KeyRange, ranges_of_files
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.predicate_parser import parse_predicate

TASK_BYTES = 128 << 20
"""Bytes of data files that one task merges, when there are more than the cores can take at once."""

RANGES_MAX = 256
"""Ranges into which a partition is cut at most."""

U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class FinalUnit:
    """A unit that can be merged by itself: a partition, or a range of the order key of one.

    Attributes
    ----------
    parts
        On this machine, in the order of their blocks.
    key_range
        Which rows; None: all.
    bytes
        About how much there is to read.
    """

    parts: tuple[CheckedPart, ...]
    key_range: KeyRange | None
    bytes: int


def cut_group(parts: Sequence[CheckedPart], definition: TableDefinition) -> Iterator[FinalUnit]:
    """Cut one group of `replitree.client.read.final.final_groups` into units of about `TASK_BYTES`.

    Parameters
    ----------
    parts
        Of the group, on this machine.
    """
    size = sum(part.manifest.bytes for part in parts)
    ranges = ranges_of_files(
        [file for part in parts for file in part.files], definition, min(RANGES_MAX, -(-size // TASK_BYTES))
    )
    sent = tuple(CheckedPart(part.folder, part.manifest) for part in parts)
    for key_range in ranges:
        yield FinalUnit(sent, key_range, size // len(ranges))


def pack(units: Sequence[U], sizes: Sequence[int], tasks: int) -> list[list[U]]:
    """Distribute units over at most `tasks` tasks of about equal size; no task is empty."""
    packed: list[list[U]] = [[] for _ in range(min(tasks, len(units)))]
    loads = [0] * len(packed)
    for number in sorted(range(len(units)), key=lambda i: (-sizes[i], i)):
        lightest = loads.index(min(loads))
        packed[lightest].append(units[number])
        loads[lightest] += sizes[number]
    return packed


def read_units(
    units: Iterable[FinalUnit], definition: TableDefinition, columns: Sequence[str], where: str | None
) -> Iterator[pa.RecordBatch]:
    """Merge units, and give the rows that the policy leaves and the condition keeps; parameters as `final_df`."""
    predicate = parse_predicate(where, definition) if where else None
    for unit in units:
        yield from final_batches_of(unit.parts, definition, columns, predicate, unit.key_range)


__all__ = ["TASK_BYTES", "FinalUnit", "cut_group", "pack", "read_units"]
