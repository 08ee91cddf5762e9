"""The files that a statement wrote of a sharded table: which shard gets which rows.

Spark knows a part by its name and its shard's number (`labelled`).  A task has written the rows that each part has afterwards,
in whatever shard they belong now.  A file whose rows all stay in their shard goes there as it is; of another one the rows are
written anew, for each shard by itself.

Absent on purpose: what becomes of the files in each shard (`replitree.storage.rewrite.row_level`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from replitree import private
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.storage.parts.adopt import file_batches
from replitree.storage.rewrite.slices import cut
from replitree.storage.rewrite.staging import stage_slices
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.row_buckets import shard_key, split_by_shard


@dataclass(slots=True)
class ShardFiles:
    """The files of one shard: those with the rows that each of its parts has afterwards, and those with new rows."""

    files: dict[str, list[Path]] = field(default_factory=dict)
    new: list[Path] = field(default_factory=list)


def labelled(shard: int, part: str) -> str:
    """Return what Spark calls a part of a sharded table.

    >>> labelled(1, "2024~01_0_3_1"), unlabelled("1~2024~01_0_3_1")
    ('1~2024~01_0_3_1', (1, '2024~01_0_3_1'))
    """
    return f"{shard}~{part}"


def unlabelled(label: str) -> tuple[Shard, str]:
    """Return the shard and the name of a part."""
    shard, _, part = label.partition("~")
    return Shard(int(shard)), part


def by_shard(
    definition: TableDefinition,
    shard_map: ShardMap,
    files: Mapping[str, Sequence[Path]],
    new: Sequence[Path],
    folder: Path,
) -> dict[Shard, ShardFiles]:
    """Give each shard the files with its rows.

    Parameters
    ----------
    definition, shard_map
        The sharded table, and which shard has which rows.
    files, new
        By their labels the files with the rows that each part has afterwards, and those with new rows.
    folder
        Where rows are written anew; a new one.

    Raises
    ------
    SchemaMismatch, BadInput
        The rows are not such as the table may have.
    StoreError
        The disk is full or failing.
    """
    private.make_folder(folder)
    stored, numbers = definition.stored, count()
    keys = [column.name for column in shard_key(stored, shard_map.key)]
    found = {shard: ShardFiles() for shard in shard_map.shards}

    def give(path: Path, home: tuple[Shard, str] | None) -> None:
        shards = _shards_in(path, stored, keys, shard_map)
        if len(shards) > 1 or (home is not None and shards != {home[0]}):
            pieces = _written_by_shard(path, stored, shard_map, folder / f"{next(numbers)}")
        else:
            pieces = {shard: [path] for shard in shards}
        for shard, some in pieces.items():
            stays = home is not None and shard == home[0]
            (found[shard].files[home[1]] if stays and home is not None else found[shard].new).extend(some)

    for label, some in files.items():
        home = unlabelled(label)
        # Also of a part that has no rows left.
        found[home[0]].files[home[1]] = []
        for path in some:
            give(path, home)
    for path in new:
        give(path, None)
    return found


def _shards_in(path: Path, stored: TableDefinition, keys: Sequence[str], shard_map: ShardMap) -> set[Shard]:
    """Return the shards of the rows in a file; only the columns of the shard key are read."""
    schema, shards = pa.schema([stored.arrow_schema.field(name) for name in keys]), set[Shard]()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(keys)):
            rows = pa.Table.from_batches([batch]).select(list(keys)).cast(schema)
            shards |= {each.shard for each in split_by_shard(rows, stored, shard_map)}
    return shards


def _written_by_shard(
    path: Path, stored: TableDefinition, shard_map: ShardMap, folder: Path
) -> dict[Shard, list[Path]]:
    """Write the rows of a file anew, those of each shard into a folder beside `folder`, which is not made."""
    rows = pa.Table.from_batches(file_batches(path, stored), stored.arrow_schema)
    found: dict[Shard, list[Path]] = {}
    for each in split_by_shard(rows, stored, shard_map):
        own = folder.with_name(f"{folder.name}-{each.shard}")
        made = stage_slices(cut(each.rows, stored), stored, own, sync=False)
        found[each.shard] = [own / manifest.partition / file.name for manifest in made for file in manifest.files]
    return found


__all__ = ["ShardFiles", "by_shard", "labelled", "unlabelled"]
