"""`replitree view create|list|backfill|drop`: what they ask for and print, against replicas in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.errors import BadInput
from tests.cli.conftest import Run, connected
from tests.replica.inprocess import NOWHERE, SCHEMA, InProcessCluster, rows

URL = ("--url", NOWHERE)


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path, 1)
    cluster.create_table("t", incarnation="a1")
    cluster.create_table("counts", "s string, n bigint", incarnation="b1", order_by=["s"], policy="summing(n)")

    with connected(cluster, monkeypatch) as made:
        yield made
    cluster.close()


def test_a_view_is_created_listed_filled_and_dropped(run: Run, connection: Connection) -> None:
    table, counts = connection.table("t"), connection.table("counts")
    table.insert(rows(0))
    chosen = ("--select", "s", "--select", "n=count(*)", "--group-by", "s")
    made = run("view", "create", "t", "v", "counts", *chosen, *URL, "--json")
    assert (made.status, made.json["index"], made.json["backfilled"]) == (0, 1, True)
    assert counts.to_arrow(level="linearizable").num_rows == 10
    (listed,) = run("view", "list", "t", *URL, "--json").json["views"]
    assert (listed["name"], listed["select"], listed["is_filled"]) == ("v", {"s": "s", "n": "count(*)"}, True)
    assert "s=s, n=count(*)" in run("view", "list", "t", *URL).out
    assert "yes" not in run("view", "list", "t", *URL).out
    assert "it was filled before" in run("view", "backfill", "t", "v", *URL).out
    assert table.insert(rows(10)).outcome == "inserted"
    assert counts.to_arrow(level="linearizable").num_rows == 20
    with pytest.raises(BadInput, match="is the target of materialised views of t"):
        connection.drop_table("counts")
    assert run("view", "drop", "t", "v", "--yes", *URL).status == 0
    assert run("view", "list", "t", *URL).out == "materialised views of t: none\n"
    failed = run("view", "drop", "t", "v", "--yes", *URL)
    assert (failed.status, "has no materialised view 'v'; it has none" in failed.err) == (2, True)
    assert [entry.kind for entry in table.history(limit=9)].count("view") == 2
    connection.drop_table("counts")


def test_an_open_backfill_is_told_until_it_is_done(run: Run, connection: Connection) -> None:
    table = connection.table("t")
    table.insert(rows(0))
    table.create_view("v", "counts", {"s": "s", "n": "count(*)"}, group_by="s", backfill=False)
    assert connection.status().tables[1].open_backfills == ()
    table.drop_view("v")
    table._command(  # noqa: SLF001 - a creation whose client ends before the backfill
        "views", {"name": "w", "target": "counts", "select": {"s": "s"}, "backfill": True}, None, 10.0
    )
    assert connection.status().tables[1].open_backfills == ("w",)
    assert "yes" in run("view", "list", "t", *URL).out
    assert "the backfill of materialised view w is open" in run("status", *URL).out
    assert "backfill-open" in {finding["code"] for finding in run("doctor", *URL, "--json").json["findings"]}
    assert "10 rows were inserted" in run("view", "backfill", "t", "w", *URL).out
    assert connection.status().tables[1].open_backfills == ()


def test_a_command_on_a_view_is_repeated_with_its_id_and_refused_without(run: Run, connection: Connection) -> None:
    made = ("view", "create", "t", "v", "counts", "--select", "s", "--no-backfill", *URL)
    dropped = ("view", "drop", "t", "v", "--yes", *URL)
    assert [run(*made, "--id", "c1").status for _ in range(2)] == [0, 0]
    again = run(*made, "--json")
    assert (again.status, again.error["error"]) == (2, "BadInput"), again.err
    assert [run(*dropped, "--id", "d1").status for _ in range(2)] == [0, 0]
    gone = run(*dropped, "--id", "d2")
    assert (gone.status, "has no materialised view 'v'" in gone.err) == (2, True)
    nowhere = run("view", "create", "t", "v", "nope", "--select", "s", *URL)
    assert (nowhere.status, "table 'nope' does not exist" in nowhere.err) == (1, True)


def test_a_view_of_a_sharded_table_is_created_listed_filled_and_dropped(run: Run, connection: Connection) -> None:
    source = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=4)
    sums = connection.create_table("sums", "k bigint not null, n bigint", order_by="k", shard_by="k", shards=1)
    source.insert(rows(0, 20))
    chosen = ("--select", "k=k % 2", "--select", "n=count(*)", "--group-by", "k")
    made = run("view", "create", "d", "v", "sums", *chosen, *URL, "--json")
    assert (made.status, made.json["backfilled"]) == (0, True), made.err
    assert sums.to_arrow(level="linearizable").sort_by("k").to_pylist() == [{"k": 0, "n": 10}, {"k": 1, "n": 10}]
    (listed,) = run("view", "list", "d", *URL, "--json").json["views"]
    assert (listed["name"], listed["target"], listed["is_filled"]) == ("v", "sums", True)
    assert "it was filled before" in run("view", "backfill", "d", "v", *URL).out
    failed = run("table", "drop", "sums", "--yes", *URL)
    assert (failed.status, "is the target of materialised views of d" in failed.err) == (2, True)
    assert run("view", "drop", "d", "v", "--yes", *URL).status == 0
    assert run("view", "list", "d", *URL).out == "materialised views of d: none\n"
