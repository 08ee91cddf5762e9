"""`replitree table log`: what it prints of a table with a log of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree.client
from replitree.protocol.core.effects import BlockId
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster

URL = ("--url", "zk://nowhere:1/replitree")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    found = FakeCluster(tmp_path / "cluster")
    found.create("t", "k bigint")
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


def test_log_is_shown_newest_first_and_as_far_as_its_limit(run: Run, cluster: FakeCluster) -> None:
    for number in range(3):
        cluster.tree.now_ms = 1_764_210_600_250 + number * 1000
        cluster.insert_in_log("t", BlockId(f"t-{number}"))
    ran = run("table", "log", "t", *URL, "--limit", "2")
    assert (ran.status, ran.err) == (0, "")
    # Each commit moves the clock of coordination on by one millisecond.
    assert ran.out.index("2025-11-27 02:30:02.251") < ran.out.index("2025-11-27 02:30:01.251")
    assert "02:30:00" not in ran.out
    entries = run("table", "log", "t", *URL, "--json").json["entries"]
    assert [(each["index"], each["ids"], each["rows"]) for each in entries] == [
        (2, ["t-2"], 1),
        (1, ["t-1"], 1),
        (0, ["t-0"], 1),
    ]
    assert entries[2]["time"] == "2025-11-27T02:30:00.251000Z"


def test_log_of_a_table_without_entries_or_of_none(run: Run, cluster: FakeCluster) -> None:
    assert cluster.catalog.names() == ("t",)
    assert run("table", "log", "t", *URL, "--json").json == {"table": "t", "entries": []}
    assert run("table", "log", "t", *URL).status == 0
    assert "'nothing' does not exist" in run("table", "log", "nothing", *URL).err
    assert run("table", "log", "t", *URL, "--limit", "0").status == 2
