"""Upserts: which tables and rows they are for; on a real replica, that final reads and merges show the newest row."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.insert.upsert import check_upsert
from replitree.errors import BadInput
from replitree.storage.schema.definition import define_table

SCHEMA = "d date, k bigint not null, v int, s string"


@pytest.mark.parametrize(
    ("policy", "partition_by", "columns", "problem"),
    [
        ("replacing", "", ("k", "s"), None),
        ("replacing(v)", "", ("K", "V"), None),
        ("replacing(v)", "bucket(4, k)", ("k", "v"), None),
        ("replacing(v)", "", ("k", "s"), r"no column 'v'.*the order key \(k\) and the version \(v\)"),
        ("replacing", "", ("v", "s"), "no column 'k'"),
        ("replacing(v)", "month(d)", ("d", "k", "v"), "partitioned by d, which is not in its order key"),
        ("plain", "", ("k",), "has the policy plain"),
        ("summing", "", ("k",), "has the policy summing"),
    ],
)
def test_upsert_is_refused_where_rows_with_equal_keys_would_stay(
    policy: str, partition_by: str, columns: tuple[str, ...], problem: str | None
) -> None:
    definition = define_table("t", SCHEMA, order_by="k", partition_by=partition_by, policy=policy)
    if problem is None:
        check_upsert(definition, columns)
    else:
        with pytest.raises(BadInput, match=problem):
            check_upsert(definition, columns)


@pytest.mark.system
def test_an_upsert_takes_the_place_of_the_rows_with_its_keys(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 1, durable=False) as cluster:
        table = cluster.create_table("t", SCHEMA, order_by="k", policy="replacing(v)")
        table.upsert({"k": [1, 2], "v": [1, 1], "s": ["a", "b"]})
        table.upsert([{"k": 2, "v": 2, "s": "c"}, {"k": 3, "v": 1, "s": "d"}])
        table.upsert({"k": [3], "v": [0], "s": ["older"]})
        expected = {1: "a", 2: "c", 3: "d"}

        def shown(*, final: bool) -> dict[int, str]:
            rows = table.to_arrow(["k", "s"], final=final).to_pylist()
            assert len({row["k"] for row in rows}) == len(rows)
            return {row["k"]: row["s"] for row in rows}

        assert shown(final=True) == expected
        table.optimize(final=True)
        assert shown(final=False) == expected

        marked = cluster.create_table("marked", f"{SCHEMA}, gone boolean", order_by="k", policy="replacing(v, gone)")
        marked.upsert({"k": [1, 2, 3], "v": [1, 1, 1], "s": ["a", "b", "c"]})
        marked.upsert({"k": [1, 2], "v": [3, 3], "gone": [True, True]})
        assert marked.to_arrow(["s"], final=True)["s"].to_pylist() == ["c"]
        assert marked.optimize(final=True).finished
        marked.upsert({"k": [1, 2], "v": [2, 4], "s": ["too old", "again"]})
        assert marked.to_arrow(["s"], final=True)["s"].to_pylist() == ["again", "c"]
        assert marked.delete("gone", final=True).finished
        assert sorted(marked.to_arrow(["k", "v"])["k"].to_pylist()) == [2, 2, 3]

        last = cluster.create_table("last", SCHEMA, order_by="k", policy="replacing")
        for text in ("a", "b", "a"):
            # The third has the content of the first, and is no duplicate of it.
            assert last.upsert({"k": [1], "s": [text]}).outcome == "inserted"
        assert last.to_arrow(["s"], final=True)["s"].to_pylist() == ["a"]
        assert last.upsert({"k": [1], "s": ["b"]}, "token").outcome == "inserted"
        assert last.upsert({"k": [1], "s": ["b"]}, "token").outcome == "duplicate"
        with pytest.raises(BadInput, match="no column 'k'"):
            last.upsert({"s": ["x"]})
