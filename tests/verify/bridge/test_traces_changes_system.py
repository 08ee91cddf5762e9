"""A running cluster that mutates, drops, detaches, loses a replica and gives a quorum up is recorded, and has a way."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import ReplitreeError
from replitree_published.bridge.report import bridge_traces
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS = {
    "min_replicated_logs_to_keep": 2,
    "max_replicated_logs_to_keep": 4,
    "clean_log_delay_s": 0.2,
    "clean_log_delay_random_s": 0.1,
}
"""Who is away is lost soon."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed")
    with LocalCluster(
        folder / "c", 3, durable=False, settings={**SETTINGS, "trace": str(folder / "traces")}
    ) as cluster:
        table = cluster.create_table("t", "k bigint not null, p string, n bigint", order_by="k", partition_by="p")
        keys = iter(range(1000))
        for number in range(6):
            insert(table, keys, f"r{1 + number % 3}")
        assert table.update({"n": "n + 1"}, where="k > 2").finished
        assert table.optimize().merges
        assert table.drop_partition("b").removed
        table.add_column("more", "string")
        insert(table, keys, "r1")
        cluster.stop("r3")
        for _ in range(6):
            insert(table, keys, "r2")
        with pytest.raises(ReplitreeError):
            insert(table, keys, "r1", quorum=3, quorum_timeout_s=0.5)
        assert table.delete("k < 4", timeout_s=60.0).finished
        assert table.detach_partition("c").removed
        table.insert({"k": [next(keys)], "p": ["a"]}, overwrite="partitions", replica="r1")
        cluster.start("r3")
        third = table.replica("r3")
        wait_for(lambda: count(third) == count(table.replica("r1")) > 0, "r3 has recovered", 60.0)
        insert(table, keys, "r3")
        assert table.truncate().removed
    return folder / "traces"


EVERYTHING, FIRST_BLOCK = rb"\"block_min\":null,\"block_max\":null", rb"\"block_min\":0,\"block_max\":0"
"""What a drop says of its blocks, as it stands in a line; and what it would say if it removed one block only."""


def insert(table: Table, keys: object, replica: str, **options: object) -> None:
    """Insert a row into each of three partitions."""
    rows = {"k": [next(keys) for _ in range(3)], "p": ["a", "b", "c"]}  # type: ignore[call-overload]
    table.insert(rows, replica=replica, **options)  # type: ignore[arg-type]


def count(table: Table) -> int:
    """Return how many rows a replica shows, -1 while it does not answer."""
    try:
        return int(table.to_arrow(level="linearizable").num_rows)
    except ReplitreeError:
        return -1


def test_everything_that_a_cluster_did_has_a_way(traces: Path) -> None:
    found = bridge_traces(traces)
    assert (found.violations, found.undecided) == ([], "")
    taken = {action.partition(" ")[2] for action in found.taken if action.startswith("replication ")}
    assert taken >= {"Insert", "Mutate", "Drop", "Bring", "LetGo", "Execute", "Mark", "Recover"}


def test_what_a_drop_removes_that_does_not_say_so_has_gone_for_no_reason(traces: Path, tmp_path: Path) -> None:
    changed = 0
    for file in traces.iterdir():
        lines = file.read_bytes().splitlines()
        changed += sum(EVERYTHING in line and b"/log/log-" in line for line in lines)
        (tmp_path / file.name).write_bytes(b"".join(line.replace(EVERYTHING, FIRST_BLOCK) + b"\n" for line in lines))
    assert changed == 3
    what = bridge_traces(tmp_path).violations[0]["what"]
    assert "mended/replication-queues has no way from [" in what
