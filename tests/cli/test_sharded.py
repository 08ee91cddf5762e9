"""Commands about sharded tables, against replicas in this process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from tests.cli.conftest import Run, connected
from tests.replica.inprocess import InProcessCluster
from tests.waiting import wait_for

URL = ("--url", "zk://nowhere:1/replitree")
COLUMNS = "k bigint not null, v double"


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path)
    try:
        with connected(cluster, monkeypatch) as made:
            yield made
    finally:
        cluster.close()


def test_a_sharded_table_from_its_creation_to_its_drop(run: Run, connection: Connection, tmp_path: Path) -> None:
    sharding = ("--shard-by", "k", "--shards", "3", "--buckets", "8", "--replicas", "1")
    made = run("table", "create", "d", "--schema", COLUMNS, "--order-by", "k", *sharding, *URL, "--json").json
    assert (made["shard_by"], made["buckets"]) == (["k"], 8)
    assert [(each["name"], each["buckets"], each["replicas"]) for each in made["shards"]] == [
        ("d~0", 3, ["r1"]),
        ("d~1", 3, ["r2"]),
        ("d~2", 2, ["r1"]),
    ]
    assert run("table", "list", *URL, "--json").json == {"tables": ["d"]}
    shown = run("table", "show", "d", *URL)
    assert shown.status == 0
    assert "d~2" in shown.out
    rows = tmp_path / "rows.csv"
    rows.write_text("k,v\n" + "".join(f"{number},0.5\n" for number in range(40)))
    assert run("insert", "d", str(rows), *URL, "--json").json["inserted"] == 40
    assert run("insert", "d", str(rows), *URL, "--json").json["duplicates"] == 40
    assert connection.table("d").scan(level="linearizable").count() == 40
    tag = run("table", "tag", "d", "first", *URL, "--json").json
    assert (tag["rows"], "@" in tag["cut"]) == (40, True)
    listed = run("table", "tags", "d", *URL)
    assert ("first" in listed.out, tag["cut"] in listed.out.replace("\n", "")) == (True, True)
    assert run("table", "delete-tag", "d", "first", *URL, "--json").json == {"table": "d", "deleted": "first"}
    assert "40 rows" in run("table", "freeze", "d", "before", "--note", "nightly", *URL).out
    frozen = run("table", "frozen", "d", *URL, "--json").json["frozen"]
    assert sorted((each["shard"], each["name"], each["note"]) for each in frozen) == [
        (f"d~{number}", "before", "nightly") for number in range(3)
    ]
    assert "(d~2)" in run("table", "frozen", "d", *URL).out
    assert run("table", "remove-frozen", "d", "gone", *URL, "--yes").status == 2
    removed = run("table", "remove-frozen", "d", "before", *URL, "--yes", "--json").json
    assert removed == {"table": "d", "removed": "before", "replica": "every replica"}
    # Each shard has one replica, which has taken its rows.
    assert run("table", "pause-merges", "d", *URL).out.strip() == "merges of d paused on r1, r2"
    assert run("table", "resume-merges", "d", *URL).status == 0
    placed = run("table", "place", "d", "--shard", "1", "--on", "r1,r2", *URL, "--json").json
    assert {"shard": 1, "replicas": ["r1", "r2"]} in placed["placement"]
    assert {each["name"] for each in run("status", *URL, "--json").json["tables"]} == {"d~0", "d~1", "d~2"}
    assert [each["name"] for each in run("status", "d~1", *URL, "--json").json["tables"]] == ["d~1"]
    (entry,) = run("table", "log", "d", *URL, "--json").json["entries"]
    assert (entry["kind"], entry["rows"], len(entry["shards"]), "@" in entry["cut"]) == ("get", 40, 3, True)
    assert run("table", "log", "d", *URL).status == 0
    refused = run("table", "freeze", "d", "now", "--replica", "r1", *URL)
    assert refused.status != 0
    assert "is sharded, and a sharded table can't be used at one replica" in refused.err.replace("\n", " ")
    assert run("table", "detach", "d", "all", *URL, "--json").json["removed"] == 3
    parts = {each["name"] for each in run("table", "detached", "d", *URL, "--json").json["detached"]}
    first, second, third = sorted(parts)
    assert f"of {first} attached to d" in run("table", "attach", "d", first, *URL).out
    assert run("table", "attach", "d", second, *URL, "--json").json["outcome"] == "inserted"
    assert run("table", "remove-detached", "d", third, "--yes", *URL, "--json").json["removed"] == third
    assert run("table", "detached", "d", *URL, "--json").json["detached"] == []
    assert run("table", "drop", "d~1", "--yes", *URL).status != 0
    assert run("table", "drop", "d", "--yes", *URL).status == 0
    assert run("table", "list", *URL, "--json").json == {"tables": []}


def test_a_sharded_table_moves_to_a_store_and_is_looked_at(run: Run, connection: Connection, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/objects"
    table = connection.create_table("d", COLUMNS, order_by="k", shard_by="k", shards=2, buckets=8, wait_replicas=2)
    table.insert({"k": list(range(40)), "v": [0.5] * 40})
    moved = run("table", "storage", "d", url, *URL)
    assert moved.status == 0
    assert "storage changed; its parts move there one by one" in moved.out
    shown = run("table", "storage", "d", *URL, "--json").json
    assert shown["storage"] == url
    assert sorted(shown["replicas"]) == ["d~0 r1", "d~0 r2", "d~1 r1", "d~1 r2"]

    def has_moved() -> bool:
        checked = run("fsck", "d", "--grace", "0", *URL, "--json")
        return checked.status == 0 and checked.json["shares"] == 2

    wait_for(has_moved, "both shards are in the store", 60.0)
    # The advice of a finding names its shard.
    assert run("fsck", "d~1", "--grace", "0", *URL, "--json").json["table"] == "d~1"


def test_a_file_takes_the_place_of_a_sharded_table_and_a_cut_is_restored(
    run: Run, connection: Connection, tmp_path: Path
) -> None:
    table = connection.create_table("d", COLUMNS, order_by="k", shard_by="k", shards=2, buckets=8)
    assert isinstance(table, ShardedTable)
    table.insert({"k": list(range(40)), "v": [0.5] * 40})
    cut, file = table.snapshot().cut, tmp_path / "rows.csv"
    file.write_text("k,v\n7,1.5\n", "utf-8")
    done = run("insert", "d", str(file), "--overwrite", "all", *URL, "--json").json
    assert (done["inserted"], done["index"]) == (1, None)
    # Another connection has written: only a linearizable read promises to see that.
    assert table.to_arrow(level="linearizable").to_pylist() == [{"k": 7, "v": 1.5}]
    restored = run("table", "restore-to", "d", str(cut), "--yes", *URL, "--json").json
    assert (restored["rows"], restored["outcome"]) == (40, "inserted")
    assert sorted(table.to_arrow(level="linearizable")["k"].to_pylist()) == list(range(40))


def test_shards_need_a_key(run: Run, connection: Connection) -> None:
    refused = run("table", "create", "d", "--schema", COLUMNS, "--shards", "2", *URL)
    assert refused.status != 0
    assert "shard_by" in refused.err
    assert connection.tables() == ()


def test_duckdb_asks_a_sharded_table_at_a_level_and_at_a_cut(run: Run, connection: Connection) -> None:
    table = connection.create_table("d", COLUMNS, order_by="k", shard_by="k", shards=2, buckets=8)
    assert isinstance(table, ShardedTable)
    table.insert({"k": list(range(40)), "v": [0.5] * 40})
    cut = table.snapshot().cut
    table.insert({"k": list(range(40, 60)), "v": [0.5] * 20})
    query = ("sql", "select count(*) as n, max(k) as k from d", "--engine", "duckdb", "--json", *URL)

    def sees_all(*asked: str) -> bool:
        return bool(run(*asked).json["rows"] == [{"n": 60, "k": 59}])

    assert sees_all(*query, "--level", "linearizable")
    assert run(*query, "--as-of", f"d={cut}").json["rows"] == [{"n": 40, "k": 39}]
    for level in ((), ("--level", "consistent"), ("--level", "eventual")):
        # A replica that is behind may be asked.
        wait_for(partial(sees_all, *query, *level))
    refused = run(*query, "--level", "sequential")
    assert refused.status != 0
    assert "use eventual, consistent, linearizable" in refused.err.replace("\n", " ")
    refused = run(*query, "--as-of", "41")
    assert "each shard has a log of its own" in refused.err.replace("\n", " ")


def test_a_sharded_table_is_changed_by_commands_and_statements(
    run: Run, connection: Connection, tmp_path: Path
) -> None:
    sharding = ("--shard-by", "k", "--partition-by", "truncate(10, k)")
    assert run("table", "create", "d", "--schema", COLUMNS, "--order-by", "k", *sharding, *URL).status == 0
    connection.table("d").insert({"k": list(range(30)), "v": [0.5] * 30})
    altered = run("table", "alter", "d", "ADD COLUMN w bigint DEFAULT 7", *URL, "--json").json
    assert (altered["schema_version"], altered["finished"]) == (2, True)
    assert altered["shards"] == [{"shard": "d~0", "index": 1}, {"shard": "d~1", "index": 1}]
    updated = run("sql", "UPDATE d SET w = 8 WHERE k >= 20", "--id", "mine", *URL)
    assert (updated.status, "(command mine)" in updated.out) == (0, True)
    assert run("sql", "DELETE FROM d WHERE k < 5", *URL).status == 0
    assert run("sql", "ALTER TABLE d RENAME COLUMN v TO value", *URL).status == 0
    found = connection.table("d").to_arrow(level="linearizable").sort_by("k")
    assert found.schema.names == ["k", "value", "w"]
    assert found["w"].to_pylist() == [7] * 15 + [8] * 10
    listed = run("table", "mutations", "d", *URL, "--json").json["mutations"]
    assert {each["finished"] for each in listed} == {True}
    assert "mine" in run("table", "mutations", "d", *URL).out
    assert run("table", "kill-mutation", "d", "mine", *URL, "--json").json["killed"] == 0
    assert [each["partition"] for each in run("table", "partitions", "d", *URL, "--json").json["partitions"]] == [
        "0",
        "10",
        "20",
    ]
    assert run("table", "drop-partition", "d", "10", "--yes", *URL).status == 0
    assert run("table", "keep", "d", "2 days", *URL).status == 0
    assert connection.table("d").scan(level="linearizable").count() == 15
    assert run("sql", "TRUNCATE TABLE d", *URL).status == 0
    assert connection.table("d").scan(level="linearizable").count() == 0


def test_shards_are_added_emptied_and_given_buckets(run: Run, connection: Connection) -> None:
    table = connection.create_table("d", COLUMNS, order_by="k", shard_by="k", buckets=16)
    table.insert(pa.table({"k": range(200), "v": [0.5] * 200}))
    added = run("shard", "add", "d", *URL, "--json").json
    assert [(each["shard"], each["buckets"]) for each in added["shards"]] == [(0, 6), (1, 5), (2, 5)]
    assert (added["moves"], added["rows_on_their_way"]) == ([], 0)
    planned = run("shard", "rebalance", "d", "--weight", "2=2", "--dry-run", *URL, "--json").json
    assert {each["to"] for each in planned["moves"]} == {2}
    assert "what would move" in run("shard", "remove", "d", "--shard", "2", "--dry-run", *URL).out
    begun = run("shard", "move", "d", "--buckets", "0-2,4", "--to", "2", "--no-wait", *URL, "--json").json
    assert begun["moves"] == [{"from": 0, "to": 2, "buckets": [0, 1, 2, 4]}]
    told = run("shard", "status", "d", *URL).out.replace("\n", " ")
    assert "4 buckets move, 0 rows (0 B) have arrived, the last progress was" in told
    told = run("status", *URL).out.replace("\n", " ")
    assert "sharded table d: 4 buckets to move (0 → 2: 4), 0 rows (0 B) have arrived, the last progress was" in told
    for names in ((), ("d",), ("d~1",)):
        (moving,) = run("status", *names, *URL, "--json").json["moving"]
        assert moving["idle_s"] >= 0
        assert (moving["name"], moving["moves"]) == ("d", [{"source": 0, "target": 2, "buckets": 4}])
    refused = run("shard", "resume", "d", "--config", "server.toml", *URL)
    assert "give the configuration of a server, or name a cluster, not both" in refused.err.replace("\n", " ")
    refused = run("shard", "rebalance", "d", *URL)
    assert refused.status != 0
    assert "move already" in refused.err.replace("\n", " ")
    assert run("shard", "back", "d", "--no-wait", *URL, "--json").json["moves"][0]["from"] == 2
    assert run("shard", "resume", "d", *URL, "--json").json["moves"] == []
    emptied = run("shard", "remove", "d", "--shard", "2", "--keep", *URL, "--json").json
    assert [(each["weight"], each["buckets"]) for each in emptied["shards"]] == [(1, 8), (1, 8), (0, 0)]
    assert "nothing moves" in run("shard", "status", "d", *URL).out
    for _ in range(2):
        removed = run("shard", "remove", "d", "--shard", "2", *URL, "--json").json
        assert [(each["weight"], each["buckets"]) for each in removed["shards"]] == [(1, 8), (1, 8)]
        assert removed["left"] == []
    assert table.scan().count() == 200
    refused = run("shard", "remove", "d", "--shard", "3", *URL)
    assert refused.status != 0
    assert "table 'd' has no shard 3" in refused.err.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("move", "d", "--buckets", "1-x", "--to", "1"), "expected numbers and ranges"),
        (("rebalance", "d", "--weight", "2"), "expected a shard and its weight"),
        (("status", "d"), "does not exist, or is not sharded"),
    ],
)
def test_what_is_no_shard_command_is_refused(
    run: Run, connection: Connection, arguments: tuple[str, ...], problem: str
) -> None:
    assert connection.tables() == ()
    refused = run("shard", *arguments, *URL)
    assert refused.status != 0
    assert problem in refused.err.replace("\n", " ")


def test_changes_of_a_sharded_table_are_read_behind_a_cut(run: Run, connection: Connection) -> None:
    sharding = ("--shard-by", "k", "--shards", "2", "--buckets", "8", "--feed", "24h")
    run("table", "create", "d", "--schema", COLUMNS, "--order-by", "k", *sharding, *URL)
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    start = table.cut_now("linearizable")
    table.insert({"k": [1, 2, 3], "v": [0.5] * 3})
    found = run("table", "changes", "d", start, "--where", "k < 3", *URL, "--json").json
    assert found["from"] == start
    assert sorted((row["_change_type"], row["k"]) for row in found["rows"]) == [("insert", 1), ("insert", 2)]
    refused = run("table", "changes", "d", "7", *URL)
    assert refused.status != 0
    assert "Give a time, a tag, or a cut" in refused.err.replace("\n", " ")
