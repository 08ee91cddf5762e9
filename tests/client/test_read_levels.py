"""Read levels as a program sees them: real replicas in this process, of which one lags; and what its history says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.connection import Connection
from replitree.client.insert.terms import Written
from replitree.client.read.read_options import ReadOptions
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import SharedTree
from replitree.errors import BadInput, CoordinationUnavailable, ReplicaBehind, SnapshotExpired
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children
from replitree.protocol.core.layout import TablePlace
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, wait_for
from tests.replica.lagging import LaggingCoordination

SHORT_S = 0.3
"""A time limit that is meant to be reached, in seconds."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`, whose sessions can lag."""
    shared = SharedTree()
    cluster = InProcessCluster(tmp_path, connect=lambda: LaggingCoordination(shared))
    cluster.create_table(schema="k bigint not null")
    election = layout.leader_election(TablePlace(layout.table_path(ROOT, "t")))
    wait_for(lambda: len(cluster.admin.perform(Children(election)) or ()) == 2, "both stand for leader")
    yield cluster
    cluster.close()


@pytest.fixture
def connect(cluster: InProcessCluster) -> Iterator[Callable[..., Table]]:
    """Connect anew, with a memory of one's own; return the table."""
    opened: list[Connection] = []

    def open_table(recorder: Recorder | None = None) -> Table:
        access = Access("zk://nowhere:1/replitree", TOKEN)
        opened.append(Connection(access, lambda: LaggingCoordination(cluster.admin.shared), recorder=recorder))
        return opened[-1].table("t")

    yield open_table
    for connection in opened:
        connection.close()


def keys(table: Table, **options: Any) -> list[int]:
    """The rows that a read shows."""
    found: list[int] = table.to_arrow(**options).column("k").to_pylist()
    return sorted(found)


def test_another_client_sees_at_once_what_was_acknowledged(
    cluster: InProcessCluster, connect: Callable[..., Table]
) -> None:
    writer, reader = connect(), connect()
    cluster.nodes[1].coordination.lag()
    writer.insert({"k": [1, 2]}, replica="r1")
    at_second = reader.replica("r2")
    assert keys(at_second) == []
    assert keys(at_second, level="sequential") == []
    assert keys(at_second, level="linearizable") == [1, 2]
    assert keys(reader, level="linearizable", columns=["k"], where="k > 1") == [2]
    assert [batch.num_rows for batch in reader.batches(level="linearizable")] == [2]


def test_a_client_that_changes_replicas_never_goes_backwards(
    cluster: InProcessCluster, connect: Callable[..., Table]
) -> None:
    writer, reader = connect(), connect()
    cluster.nodes[1].coordination.suspend()
    writer.insert({"k": [1]}, replica="r1")
    assert keys(reader.replica("r1"), level="linearizable") == [1]
    for level in ("sequential", "linearizable"):
        begun = time.monotonic()
        with pytest.raises((ReplicaBehind, CoordinationUnavailable)):
            keys(reader.replica("r2"), level=level, timeout_s=SHORT_S)
        assert time.monotonic() - begun < 3
    assert keys(connect().replica("r2"), level="sequential") == []  # who has seen nothing may
    cluster.nodes[1].coordination.resume()
    assert keys(reader.replica("r2"), level="sequential") == [1]


def test_the_index_of_an_insert_is_waited_for_by_any_client_at_any_replica(
    cluster: InProcessCluster, connect: Callable[..., Table]
) -> None:
    index = connect().insert({"k": [1]}, replica="r1").index
    for level in (None, "sequential", "linearizable"):
        assert keys(connect().replica("r2"), min_index=index, level=level) == [1]
    with pytest.raises(ReplicaBehind, match=r"the read needs it up to 42: .* \(0.3 s were given\)"):
        connect().to_arrow(min_index=41, timeout_s=SHORT_S)


def test_a_replica_that_can_not_answer_is_left_for_one_that_can(
    cluster: InProcessCluster, connect: Callable[..., Table]
) -> None:
    table = connect()
    table.insert({"k": [1]}, replica="r1")
    assert keys(table.replica("r2"), level="linearizable") == [1]
    for node, other in ((0, 1), (1, 0)):
        cluster.nodes[node].coordination.suspend()
        assert keys(table, level="linearizable") == [1]
        assert table.snapshot(level="linearizable").replica == cluster.nodes[other].name
        cluster.nodes[node].coordination.resume()


