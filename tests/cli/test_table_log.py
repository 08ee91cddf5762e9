"""`replitree table log`: what it prints of a table with a log of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree.client
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Delete, LogIndex, Set, Version
from replitree.protocol.core.log import encode_log
from replitree.wire.remembered import Earlier, Remembered, Summary
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


def test_entries_of_which_little_is_kept_say_so(run: Run, cluster: FakeCluster) -> None:
    cluster.insert_in_log("t", BlockId("t-0"))
    place = cluster.catalog.place("t")
    cluster.commit(Delete(layout.log_entry(place, LogIndex(0)), Version(0)))
    cluster.commit(Set(layout.log(place), encode_log(place, LogIndex(1)), Version(0)))
    statement = '{"format":1,"kind":"delete","where":"k = 1"}'
    cluster.add_replica("t", "r1").answers["GET earlier"] = Earlier(
        (Remembered(0, 1_764_210_600_250, Summary("mutate", "r2", text=statement)),)
    )
    ran = run("table", "log", "t", *URL)
    assert (ran.status, ran.err) == (0, "")
    assert "DELETE FROM t WHERE k = 1" in ran.out
    assert "2025-11-27 02:30:00.250" in ran.out
    cluster.replicas["r1"].answers["GET earlier"] = Earlier((Remembered(0),))
    ran = run("table", "log", "t", *URL)
    assert "not kept any more" in ran.out
    assert ran.out.count("unknown") == 2
    (entry,) = run("table", "log", "t", *URL, "--json").json["entries"]
    assert (entry["index"], entry["time"], entry["kind"], entry["rows"]) == (0, None, "unknown", None)
