"""A recorded sharded table: what is written down of joint inserts and of reads at cuts, and how that is judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.client.connection import Connection
from replitree.client.recorded_shards import RecordedShardedTable
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import parse_cut
from replitree.wire.history_format import Operation, encode_header, encode_line
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import NOWHERE, SCHEMA, TOKEN, InProcessCluster, rows

cluster, _ = cluster_and_connection()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def table(cluster: InProcessCluster, file: Path) -> Iterator[RecordedShardedTable]:
    recorder = Recorder(file, name="c")
    access = Access(NOWHERE, TOKEN)
    with Connection(access, lambda: MemoryCoordination(cluster.shared), recorder=recorder) as connection:
        made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
        assert isinstance(made, RecordedShardedTable)
        yield made
        connection.drop_table("d")


def recorded(file: Path) -> list[Operation]:
    history = read_files([file])
    return [history.operation(number) for number in range(len(history))]


def test_joint_inserts_and_reads_at_cuts_are_recorded_and_found_fine(table: RecordedShardedTable, file: Path) -> None:
    table.insert(rows(0), token="a")
    table.insert(rows(10), token="b", quorum=2, quorum_timeout_s=20.0)
    assert table.to_arrow().num_rows == 20
    assert table.to_arrow(["k"], level="linearizable").num_rows == 20
    with table.snapshot() as snapshot:
        assert snapshot.cut is not None
        assert table.to_arrow(as_of=snapshot.cut).num_rows == 20
        at = parse_cut(snapshot.cut).zxid + 1
    one, two, three, four, five = recorded(file)
    assert [(each.kind, each.outcome, each.rows, each.token, each.quorum) for each in (one, two)] == [
        ("insert", "ok", ((0, 9),), "a", 1),
        ("insert", "ok", ((10, 19),), "b", 2),
    ]
    assert [each.level for each in (three, four, five)] == ["sequential", "linearizable", "as_of"]
    assert {each.rows for each in (three, four, five)} == {((0, 19),)}
    assert three.index is not None
    assert four.index is not None
    assert three.index < four.index
    assert five.index == at
    assert check(read_files([file])).fine


def test_reads_that_leave_rows_out_and_eventual_ones_are_done_and_not_recorded(
    table: RecordedShardedTable, file: Path
) -> None:
    table.insert(rows(0))
    assert table.to_arrow(where="k < 3").num_rows == 3
    assert table.to_arrow(["v"]).num_rows == 10
    table.to_arrow(level="eventual")
    assert len(recorded(file)) == 1
    assert table.insert(rows(0).slice(0, 0)).outcome == "empty"
    assert len(recorded(file)) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"k": [1, 1], "v": [0.5, 0.5], "s": ["a", "a"]}, "1 is there twice"),
        ({"k": [-1], "v": [0.5], "s": ["a"]}, "has -1"),
        ({"v": [0.5], "s": ["a"]}, "no column k"),
        (iter([{"k": 1}]), "can be read twice"),
    ],
)
def test_rows_that_no_history_can_name_are_not_inserted(table: RecordedShardedTable, data: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        table.insert(data)
    assert table.to_arrow().num_rows == 0


def of_one_shard(table: RecordedShardedTable) -> list[int]:
    """The keys that the first shard has."""
    with table.snapshot(level="eventual") as snapshot:
        return list(snapshot.shards[0].to_arrow(["k"]).column("k").to_pylist())


def without(operation: Operation, gone: set[int]) -> Operation:
    left = [each for first, last in operation.rows for each in range(first, last + 1) if each not in gone]
    return msgspec.structs.replace(operation, rows=tuple((each, each) for each in left))


@pytest.mark.parametrize(
    ("level", "what", "anomaly"),
    [
        ("consistent", "half of a joint insert", "torn_insert"),
        ("linearizable", "half of a joint insert", "torn_insert"),
        ("linearizable", "an acknowledged insert", "stale_read"),
        ("consistent", "what it has shown before", "nonmonotonic_read"),
    ],
)
def test_an_observer_that_misses_rows_is_judged(
    table: RecordedShardedTable, file: Path, level: str, what: str, anomaly: str
) -> None:
    table.insert(rows(0), token="a")
    table.to_arrow(level="consistent")
    table.to_arrow(level=level)
    told, half = recorded(file), set(of_one_shard(table))
    assert 0 < len(half) < 10
    told[-1] = without(told[-1], half if what.startswith("half") else set(range(10)))
    told[-1] = msgspec.structs.replace(told[-1], index=None)
    changed = file.with_suffix(".changed")
    changed.write_bytes(encode_header("clock") + b"".join(map(encode_line, told)))
    assert anomaly in {each.name for each in check(read_files([changed])).anomalies}
