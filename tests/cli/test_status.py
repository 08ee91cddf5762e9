"""`replitree status` of a cluster in which something can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree.client
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Set
from tests.cli.conftest import Run
from tests.client.conftest import FakeCluster

URL = ("--url", "zk://nowhere:1/replitree")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """Make two tables with a replica each."""
    found = FakeCluster(tmp_path / "cluster")
    for name in ("sound", "broken"):
        found.create(name, "k bigint")
        found.add_replica(name, "r1" if name == "sound" else "r2").answers["GET status"] = {"state": "active"}
    monkeypatch.setattr(replitree.client, "connect", lambda _: found.connect())
    yield found
    found.close()


@pytest.mark.parametrize("node", [layout.metadata, layout.columns], ids=["metadata", "columns"])
@pytest.mark.parametrize("value", [b"\x00 not a definition", b'{"format": 99}'], ids=["damaged", "newer"])
def test_table_that_can_not_be_read_is_named_and_the_others_are_shown(
    run: Run, cluster: FakeCluster, node: object, value: bytes
) -> None:
    assert callable(node)
    cluster.commit(Set(node(cluster.catalog.place("broken")), value, ANY_VERSION))
    ran = run("status", *URL)
    assert (ran.status, ran.err) == (1, "")
    assert "table sound: log from" in ran.out
    assert "table broken can't be read: " in ran.out
    as_json = run("status", *URL, "--json")
    assert as_json.status == 1
    assert [table["name"] for table in as_json.json["tables"]] == ["sound"]
    assert [table["name"] for table in as_json.json["unreadable"]] == ["broken"]
    assert run("status", "sound", *URL).status == 0
    named = run("status", "broken", *URL)
    assert (named.status, named.out) == (1, "")
    assert named.err


def test_status_of_tables_that_can_be_read_is_0(run: Run, cluster: FakeCluster) -> None:
    assert len(cluster.catalog.names()) == 2
    ran = run("status", *URL)
    assert (ran.status, "can't be read" in ran.out) == (0, False)
    assert run("status", *URL, "--json").json["unreadable"] == []
