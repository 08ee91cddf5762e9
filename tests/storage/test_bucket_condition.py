"""The condition that finds rows by their bucket."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from replitree.errors import BadInput
from replitree.protocol.sharded.shard_map import Bucket, BucketRun, Shard, first_map
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.row_buckets import row_buckets
from replitree.storage.sql.bucket_condition import bucket_condition
from replitree.storage.sql.expression import condition_values
from replitree.storage.sql.mutation import delete_where
from replitree.storage.sql.predicate_parser import parse_predicate

SCHEMA = "`a b` bigint not null, s string not null, d date not null, n decimal(9,2) not null, v double, x string"


def definition_of(schema: str = SCHEMA) -> TableDefinition:
    return define_table("t", schema, order_by="s")


def rows() -> pa.RecordBatch:
    count = 500
    day = dt.date(2026, 11, 30)
    return pa.RecordBatch.from_pydict(
        {
            "a b": pa.array(range(-250, 250), pa.int64()),
            "s": pa.array([f"größe {at}" for at in range(count)]),
            "d": pa.array([day + dt.timedelta(at) for at in range(count)]),
            "n": pa.array([Decimal(at - 250) / 4 for at in range(count)], pa.decimal128(9, 2)),
        }
    )


@pytest.mark.parametrize("key", [("a b",), ("s",), ("d", "a b"), ("n", "s")])
def test_the_condition_finds_the_rows_of_the_buckets_and_no_others(key: tuple[str, ...]) -> None:
    definition, shard_map = definition_of(), first_map(key, {Shard(0): 1}, 16)
    text = bucket_condition(definition, shard_map, [BucketRun(Bucket(2), 3), BucketRun(Bucket(9), 1)])
    batch = rows()
    found = condition_values(parse_predicate(text, definition), batch).to_pylist()
    buckets = row_buckets(pa.Table.from_batches([batch]), definition, shard_map)
    assert found == np.isin(buckets, [2, 3, 4, 9]).tolist()
    assert delete_where(text, definition).where == text


@pytest.mark.parametrize("call", ["xxhash64()", "xxhash64(v)", "xxhash64(x)", "xxhash64(`a b` + 1)", "xxhash64(3)"])
def test_only_columns_that_a_table_can_be_sharded_by_are_hashed(call: str) -> None:
    with pytest.raises(BadInput, match="xxhash64 takes columns"):
        parse_predicate(f"{call} = 1", definition_of())
