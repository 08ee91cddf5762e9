"""A table on an object store whose nodes have vanished: the parts on a disk and their objects become the table again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from replitree.client.admin.fsck import FsckReport
from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Exists, Get, Procedure
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import parse_part
from replitree.protocol.rescue.restore import Restored, RestoreOutcome, restore
from replitree.replica.rescue.restore import objects_of, restore_table, restored_shares
from replitree.storage.parts import encode
from tests.replica.inprocess import ROOT, TOKEN, rows, wait_for
from tests.replica.test_restore import delete_nodes
from tests.replica.test_sharing import SharedCluster
from tests.shared.stores import FAULTY, FOLDER, on

pytestmark = pytest.mark.slow

TABLE = TablePlace(layout.table_path(ROOT, "t"))
ONE = Replica(TABLE, "r1")
ALL, ONLY_SECOND = list(range(40)), list(range(30, 40))


class Vanished(SharedCluster):
    """Two stopped replicas of a table without nodes; each has a part that the other lacks."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        first, second = self.nodes
        for number in range(2):
            first.insert(rows(10 * number))
        self.wait_equal(ALL[:20])
        first.post("optimize", {"final": True})
        self.wait_alike()
        second.stop()
        first.insert(rows(20))
        wait_for(lambda: first.keys() == ALL[:30], "the first has all rows")
        first.stop()
        second.restart()
        wait_for(lambda: second.table().availability.state.value == "active", "the second is active")
        second.insert(rows(30))
        wait_for(lambda: set(ONLY_SECOND) <= set(second.keys()), "the second has its own")
        second.stop()
        delete_nodes(self, TABLE.path)
        self._runs = 0

    def begin(self) -> Procedure[RestoreOutcome]:
        """Begin a run for the first replica."""
        self._runs += 1
        first, store = self.nodes[0], self.nodes[0].table().store
        names = maximal(map(parse_part, store.parts()))
        parts = {part: store.verify(part.name) for part in names}
        shares = restored_shares(objects_of(first.table().definition), parts)
        encoded = self.definition.encode_metadata(), self.definition.encode_columns()
        hashes = {part: manifest.content for part, manifest in parts.items()}
        return restore(ONE, f"run {self._runs}".encode(), *encoded, hashes, shares)

    def finish(self) -> RestoreOutcome:
        """Run to the end."""
        outcome: RestoreOutcome = self.run(self.begin())
        return outcome

    def restart(self) -> None:
        """Start both replicas."""
        for node in self.nodes:
            node.restart()

    def marked(self) -> set[str]:
        """Replica and part of all marks."""
        return {owner for owners in self.owners().values() for owner in owners}


@pytest.fixture
def vanished(tmp_path: Path, store_url: str) -> Iterator[Vanished]:
    made = Vanished(tmp_path, store_url)
    yield made
    made.close()


def fsck(cluster: Vanished, *, everybody_is_back: bool) -> FsckReport:
    tree = cluster.shared
    connection = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(tree))
    try:
        return connection.fsck("t", with_repair=True, grace_s=0.0, everybody_is_back=everybody_is_back)
    finally:
        connection.close()


def test_the_parts_of_a_disk_get_their_marks_back_and_the_other_replica_takes_them_over(vanished: Vanished) -> None:
    assert isinstance(vanished.finish(), Restored)
    assert vanished.marked() == vanished.registered() != set()
    vanished.restart()
    vanished.wait_equal(ALL[:30])
    wait_for(lambda: vanished.marked() == vanished.registered(), "whoever has a part owns it")
    assert {owner.split()[0] for owner in vanished.marked()} == {"r1", "r2"}
    first, _ = vanished.nodes
    assert first.insert(rows(50))[0] == 200
    first.post("optimize", {"final": True})
    vanished.wait_equal([*ALL[:30], *range(50, 60)])