def test_as_of_is_what_it_was_and_says_when_that_is_gone(
    cluster: InProcessCluster, connect: Callable[..., Table]
) -> None:
    table = connect()
    for number in range(3):
        table.insert({"k": [number]}, replica="r1")
    assert [keys(table.replica("r1"), as_of=index) for index in range(4)] == [[], [0], [0, 1], [0, 1, 2]]
    # Without the version log only what came since the start is known.
    cluster.nodes[0].stop()
    for file in (cluster.nodes[0].table().store.root / "versions").iterdir():
        file.unlink()
    cluster.nodes[0].restart()
    wait_for(lambda: cluster.is_active(cluster.nodes[0]), "active again")
    with pytest.raises(SnapshotExpired, match="the first version that it knows is 3"):
        table.replica("r1").to_arrow(as_of=1)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"level": "exact"}, "level 'exact' is unknown: use eventual, sequential, linearizable"),
        ({"level": "linearizable", "as_of": 3}, "as_of says exactly what is included: give it or level, not both"),
        ({"min_index": 1, "as_of": 3}, "give it or min_index, not both"),
        ({"as_of": -1}, "0 or above, not -1"),
        ({"timeout_s": -1.0}, "a time limit is a number of seconds, not -1"),
    ],
)
def test_what_can_not_be_asked_for_is_refused(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        ReadOptions(**wrong)


def test_a_request_says_what_was_seen_and_written() -> None:
    written = Written()
    assert ReadOptions().query(written) == "min_index=0"
    assert ReadOptions("sequential").query(written) == "level=sequential&min_index=0&seen=0"
    written.add(4)
    written.add_mutation(6)
    assert ReadOptions("linearizable").query(written) == "level=linearizable&min_index=7&seen=0"
    written.saw(12)
    written.saw(9)
    assert ReadOptions("sequential").query(written) == "level=sequential&min_index=7&seen=12"
    assert ReadOptions("sequential", min_index=-1).query(written) == "level=sequential&min_index=7&seen=12"
    assert ReadOptions("sequential", min_index=20).query(written) == "level=sequential&min_index=21&seen=12"
    assert ReadOptions().query(written) == "min_index=5&mutated=6"
    assert ReadOptions(as_of=3, lease_s=5).query(written) == "as_of=3&lease_s=5"


def test_a_request_has_the_condition_unless_it_is_long() -> None:
    written = Written()
    where = "p = 'a&b' and k > 1"
    assert (
        ReadOptions(where=where).query(written, 3)
        == "min_index=0&where=p%20%3D%20%27a%26b%27%20and%20k%20%3E%201&columns=3"
    )
    assert ReadOptions(where=f"k in ({'1, ' * 1_000}2)").query(written, 3) == "min_index=0"
    assert ReadOptions(where=where, final=True).query(written, 3) == "min_index=0"


def test_a_strict_request_waits_for_the_end_of_a_quorum() -> None:
    written = Written()
    written.add(4, settled=9)
    written.add(5, settled=7)
    assert ReadOptions("sequential").query(written) == "level=sequential&min_index=10&seen=0"
    assert ReadOptions().query(written) == "min_index=6"


# --- histories ---------------------------------------------------------------------------------------------------------------


def test_a_history_with_levels_is_judged_by_them(
    cluster: InProcessCluster, connect: Callable[..., Table], tmp_path: Path
) -> None:
    file = tmp_path / "history.jsonl"
    table = connect(Recorder(file))
    for number in range(4):
        cluster.nodes[1].coordination.lag()
        table.insert({"k": [number]}, replica="r1")
        for replica in ("r2", "r1"):
            at = table.replica(replica)
            assert keys(at, level="linearizable") == keys(at, level="sequential") == list(range(number + 1))
    assert keys(table, as_of=2) == [0, 1]
    history = read_files([file])
    levels = {history.operation(number).level for number in range(len(history))}
    assert levels == {None, "linearizable", "sequential", "as_of"}
    verdict = check(history)
    assert verdict.fine, verdict.anomalies[:1]
    assert (verdict.inserts, verdict.reads) == (4, 17)


def test_a_read_that_did_not_keep_its_level_is_found(
    cluster: InProcessCluster, connect: Callable[..., Table], tmp_path: Path
) -> None:
    file = tmp_path / "history.jsonl"
    recorder = Recorder(file)
    writer, reader = connect(recorder), connect()
    cluster.nodes[1].coordination.lag()
    writer.insert({"k": [1]}, replica="r1")
    with recorder.read("t", "linearizable") as asked:  # as a replica would that does not ask where the log ends
        asked.show(keys(reader.replica("r2"), level="sequential"), replica="r2")
    verdict = check(read_files([file]))
    assert [anomaly.name for anomaly in verdict.anomalies] == ["stale_read"]
    assert check(read_files([file]), "eventual").fine
