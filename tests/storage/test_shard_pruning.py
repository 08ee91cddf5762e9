"""A condition leaves out only shards that have no row for which it is true."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.protocol.sharded.shard_map import Shard, ShardMap, first_map
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import define_table
from replitree.storage.schema.row_buckets import row_buckets
from replitree.storage.sql import shard_pruning
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter
from replitree.storage.sql.predicate_parser import parse_predicate
from replitree.storage.sql.shard_pruning import buckets_of
from tests.storage.test_predicate import CONDITIONS, Condition, Row, values

TABLE = define_table(
    "t",
    "k bigint not null, i tinyint not null, v double, m decimal(6,2) not null, s string not null, d date not null, "
    "n timestamp_ntz not null, b boolean not null, y binary, r struct<k: bigint>, t timestamp not null",
)
KEYS = (["k"], ["i"], ["m"], ["s"], ["d"], ["n"], ["b"], ["b", "k"], ["s", "d", "i"])
DAY, NOON = dt.date(2018, 1, 2), dt.datetime.fromisoformat("2018-01-01T12:00:00.000001")
ROW: Row = {"k": 1, "i": 2, "m": 1, "s": "a", "d": DAY, "n": NOON, "b": True, "t": NOON.replace(tzinfo=dt.UTC)}


def map_of(key: list[str]) -> ShardMap:
    return first_map(key, {Shard(0): 1, Shard(1): 1, Shard(2): 2}, 4096)


def buckets_with(rows: list[Row], shard_map: ShardMap) -> list[int]:
    """Return the bucket of each row."""
    return row_buckets(conform([{**ROW, **row} for row in rows], TABLE), TABLE, shard_map).tolist() if rows else []


@given(CONDITIONS, st.sampled_from(KEYS), st.lists(st.fixed_dictionaries(values()), min_size=1, max_size=8))
def test_every_row_that_a_condition_wants_is_in_a_bucket_that_is_read(
    condition: Condition, key: list[str], rows: list[Row]
) -> None:
    text, truth = condition
    shard_map = map_of(key)
    read = set(buckets_of(shard_map, parse_predicate(text, TABLE)))
    placed = buckets_with(rows, shard_map)
    assert {bucket for bucket, row in zip(placed, rows, strict=True) if truth(row) is True} <= read


@pytest.mark.parametrize(
    ("text", "key", "rows"),
    [
        ("k = 7", ["k"], [{"k": 7}]),
        ("-7 = K", ["k"], [{"k": -7}]),
        ("k in (1, 2, 3)", ["k"], [{"k": 1}, {"k": 2}, {"k": 3}]),
        ("k in (1, null)", ["k"], [{"k": 1}]),
        ("k = 1 or k = 2", ["k"], [{"k": 1}, {"k": 2}]),
        ("k = 1 and v > 0.5 and not b", ["k"], [{"k": 1}]),
        ("k = 1 and v + 1 > 2", ["k"], [{"k": 1}]),
        ("k <=> 1", ["k"], [{"k": 1}]),
        ("(k = 1 or k = 2) and k in (2, 3)", ["k"], [{"k": 2}]),
        ("k = 1 and s = 'ä'", ["k", "s"], [{"k": 1, "s": "ä"}]),
        ("s in ('', 'b') and k in (1, 2)", ["s", "k"], [{"k": k, "s": s} for k in (1, 2) for s in ("", "b")]),
        ("(k = 1 and s = 'a') or (k = 2 and s = 'b')", ["k", "s"], [{"k": k, "s": s} for k in (1, 2) for s in "ab"]),
        ("i = 5 and d = '2018-01-02'", ["d", "i"], [{"i": 5, "d": DAY}]),
        ("m = 1.5", ["m"], [{"m": Decimal("1.50")}]),
        ("b", ["b"], [{"b": True}]),
        ("n = timestamp'2018-01-01 12:00:00.000001'", ["n"], [{"n": NOON}]),
        ("t = timestamp'2018-01-01 13:00:00.000001+01:00'", ["t"], [{}]),
        ("k = 2.5", ["k"], []),
        ("k = 1 and k = 2", ["k"], []),
        ("k = null", ["k"], []),
        ("false", ["k"], []),
    ],
)
def test_equality_and_in_on_the_whole_key_leave_only_the_buckets_of_these_keys(
    text: str, key: list[str], rows: list[Row]
) -> None:
    shard_map = map_of(key)
    found = buckets_of(shard_map, parse_predicate(text, TABLE))
    assert list(found) == sorted(set(buckets_with(rows, shard_map)))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("k > 1", ["k"]),
        ("k between 3 and 3", ["k"]),
        ("k != 1", ["k"]),
        ("not k = 1", ["k"]),
        ("not (k = 1 and k = 2)", ["k"]),
        ("k = 1 or v > 0.5", ["k"]),
        ("s = 'a'", ["k", "s"]),
        ("k + 0 = 2", ["k"]),
        ("k = i", ["k"]),
        ("k = i and i = 1", ["k"]),
        ("r.k = 1", ["k"]),
        ("k is not null", ["k"]),
        ("s like 'a'", ["s"]),
        ("true", ["k"]),
    ],
)
def test_any_other_condition_leaves_no_bucket_out(text: str, key: list[str]) -> None:
    assert buckets_of(map_of(key), parse_predicate(text, TABLE)) == tuple(range(4096))


def test_no_condition_leaves_no_bucket_out() -> None:
    assert buckets_of(map_of(["k"]), None) == tuple(range(4096))


def test_too_many_keys_are_not_hashed_and_leave_no_bucket_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_pruning, "KEYS_MAX", 6)
    shard_map = map_of(["k", "i"])
    assert len(buckets_of(shard_map, parse_predicate("k in (1, 2, 3) and i in (1, 2)", TABLE))) == 6
    assert len(buckets_of(shard_map, parse_predicate("k in (1, 2, 3) and i in (1, 2, 3)", TABLE))) == 4096


def test_a_read_by_full_key_asks_one_shard() -> None:
    shard_map = map_of(["k"])
    for number in range(50):
        buckets = buckets_of(shard_map, parse_predicate(f"k = {number}", TABLE))
        (owner,) = shard_map.shards_of(buckets)
        assert owner == shard_map.owners[buckets_with([{"k": number}], shard_map)[0]]


def test_a_condition_names_a_key_column_as_readers_see_it() -> None:
    once = apply_alter(TABLE, parse_alter("rename column k to number", TABLE))
    renamed = apply_alter(once, parse_alter("rename column v to k", once))
    shard_map = map_of(["k"])
    assert buckets_of(shard_map, parse_predicate("number = 7", renamed)) == tuple(buckets_with([{"k": 7}], shard_map))
    assert len(buckets_of(shard_map, parse_predicate("k = 7", renamed))) == 4096


def test_a_key_that_the_table_can_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match="rows can't be sharded by 'v'"):
        buckets_of(map_of(["v"]), parse_predicate("v = 1", TABLE))