@pytest.mark.parametrize("steps", range(2, 16))
def test_a_restore_that_was_cut_off_goes_on(vanished: Vanished, steps: int) -> None:
    cut = vanished.begin()
    outcome = None
    try:
        for _ in range(steps):
            outcome = vanished.admin.perform(cut.send(outcome))
        cut.close()
    except StopIteration:
        assert vanished.marked() == vanished.registered()
        return
    unmarked = vanished.registered() - vanished.marked() if vanished.admin.perform(Exists(TABLE.path)) else set()
    assert unmarked == set()
    again = vanished.finish()
    assert isinstance(again, Restored) or "is not being restored" in again.reason
    assert vanished.marked() == vanished.registered() != set()
    node = vanished.admin.perform(Get(layout.replica_path(ONE)))
    names = vanished.admin.perform(Children(layout.shares(TABLE)))
    marks = {m for name in names for m in vanished.admin.perform(Children(layout.share(TABLE, name)))}
    assert {mark.split("~")[1] for mark in marks} == {node.value.decode()}


def test_what_only_another_disk_has_is_kept_until_everybody_is_back(vanished: Vanished) -> None:
    vanished.finish()
    first, second = vanished.nodes
    first.restart()
    wait_for(lambda: first.keys() == ALL[:30], "the first has all rows")
    report = fsck(vanished, everybody_is_back=False)
    assert {(each.kind, each.repair) for each in report.findings} == {("orphan", "kept")}
    assert not report.clean
    second.restart()
    vanished.wait_equal(ALL[:30])
    (kept,) = second.table().store.detached()
    (file,) = (second.table().store.root / "detached" / kept).glob("*.parquet")
    assert pq.read_table(file)["k"].to_pylist() == ONLY_SECOND
    fsck(vanished, everybody_is_back=True)
    assert not vanished.admin.perform(Exists(layout.restored(TABLE)))
    wait_for(
        lambda: fsck(vanished, everybody_is_back=False).clean and vanished.shares() == vanished.stored(), "all is well"
    )
    vanished.wait_equal(ALL[:30])


@on(FOLDER)
def test_a_store_that_is_not_there_breaks_nothing(vanished: Vanished, tmp_path: Path) -> None:
    first, _ = vanished.nodes
    (tmp_path / "objects").rename(tmp_path / "away")
    with pytest.raises((BadInput, StoreError), match="mounted"):
        restore_table(first.config, "t", dry_run=True)
    (tmp_path / "objects").rmdir()
    (tmp_path / "away").rename(tmp_path / "objects")
    report = restore_table(first.config, "t", dry_run=True)
    assert (report.rows, report.broken) == (30, {})


class VanishedBorrowing(Vanished):
    """The same with one part that both replicas have, which borrows files of a share whose own part is gone."""

    def __init__(self, folder: Path, url: str) -> None:
        SharedCluster.__init__(self, folder, url)
        self._runs = 0
        self.nodes[0].insert(rows(0, 30))
        self.wait_alike()
        self.nodes[0].post("mutations", {"sql": "DELETE FROM t WHERE k = 0"}, wait_s=20)
        self.wait_equal(ALL[1:30])
        self.wait_settled()
        self.before = self.owners()
        for node in self.nodes:
            node.stop()
        delete_nodes(self, TABLE.path)


@on(FOLDER, FAULTY)
def test_a_part_that_borrows_gets_all_its_marks_back(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_cut", lambda rows, *_: [rows.slice(first, 10) for first in range(0, 30, 10)])
    vanished = VanishedBorrowing(tmp_path, store_url)
    try:
        assert len(vanished.before) == 2
        assert isinstance(vanished.finish(), Restored)
        first_alone = {share: {owner for owner in owners if "r1" in owner} for share, owners in vanished.before.items()}
        assert vanished.owners() == first_alone
        vanished.restart()
        vanished.wait_equal(ALL[1:30])
        wait_for(lambda: vanished.owners() == vanished.before, "whoever has the part owns both shares")
        assert fsck(vanished, everybody_is_back=True).clean
    finally:
        vanished.close()
