"""`replitree table changes`: what it prints, against a replica in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, connected
from tests.replica.inprocess import InProcessCluster, rows

URL = ("--url", "zk://nowhere:1/replitree")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    found = InProcessCluster(tmp_path, 1)
    found.shared.now_ms = int(1_000 * time.time())
    found.create_table(feed="1d")
    with connected(found, monkeypatch):
        yield found
    found.close()


def test_changes_are_printed_for_people_and_programs(run: Run, cluster: InProcessCluster) -> None:
    cluster.nodes[0].insert(rows(0, 2))
    cluster.nodes[0].post("drop", {"all": True})
    found = run("table", "changes", "t", "0", "2", "--columns", "k", *URL, "--json").json
    assert (found["table"], found["from"], found["to"]) == ("t", 0, 2)
    assert [(row["_commit_version"], row["_change_type"], row["k"]) for row in found["rows"]] == [
        (0, "insert", 0),
        (0, "insert", 1),
        (1, "delete", 0),
        (1, "delete", 1),
    ]
    shown = run("table", "changes", "t", "1", "--where", "k > 0", *URL).out
    assert "changes of t from 1 up to 2: 1 rows" in shown
    assert "delete" in shown


def test_wrong_ranges_are_refused(run: Run, cluster: InProcessCluster) -> None:
    assert cluster.nodes
    ran = run("table", "changes", "t", "5", *URL)
    assert (ran.status, "the log ends at 0" in ran.err) == (2, True)
    ran = run("table", "changes", "t", "5", "2", *URL)
    assert (ran.status, "not from 5 to 2" in ran.err) == (2, True)
