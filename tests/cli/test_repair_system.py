"""The doctor and the repairs against real processes: whoever follows the advice has a cluster that is well."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.cluster import LocalCluster
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Applied, Commit, Set
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.table import LOST
from tests.cli.conftest import Ran, Run
from tests.coordination.waiting import patient_session
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two replicas and a table with two rows."""
    with LocalCluster(tmp_path / "data", 2, durable=False) as made:
        made.create_table("events", "id bigint not null", order_by="id").insert({"id": [1, 2]})
        yield made


@pytest.fixture
def ask(run: Run, cluster: LocalCluster) -> Run:
    """Run a command against the cluster."""
    return lambda *arguments: run(*arguments, "--dir", str(cluster.folder))


def findings(ran: Ran) -> dict[str, dict[str, Any]]:
    """What the doctor found, by code."""
    return {finding["code"]: finding for finding in ran.json["findings"]}


def finds(ask: Run, code: str) -> Callable[[], dict[str, Any] | None]:
    return lambda: findings(ask("doctor", "--json")).get(code)


def is_well(ask: Run) -> Callable[[], bool]:
    return lambda: ask("doctor").status == 0


def mark_lost(cluster: LocalCluster, *names: str) -> None:
    place = cluster.catalog.place("events")
    with LocalSession(cluster) as perform:
        marks = (Set(layout.is_lost(Replica(place, name)), LOST, ANY_VERSION) for name in names)
        assert isinstance(perform(Commit(*marks)), Applied)


class LocalSession:
    """A coordination session of the test's own."""

    def __init__(self, cluster: LocalCluster) -> None:

        self._session = patient_session(cluster.access.url)

    def __enter__(self) -> Callable[[Commit], Any]:
        return self._session.perform

    def __exit__(self, *_: object) -> None:
        self._session.close()


def test_a_killed_replica_is_told_then_dropped_then_welcome_again(cluster: LocalCluster, ask: Run) -> None:
    wait_for(is_well(ask))
    cluster.kill("r2")
    assert ask("doctor").status == 1
    away = wait_for(finds(ask, "inactive"))  # when its session has ended
    assert (away["replica"], away["severity"]) == ("r2", "warning")
    cluster.table("events").insert({"id": [3]})
    cluster.table("events").insert({"id": [4]})
    assert "2 entries of events behind" in findings(ask("doctor", "--json"))["inactive"]["text"]
    assert ask("drop-replica", "events", "r1", "--yes").status == 2  # it lives
    assert "say --yes" in ask("drop-replica", "events", "r2").err
    command = shlex.split(away["advice"].rpartition("replitree ")[2])
    assert ask(*command).status == 0
    assert "r2" not in ask("status", "events").out
    cluster.start("r2")
    wait_for(lambda: [r["rows"] for r in ask("status", "events", "--json").json["tables"][0]["replicas"]] == [4, 4])
    wait_for(is_well(ask))


def test_when_all_replicas_are_lost_the_advice_leads_back(cluster: LocalCluster, ask: Run) -> None:
    for name in cluster.names:
        cluster.kill(name)
    wait_for(lambda: not any(replica.active for replica in cluster.catalog.replicas("events")))
    mark_lost(cluster, "r1", "r2")
    assert "r1 is marked lost" in ask("status").out
    ran = ask("doctor", "--json")
    assert ran.status == 2
    lost = findings(ran)["all-lost"]
    assert ask("drop-replica", "events", "r1", "--yes").status == 2
    command = lost["advice"].rpartition("replitree ")[2].partition(";")[0]
    assert ask(*shlex.split(command)).status == 0
    for name in cluster.names:
        cluster.start(name)
    wait_for(is_well(ask))
    assert cluster.table("events").to_arrow()["id"].to_pylist() == [1, 2]


def test_check_finds_a_broken_part_and_it_is_fetched_again(cluster: LocalCluster, ask: Run) -> None:
    wait_for(is_well(ask))
    assert ask("check", "events").status == 0
    (file,) = (cluster.folder / "r2" / "data" / "tables").glob("events-*/parts/all_0_0_0/data-0.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ran = ask("check", "--json")
    assert ran.status == 1
    assert [(each["replica"], [part["part"] for part in each["broken"]]) for each in ran.json["checks"]] == [
        ("r1", []),
        ("r2", ["all_0_0_0"]),
    ]
    wait_for(lambda: ask("check", "events", "--replica", "r2").status == 0)
    assert file.read_bytes() == content
    wait_for(is_well(ask))


def test_wrong_names_are_told_with_the_right_ones_and_no_zookeeper_is_critical(cluster: LocalCluster, ask: Run) -> None:
    assert "it has r1, r2" in ask("drop-replica", "events", "r9", "--yes").err
    assert "it has r1, r2" in ask("recover", "events", "--from", "r9", "--yes").err
    assert "does not exist" in ask("drop-replica", "nowhere", "r1", "--yes").err
    assert "does not exist" in ask("check", "nowhere").err
    refused = ask("recover", "events", "--from", "r1", "--yes")
    assert refused.status == 2
    assert "is good" in refused.err
    assert cluster.zookeeper is not None
    cluster.zookeeper.stop()
    ran = ask("doctor", "--json")
    assert ran.status == 2
    assert set(findings(ran)) == {"coordination-unreachable"}
