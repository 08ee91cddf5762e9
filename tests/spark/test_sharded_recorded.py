"""Jobs of Spark into a sharded table are written down in a history; without a session."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from replitree.client.connection import Connection
from replitree.errors import BadInput
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.reading import read_files
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import rows
from tests.spark.test_sharded import create, job, planner_of, writing

cluster, connection = cluster_and_connection()


def test_the_history_of_a_recorded_job_has_the_rows_of_all_shards(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    create(planner_of(connection, monkeypatch))
    file = tmp_path / "history.jsonl"
    with closing(Recorder(file)), writing(connection, monkeypatch):
        for _ in range(2):
            job([rows(0, 50), rows(50, 50)], inserttoken="one", record=str(file))
        with pytest.raises(BadInput, match="each once; one is there twice"):
            job([rows(200, 5), rows(200, 5)], record=str(file))
        with pytest.raises(BadInput, match="an absolute path"):
            job([rows(300, 5)], record="history.jsonl")
    history = read_files([file])
    inserts = [history.operation(number) for number in range(len(history))]
    assert {(each.kind, each.table, each.outcome, each.rows, each.token) for each in inserts} == {
        ("insert", "d", "ok", ((0, 99),), "one")
    }
    # Of a table whose shards have logs of their own there is no position in a log.
    assert {each.index for each in inserts} == {None}
    assert connection.table("d").scan().count() == 100
