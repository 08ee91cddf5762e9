"""`replitree table tag|tags|delete-tag`: what they ask for and print, against replicas in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree.client
from tests.cli.conftest import Run
from tests.replica.inprocess import InProcessCluster, rows

URL = ("--url", "zk://nowhere:1/replitree")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    found = InProcessCluster(tmp_path, 1)
    found.create_table()
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


def test_tags_are_made_listed_and_deleted(run: Run, cluster: InProcessCluster) -> None:
    assert run("table", "tags", "t", *URL, "--json").json == {"table": "t", "tags": []}
    cluster.nodes[0].insert(rows(0))
    ran = run("table", "tag", "t", "before-load", *URL)
    assert (ran.status, ran.out.strip()) == (0, "tag before-load: version 1 of t, 10 rows")
    again = run("table", "tag", "t", "same", "--as-of", "before-load", *URL, "--json").json
    assert (again["table"], again["name"], again["index"], again["rows"]) == ("t", "same", 1, 10)
    assert run("table", "tag", "t", "empty", "--as-of", "0", *URL, "--json").json["parts"] == 0
    listed = run("table", "tags", "t", *URL, "--json").json["tags"]
    assert [(tag["name"], tag["index"], tag["parts"]) for tag in listed] == [
        ("empty", 0, 0),
        ("before-load", 1, 1),
        ("same", 1, 1),
    ]
    assert "before-load" in run("table", "tags", "t", *URL).out
    cluster.nodes[0].insert(rows(100))
    ran = run("table", "restore-to", "t", "before-load", "--yes", *URL)
    assert (ran.status, ran.out.strip()) == (0, "t is what it was at before-load: 10 rows")
    cluster.wait_equal(list(range(10)))
    assert run("table", "restore-to", "t", "0", "--yes", *URL, "--json").json["rows"] == 0
    assert run("table", "delete-tag", "t", "same", *URL).out.strip() == "tag same of t deleted"
    assert len(run("table", "tags", "t", *URL, "--json").json["tags"]) == 2


def test_wrong_tags_are_refused(run: Run, cluster: InProcessCluster) -> None:
    assert cluster.nodes
    ran = run("table", "delete-tag", "t", "a", *URL)
    assert (ran.status, "no tag 'a'; it has none" in ran.err) == (2, True)
    ran = run("table", "tag", "t", "7", *URL)
    assert (ran.status, "can't be a tag's name" in ran.err) == (2, True)
    ran = run("table", "tag", "t", "a", "--as-of", "b", *URL)
    assert (ran.status, "no tag 'b'" in ran.err) == (2, True)
