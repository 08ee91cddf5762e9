"""The condition that finds the rows of some buckets, as SQL."""

from __future__ import annotations

from collections.abc import Sequence

from replitree.protocol.sharded.shard_map import BucketRun, ShardMap
from replitree.storage.files.names import format_name
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.row_buckets import shard_key


def bucket_condition(definition: TableDefinition, shard_map: ShardMap, runs: Sequence[BucketRun]) -> str:
    """Return the condition that is true exactly for the rows of some buckets, in Spark's dialect.

    Parameters
    ----------
    definition, shard_map
        The sharded table, or one of its shards, and its map.
    runs
        The buckets, one at least.

    Raises
    ------
    BadInput
        The key has a column that no key can have.
    """
    assert runs
    key, count = (
        ", ".join(format_name(column.name) for column in shard_key(definition, shard_map.key)),
        shard_map.buckets,
    )
    # The remainder of a negative number is negative in SQL; a bucket is not.
    bucket = f"(xxhash64({key}) % {count} + {count}) % {count}"
    return " OR ".join(f"{bucket} BETWEEN {run.first} AND {run.first + run.buckets - 1}" for run in runs)
