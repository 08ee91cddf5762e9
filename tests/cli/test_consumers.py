"""`replitree consumers list|create|move|drop`: what they ask for and print, against replicas in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from tests.cli.conftest import Run, connected
from tests.replica.inprocess import NOWHERE, SCHEMA, InProcessCluster, rows

URL = ("--url", NOWHERE)


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path, 1)
    cluster.create_table()

    with connected(cluster, monkeypatch) as made:
        made.table("t").set_feed("24h")
        yield made
    cluster.close()


def test_consumers_are_made_listed_moved_and_dropped(run: Run, connection: Connection) -> None:
    assert run("consumers", "list", "t", *URL, "--json").json == {"table": "t", "consumers": []}
    ran = run("consumers", "create", "t", "etl", "--hold", "36h", "--bytes-max", "1000000", *URL)
    assert (ran.status, ran.out.strip()) == (0, "consumer etl of t begins at 1")
    connection.table("t").insert(rows(0))
    # The command has a connection of its own, which reads at the level eventual: the replica must show the insert.
    assert connection.table("t").to_arrow(level="linearizable").num_rows == 10
    changes = run("table", "changes", "t", "--consumer", "etl", *URL, "--json").json
    assert (changes["from"], changes["to"], len(changes["rows"])) == (1, 2, 10)
    again = run("consumers", "create", "t", "copy", "--from", "snapshot", *URL, "--json").json
    assert (again["table"], again["name"], again["index"], again["snapshot"]) == ("t", "copy", 2, 2)
    assert run("consumers", "create", "t", "old", "--from", "0", *URL, "--json").json["index"] == 0
    ran = run("consumers", "move", "t", "etl", "2", *URL)
    assert (ran.status, ran.out.strip()) == (0, "consumer etl of t stands at 2")
    listed = run("consumers", "list", "t", *URL, "--json").json["consumers"]
    assert [(each["name"], each["index"], each["expired"]) for each in listed] == [
        *(("copy", 2, ""), ("etl", 2, ""), ("old", 0, ""))
    ]
    shown = run("consumers", "list", "t", *URL).out
    assert all(text in shown for text in ("36.0 h", "snapshot first", "holds"))
    ran = run("consumers", "drop", "t", "etl", "--yes", *URL)
    assert (ran.status, ran.out.strip()) == (0, "consumer etl of t dropped")
    assert len(run("consumers", "list", "t", *URL, "--json").json["consumers"]) == 2


def test_wrong_consumers_are_refused(run: Run, connection: Connection) -> None:
    connection.table("t").create_consumer("etl")
    for arguments, message in (
        (("drop", "t", "a", "--yes"), "no consumer 'a'; it has etl"),
        (("move", "t", "etl", "0"), "stands at 1 and was not moved back to 0"),
        (("create", "t", "etl"), "there is a consumer 'etl' already, which stands at 1"),
        (("create", "t", "7"), "can't be a consumer's name"),
        (("create", "t", "b", "--hold", "soon"), "hold is a number with a unit"),
        (("create", "t", "b", "--from", "-5"), "can't begin at -5: the log goes from 0 to 1"),
        (("create", "t", "b", "--from", "9"), "can't begin at 9: the log goes from 0 to 1"),
    ):
        ran = run("consumers", *arguments, *URL)
        assert (ran.status, message in ran.err) == (2, True), ran.err


def test_consumers_of_a_sharded_table_stand_at_cuts(run: Run, connection: Connection) -> None:
    table = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", shards=2, buckets=8, feed="24h")
    made = run("consumers", "create", "d", "etl", *URL, "--json").json
    table.insert(rows(0))
    # The command has a connection of its own: the replica must show the insert.
    assert table.to_arrow(level="linearizable").num_rows == 10
    changes = run("table", "changes", "d", "--consumer", "etl", *URL, "--json").json
    assert (changes["from"], len(changes["rows"])) == (made["cut"], 10)
    ran = run("consumers", "move", "d", "etl", changes["to"], *URL)
    assert (ran.status, ran.out.strip()) == (0, f"consumer etl of d stands at {changes['to']}")
    listed = run("consumers", "list", "d", *URL, "--json").json["consumers"]
    assert [(each["name"], each["cut"], each["expired"]) for each in listed] == [("etl", changes["to"], "")]
    ran = run("consumers", "move", "d", "etl", made["cut"], *URL)
    assert (ran.status, "was not moved back" in ran.err) == (2, True)
    assert run("consumers", "drop", "d", "etl", "--yes", *URL).status == 0
