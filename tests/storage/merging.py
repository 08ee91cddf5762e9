"""Parts to merge: what the tests of merges begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from replitree.storage.parts.encode import stage_table
from replitree.storage.rewrite.merge_order import sort_runs
from replitree.storage.rewrite.merge_reduce import reducer_of
from replitree.storage.schema.definition import TableDefinition


def stage_all(tables: Sequence[pa.Table], definition: TableDefinition, folder: Path) -> list[Path]:
    """Each table as a part of one partition, in its own folder."""
    folder.mkdir(exist_ok=True)
    parts = []
    for number, table in enumerate(tables):
        (manifest,) = stage_table(table, definition, folder / f"s{number}", sync=False)
        parts.append(folder / f"s{number}" / manifest.partition)
    return parts


def final_rows(tables: Sequence[pa.Table], definition: TableDefinition) -> pa.Table:
    """The rows that a merge of all parts of a partition has, from the rows of the parts in the order of their blocks."""
    rows = sort_runs(pa.concat_tables([definition.arrow_schema.empty_table(), *tables]), definition.order_by)
    reducer = reducer_of(definition)
    return rows if reducer is None else pa.concat_tables([reducer.reduce(rows), reducer.finish()])
