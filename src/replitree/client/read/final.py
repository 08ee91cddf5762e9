"""Final reads: which parts must be read together so that a table's policy sees all rows with equal keys.

Rows with equal keys meet only inside a partition.  So one partition is read at a time, all of its parts side by side, the
earlier block first, and the condition is applied to what the policy leaves.

A partition may be cut into ranges of the order key, for several tasks: rows with equal keys stay together.

A part may be left out only when that can't bring an older row back: by its order key, for whatever replaces a row has the
same key; never by another column, unless the policy is plain.  A partition is left out when none of its parts can match.

Absent on purpose: the policies themselves (`replitree.storage.rewrite.merge_reduce`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from replitree.protocol.core.parts import parse_part
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.key_range import KeyRange
from replitree.storage.rewrite.merge import final_batches
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.sql.expression import wanted_rows
from replitree.storage.sql.predicate import Predicate


class NamedPart(Protocol):
    """A part with its manifest."""

    @property
    def part(self) -> str:
        """Its name."""

    @property
    def manifest(self) -> PartManifest:
        """What it holds."""


_Part = TypeVar("_Part", bound=NamedPart)


def final_groups(
    parts: Iterable[_Part], definition: TableDefinition, predicate: Predicate | None
) -> Iterator[tuple[_Part, ...]]:
    """Give the parts that a final read needs, one partition at a time, each in the order of its blocks.

    Parameters
    ----------
    parts
        Of one snapshot.
    definition
        The table.
    predicate
        Which rows are wanted.
    """
    ordered = sorted(parts, key=lambda part: parse_part(part.part))
    for _, found in groupby(ordered, key=lambda part: parse_part(part.part).partition):
        group = tuple(found)
        if predicate is None:
            yield group
            continue
        matching = tuple(part for part in group if predicate.may_match(part.manifest))
        by_key = definition.policy == PLAIN or set(predicate.columns) <= set(definition.order_by)
        if matching:
            yield matching if by_key else group


def final_batches_of(
    parts: Sequence[Path | CheckedPart],
    definition: TableDefinition,
    columns: Sequence[str] | None,
    predicate: Predicate | None,
    key_range: KeyRange | None = None,
    *,
    deletions: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read one group of `final_groups` on this machine: the rows that the policy leaves and the condition keeps.

    Parameters
    ----------
    parts
        In their order, or their folders.
    definition
        The table.
    columns
        Names, in the order wanted; all by default.
    predicate
        Which rows are wanted.
    key_range
        Only rows in it; all by default.
    deletions
        Whether to return rows that say that their key is deleted, too.

    Raises
    ------
    BadInput
        A column is unknown.
    CorruptPart, StoreError
        A part can't be read.
    """
    names = [column.name for column in definition.selected(columns)]
    needed = list(dict.fromkeys([*names, *(predicate.columns if predicate else ())]))
    for batch in final_batches(parts, definition, needed, key_range=key_range, deletions=deletions):
        kept = batch if predicate is None else wanted_rows(predicate, batch)
        if kept.num_rows:
            yield kept.select(names)
