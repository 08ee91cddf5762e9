"""A connection that records writes down what its tables are asked and answer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.recorded import RecordedTable
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, TooManyParts
from replitree.wire.history_format import Operation
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.reading import read_files
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import Failure

ROWS = {"k": [1, 2], "s": ["a", None]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def connection(cluster: FakeCluster, file: Path) -> Connection:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    cluster.create("unordered", "k bigint not null, s string")
    cluster.add_replica("t", "r1")
    cluster.add_replica("unordered", "r1")
    access = Access("zk://nowhere:1/replitree", TOKEN)
    return Connection(access, lambda: MemoryCoordination(cluster.tree), recorder=Recorder(file, name="c"))


def recorded(file: Path) -> list[Operation]:
    """What is in the file."""
    history = read_files([file])
    return [history.operation(number) for number in range(len(history))]


def test_an_insert_is_recorded_with_its_rows_and_its_answer(connection: Connection, file: Path) -> None:
    table = connection.table("t")
    assert isinstance(table, RecordedTable)
    table.insert(ROWS, token="a")
    table.insert(pa.table({"k": pa.array([5, 6, 7], pa.int64()), "s": ["x", "y", "z"]}), replica="r1")
    table.insert([{"k": 9, "s": None}])
    one, two, three = recorded(file)
    assert (one.kind, one.table, one.rows, one.token, one.index, one.outcome) == (
        "insert",
        "t",
        ((1, 2),),
        "a",
        0,
        "ok",
    )
    assert (two.rows, two.replica) == (((5, 7),), "r1")
    assert three.rows == ((9, 9),)
    connection.close()


def test_an_insert_that_is_refused_is_recorded_as_failed(
    connection: Connection, cluster: FakeCluster, file: Path
) -> None:
    for replica in cluster.replicas.values():
        replica.script.append(Failure(429, "TooManyParts"))  # which is not asked again: no time decides
    with pytest.raises(TooManyParts):
        connection.table("t").insert(ROWS)
    assert [each.outcome for each in recorded(file)] == ["failed"]


def test_rows_without_a_number_can_not_be_recorded(connection: Connection, file: Path) -> None:
    with pytest.raises(BadInput, match="rows of unordered have no number: record with Recorder"):
        connection.table("unordered").insert(ROWS)
    table = connection.table("t")
    for data in ({"s": ["a"]}, {"k": [1, 1]}, {"k": [-1]}, {"k": [None]}):
        with pytest.raises(BadInput, match="number"):
            table.insert(data)
    with pytest.raises(BadInput, match="takes rows that can be read twice"):
        table.insert(pa.RecordBatchReader.from_batches(table.schema, []))
    with pytest.raises(BadInput, match="overwrite without recording"):
        table.insert(ROWS, overwrite="all")
    assert recorded(file) == []


@pytest.mark.parametrize("number", [-1, 2**62])
def test_numbers_that_no_history_has_are_refused_with_table_column_and_number(
    connection: Connection, cluster: FakeCluster, number: int
) -> None:
    with pytest.raises(BadInput, match=rf"column k of table t has {number}; .* from 0 to"):
        connection.table("t").insert({"k": [1, number], "s": ["a", "b"]})
    with pytest.raises(BadInput, match=r"column k of table t .* 7 is there twice"):
        connection.table("t").insert({"k": [7, 7], "s": ["a", "b"]})
    assert all(not replica.seen for replica in cluster.replicas.values())
    connection.close()
