"""A replica that is dropped and joins again from elsewhere, while the process that it was stands still: real processes."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from replitree.client.cluster import TOKEN_FILE, LocalCluster
from replitree.client.table import Table
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from tests.coordination.waiting import patient_session, place_of
from tests.shared.stores import FOLDER, on
from tests.waiting import stop_process, wait_for

pytestmark = pytest.mark.system

SETTINGS = {"session_timeout_s": 4.0}
ROWS = [1, 2, 3]


class Nodes:
    """What coordination has of one replica and its table."""

    def __init__(self, session: ZooKeeperCoordination, name: str) -> None:
        self.session = session
        self.place = place_of(session, "t")
        self.replica = Replica(self.place, name)

    def host(self) -> fx.Node:
        node = self.session.perform(fx.Get(layout.host(self.replica)))
        assert node is not None
        return node

    def is_active(self) -> bool:
        return bool(self.session.perform(fx.Exists(layout.is_active(self.replica))))

    def parts(self) -> tuple[str, ...]:
        return self.session.perform(fx.Children(layout.parts(self.replica))) or ()

    def seen(self) -> dict[str, object]:
        """Whatever a process of this replica could change."""
        table = self.place
        shares = self.session.perform(fx.Children(layout.shares(table))) or ()
        lists = (layout.log(table), layout.parts(self.replica), layout.queue(self.replica), layout.all_writing(table))
        paths = (layout.host(self.replica), layout.is_lost(self.replica), layout.log_pointer(self.replica))
        return {
            **{
                path: self.session.perform(fx.Children(path))
                for path in (*lists, *(layout.share(table, s) for s in shares))
            },
            **{path: self.session.perform(fx.Get(path)) for path in paths},
        }


def elsewhere(cluster: LocalCluster, folder: Path) -> LocalCluster:
    """Return a server with the name r1, and a disk of its own, in a cluster that has one of this name already."""
    folder.mkdir()
    shutil.copy(cluster.folder / TOKEN_FILE, folder / TOKEN_FILE)
    return LocalCluster(folder, 1, zookeeper=cluster.access.url, settings=SETTINGS)


@on(FOLDER)
def test_a_process_that_stood_still_while_its_replica_joined_again_elsewhere_changes_nothing(
    tmp_path: Path, store_url: str
) -> None:
    with LocalCluster(tmp_path / "one", 2, durable=False, settings=SETTINGS) as cluster:
        table = cluster.create_table("t", "k bigint not null", order_by="k", storage=store_url, wait_replicas=2)
        table.insert({"k": ROWS}, replica="r1")
        session = patient_session(cluster.access.url)
        nodes = Nodes(session, "r1")
        wait_for(lambda: Nodes(session, "r2").parts(), "r2 has the part, too")
        pid, earlier = next(each.pid for each in cluster.processes if each.name == "r1"), nodes.host()
        stop_process(pid)
        try:
            wait_for(lambda: not nodes.is_active(), "the session of r1 has ended")
            cluster.drop_replica("t", "r1")
            with elsewhere(cluster, tmp_path / "two"):
                wait_for(lambda: nodes.is_active() and nodes.parts(), "r1 is there again, with its part")
                assert nodes.host().version > earlier.version + 1
                assert nodes.host().value != earlier.value
                late = (
                    fx.Check(layout.host(nodes.replica), earlier.version),
                    fx.Create(f"{layout.parts(nodes.replica)}/late"),
                )
                assert isinstance(session.perform(fx.Commit(*late)), fx.Refused)
                before = nodes.seen()
                os.kill(pid, signal.SIGCONT)
                told = cluster.log_file("r1")
                wait_for(
                    lambda: "another process took over replica r1" in told.read_text(encoding="utf-8"), "it found out"
                )
                assert nodes.seen() == before
                assert sorted(table.replica("r1").to_arrow()["k"].to_pylist()) == ROWS
        finally:
            with suppress(ProcessLookupError):  # it ends when it finds out
                os.kill(pid, signal.SIGCONT)
            session.close()


@on(FOLDER)
def test_a_process_that_stood_still_while_its_table_was_made_anew_changes_nothing(
    tmp_path: Path, store_url: str
) -> None:
    with LocalCluster(tmp_path / "one", 2, durable=False, settings=SETTINGS) as cluster:

        def create() -> Table:
            return cluster.create_table("t", "k bigint not null", order_by="k", storage=store_url, wait_replicas=2)

        create().insert({"k": ROWS}, replica="r1")
        session = patient_session(cluster.access.url)
        earlier = Nodes(session, "r1")
        pid, epoch = next(each.pid for each in cluster.processes if each.name == "r1"), earlier.host().version
        stop_process(pid)
        try:
            wait_for(lambda: not earlier.is_active(), "the session of r1 has ended")
            cluster.drop_table("t")
            with elsewhere(cluster, tmp_path / "two"):
                table = create()
                table.insert({"k": [7]}, replica="r1")
                nodes = Nodes(session, "r1")
                wait_for(lambda: nodes.parts() and Nodes(session, "r2").parts(), "both have the part")
                assert nodes.host().version == epoch, "only the place tells the epochs of both tables apart"
                before = nodes.seen()
                late = fx.Check(layout.host(earlier.replica), epoch), fx.Create(f"{layout.parts(earlier.replica)}/late")
                assert isinstance(session.perform(fx.Commit(*late)), fx.Refused)
                os.kill(pid, signal.SIGCONT)
                told = cluster.log_file("r1")
                wait_for(lambda: "is running as replica r1" in told.read_text(encoding="utf-8"), "it has tried to join")
                assert "vanished from coordination" in told.read_text(encoding="utf-8")
                assert nodes.seen() == before
                assert table.replica("r1").to_arrow()["k"].to_pylist() == [7]
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            session.close()
