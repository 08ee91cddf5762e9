"""`replitree streams list|drop`: what they ask for and print, against replicas in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.client.insert.terms import Terms
from replitree.errors import BadInput, StreamReplaced
from replitree.wire.sent_batch import SentBatch
from tests.cli.conftest import Run, connected
from tests.replica.inprocess import NOWHERE, InProcessCluster, rows

URL = ("--url", NOWHERE)


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    cluster = InProcessCluster(tmp_path, 1)
    cluster.create_table()

    with connected(cluster, monkeypatch) as made:
        yield made
    cluster.close()


def test_streams_are_listed_and_forgotten(run: Run, connection: Connection) -> None:
    table = connection.table("t")
    assert run("streams", "list", "t", *URL, "--json").json == {"table": "t", "streams": []}
    assert run("streams", "list", "t", *URL).out == "streams of t: none\n"
    for version, expected in ((3, "inserted"), (3, "duplicate"), (2, "duplicate"), (4, "inserted")):
        assert table.insert(rows(10 * version), txn_app_id="etl/1", txn_version=version).outcome == expected
    (listed,) = run("streams", "list", "t", *URL, "--json").json["streams"]
    assert (listed["id"], listed["query"], listed["batch"]) == ("etl/1", "", 4)
    assert "batch writes" in run("streams", "list", "t", *URL).out
    assert [entry.ids for entry in table.history(limit=9)].count(("batch 4 of stream etl/1",)) == 1
    ran = run("streams", "drop", "t", "etl/1", "--yes", *URL)
    assert (ran.status, ran.out.strip()) == (0, "t has forgotten stream etl/1")
    ran = run("streams", "drop", "t", "etl/1", "--yes", *URL)
    assert (ran.status, "no stream 'etl/1'; it has none" in ran.err) == (2, True)
    assert table.insert(rows(40), txn_app_id="etl/1", txn_version=4).outcome == "inserted"


def test_a_stream_of_a_query_takes_no_batch_write(connection: Connection) -> None:
    table = connection.table("t")
    with pytest.raises(BadInput, match="give both"):
        table.insert(rows(0), txn_app_id="a")
    with pytest.raises(BadInput, match="leave token and deduplicate out"):
        table.insert(rows(0), "token", txn_app_id="a", txn_version=1)
    table.insert_on_terms(rows(0), Terms(None, batch=SentBatch("a", 7, "q")))
    with pytest.raises(StreamReplaced, match="belongs to query q, whose last batch is 7") as refused:
        table.insert(rows(0), txn_app_id="a", txn_version=1)
    assert (refused.value.stream, refused.value.query, refused.value.batch) == ("a", "q", 7)
