"""Sums over the parts of a table with many of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.replica.table import report
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.manifest import PartManifest
from tests.replica.inprocess import InProcessCluster, rows


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcessCluster:
    """One replica whose every reading of manifests counts as slow."""
    monkeypatch.setattr(report, "QUICK_S", -1.0)
    made = InProcessCluster(tmp_path, 1, check_interval_s=0.0)
    made.create_table()
    return made


def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that gets the name of each part whose manifest is read from now on."""
    read, known = list[str](), report.manifest_if_there

    def note(table: TableReplica, part: str) -> PartManifest | None:
        read.append(part)
        return known(table, part)

    monkeypatch.setattr(report, "manifest_if_there", note)
    return read


def test_only_manifests_of_new_parts_are_read_and_sums_are_right(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = cluster.nodes
    read = readings(monkeypatch)
    # The readings of the first status are used for as long as the test takes.
    monkeypatch.setattr(report, "REST", 1e9)

    def status() -> tuple[int, int]:
        found = node.get("status")
        return found["parts"], found["rows"]

    assert status() == (0, 0)
    for number in range(3):
        assert node.insert(rows(10 * number))[0] == 200
        cluster.wait_alike()
        assert status() == (number + 1, 10 * (number + 1))
    assert read == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert status() == (3, 30), "nothing has changed"
    with cluster.connect() as connection:
        connection.table("t").optimize()
        connection.table("t").delete("k = 3")
    cluster.wait_alike()
    assert status() == (1, 29)
    assert read[3:] == ["all_0_2_1_4"], "a merged and mutated part is read once, its sources no more"
    cluster.close()


def test_all_manifests_are_read_again_when_the_rest_is_over(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = cluster.nodes
    node.insert(rows(0))
    cluster.wait_alike()
    read = readings(monkeypatch)
    monkeypatch.setattr(report, "REST", 0.0)
    for _ in range(3):
        assert node.get("status")["store_bytes"] == 0
    assert read == ["all_0_0_0"] * 3
    cluster.close()
