"""Fsck on real replicas, their disks, and an object store: everything that can be wrong, found and repaired."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.admin import fsck
from replitree.client.admin.fsck import FsckReport
from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.replica.parts import bare_files
from replitree.replica.parts.bare_files import BareFiles
from replitree.storage.objects import open_store
from replitree.storage.parts import encode
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, rows, wait_for
from tests.replica.test_own_shares import remove_copies
from tests.shared.stores import FOLDER, on

TABLE = TablePlace(layout.table_path(ROOT, "t"))
DAY_MS = 24 * 3600 * 1000
LEFT = "0" * 32
KEYS = list(range(10))


class Shared:
    """Two replicas with the table `t` on an object store, of which one part is there; and a connection."""

    def __init__(self, folder: Path, url: str) -> None:
        self.cluster = InProcessCluster(folder, 2)
        definition = self.cluster.create_table(storage=url)
        self.store, self.place = open_store(url), f"tables/{definition.table_id}"
        tree = self.cluster.shared
        self.connection = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(tree))
        self.cluster.nodes[0].insert(rows(0))
        self.cluster.wait_equal(KEYS)
        (self.share,) = self.keys_of_shares()
        self.part = next(iter(self.cluster.wait_alike()))

    def fsck(self, *, with_repair: bool = False, grace_s: float = 0.0) -> FsckReport:
        return self.connection.fsck("t", with_repair=with_repair, grace_s=grace_s)

    def kinds(self, grace_s: float) -> list[str]:
        return [each.kind for each in self.fsck(grace_s=grace_s).findings]

    def commit(self, *operations: fx.Create | fx.Set | fx.Delete) -> None:
        assert isinstance(self.cluster.admin.perform(fx.Commit(*operations)), fx.Applied)

    def objects(self) -> list[str]:
        """The keys of the table's objects."""
        return sorted(found.key for found in self.store.list(self.place))

    def keys_of_shares(self) -> set[str]:
        """The shares that have objects."""
        return {key.split("/")[2] for key in self.objects()}

    def leave(self, share: str) -> str:
        """Put an object that nobody knows of."""
        key = f"{self.place}/{share}/data-0.parquet"
        self.store.create(key, b"1234")
        return key

    def lose_manifests(self) -> None:
        """Remove the part's manifest from the store and its folder from all disks."""
        self.store.delete([key for key in self.objects() if key.endswith("manifest.json")])
        for node in self.cluster.nodes:
            shutil.rmtree(node.table().store.part_path(self.part))
        for node in self.cluster.nodes:
            node.restart()
        for node in self.cluster.nodes:
            wait_for(lambda node=node: self.cluster.is_active(node), "active")  # type: ignore[misc]
            wait_for(lambda node=node: self.part in node.table().lacking, "it is lacking")  # type: ignore[misc]

    def mark(self, replica: str, part: str) -> str:
        """Path of a mark of a replica on the share."""
        node = self.cluster.admin.perform(fx.Get(layout.replica_path(Replica(TABLE, replica))))
        return f"{layout.share(TABLE, self.share)}/{replica}~{node.value.decode()}~{part}"

    def close(self) -> None:
        self.connection.close()
        self.cluster.close()


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[Shared]:
    made = Shared(tmp_path, store_url)
    yield made
    made.close()


def test_a_table_that_is_well_is_clean_and_stays_as_it_is(shared: Shared) -> None:
    before = shared.objects()
    report = shared.fsck(with_repair=True)
    assert (report.clean, report.findings, report.silent) == (True, (), {})
    assert (report.shares, report.objects) == (1, 2)
    assert shared.objects() == before
    shared.cluster.wait_equal(KEYS)


def test_objects_of_nobody_go_when_they_are_old(shared: Shared) -> None:
    key = shared.leave(LEFT)
    assert shared.kinds(grace_s=3600.0) == []
    report = shared.fsck()
    assert [(each.kind, each.share, each.bytes, each.repair) for each in report.findings] == [
        ("orphan", LEFT, 4, "not asked")
    ]
    assert not report.clean
    assert key in shared.objects()
    repaired = shared.fsck(with_repair=True)
    assert ([each.repair for each in repaired.findings], repaired.silent, repaired.clean) == (["done"], {}, True)
    assert key not in shared.objects()
    assert shared.fsck().findings == ()
    assert not shared.cluster.admin.perform(fx.Exists(layout.garbage(TABLE, LEFT)))


@on(FOLDER)
def test_what_was_begun_in_the_folder_and_not_ended_goes(shared: Shared, tmp_path: Path) -> None:
    path = tmp_path / "objects" / shared.place / shared.share / "data-7.parquet#1"
    path.write_bytes(b"1234")
    os.utime(path, (1, 1))
    report = shared.fsck(with_repair=True, grace_s=3600.0)
    assert [(each.kind, each.repair) for each in report.findings] == [("left-upload", "done")]
    assert report.clean
    assert not path.exists()


def test_what_a_killed_process_has_tried_the_store_with_goes(shared: Shared) -> None:
    keys = ["replitree-clock/5a", "replitree-probe/5a/first"]
    for key in keys:
        shared.store.create(key, b"1234")
    assert shared.kinds(grace_s=3600.0) == []
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.bytes, each.repair) for each in report.findings] == [("left-trial", 4, "done")] * 2
    assert report.findings[0].text == f"{keys[0]} is of no table: a process that tried the store has left it"
    assert report.clean
    assert [shared.store.get(key) for key in keys] == [None, None]
    shared.fsck()


def test_marks_of_who_is_gone_or_does_not_have_the_part_go(shared: Shared) -> None:
    marks = [f"{layout.share(TABLE, shared.share)}/{name}" for name in ("r9~x~all_0_0_0", "r1~older~all_0_0_0")]
    marks.append(shared.mark("r2", "all_7_7_0"))
    shared.commit(*map(fx.Create, marks))
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.replica, each.repair) for each in report.findings] == [
        ("stale-mark", "r1", "done"),
        ("stale-mark", "r2", "done"),
        ("stale-mark", "r9", "done"),
    ]
    assert report.clean
    assert not any(shared.cluster.admin.perform(fx.Exists(mark)) for mark in marks)
    shared.cluster.nodes[0].insert(rows(10))  # both were given new epochs, and go on
    shared.cluster.wait_equal(list(range(20)))


def test_what_no_part_needs_in_a_share_that_has_owners_is_told_and_left_alone(shared: Shared) -> None:
    key = f"{shared.place}/{shared.share}/data-7.parquet"
    shared.store.create(key, b"1234")
    assert shared.kinds(grace_s=3600.0) == []
    report = shared.fsck(with_repair=True)
    ((kind, text, size, advice),) = [(each.kind, each.text, each.bytes, each.advice) for each in report.findings]
    assert (kind, size, advice, report.clean) == ("unreferenced", 4, "", True)
    assert text == f"share {shared.share} has 1 objects that no part needs; they go with it"
    assert shared.store.get(key) == b"1234"


def test_a_share_without_owners_becomes_garbage_and_goes(shared: Shared) -> None:
    key = shared.leave(LEFT)
    shared.commit(fx.Create(layout.share(TABLE, LEFT)))
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.repair) for each in report.findings] == [("unowned", "done")]
    assert key not in shared.objects()
    assert shared.fsck().clean


def test_an_attempt_of_a_replica_that_is_gone_is_given_up(shared: Shared) -> None:
    key = shared.leave(LEFT)
    shared.commit(fx.Create(layout.writing(TABLE, LEFT), b"r9~x"))
    report = shared.fsck(with_repair=True, grace_s=3600.0)
    assert [(each.kind, each.replica, each.repair) for each in report.findings] == [("left-attempt", "r9", "done")]
    assert key not in shared.objects()


def test_an_object_that_is_missing_comes_back_from_the_copy_of_a_replica(shared: Shared) -> None:
    (data,) = (key for key in shared.objects() if key.endswith(".parquet"))
    before = shared.store.get(data)
    shared.store.delete([data])
    report = shared.fsck()
    assert [(each.kind, each.replica, each.evidence) for each in report.findings] == [
        ("dangling", name, ("data-0.parquet is missing",)) for name in ("r1", "r2")
    ]
    assert report.findings[0].advice.startswith("replitree fsck t --repair")
    assert not report.clean
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.repair) for each in report.findings] == [("dangling", "done")] * 2
    assert report.clean
    assert shared.store.get(data) == before
    assert shared.fsck().findings == ()


def test_a_part_that_was_set_aside_and_lacks_an_object_is_reported(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk has a copy: what the table lacks is told as long as the part is registered."""
    monkeypatch.setattr(fsck, "OBJECTS_S", 0.0)
    (data,) = (key for key in shared.objects() if key.endswith(".parquet"))
    shared.store.delete([data])
    for node in shared.cluster.nodes:
        remove_copies(node, shared.part)
        assert not node.table().suspect(shared.part)
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.replica, each.part, each.repair) for each in report.findings] == [
        ("dangling", name, shared.part, "none") for name in ("r1", "r2")
    ]
    assert "data-0.parquet is missing" in report.findings[0].text
    assert "put a copy of the part below detached/" in report.findings[0].advice
    assert not report.clean


def test_a_part_of_which_every_manifest_is_gone_is_reported_and_written_anew_of_its_objects(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_files, "LOOK_AGAIN_S", float("inf"))  # until fsck asks
    with monkeypatch.context() as kept:
        kept.setattr(BareFiles, "write_anew", lambda *_: ())
        shared.lose_manifests()
        report = shared.fsck()
        assert [(each.kind, each.replica, each.part, each.repair) for each in report.findings] == [
            ("undescribed", name, shared.part, "not asked") for name in ("r1", "r2")
        ]
        assert report.findings[0].advice.startswith("replitree fsck t --repair")
        assert not report.clean
    report = shared.fsck(with_repair=True)
    assert {(each.kind, each.repair) for each in report.findings} == {("undescribed", "done")}
    assert report.clean
    shared.cluster.wait_equal(KEYS)


def test_a_part_of_which_every_manifest_is_gone_and_whose_objects_have_other_rows_is_reported(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "OBJECTS_S", 0.0)
    (data,) = (key for key in shared.objects() if key.endswith(".parquet"))
    before = shared.store.get(data)
    assert before is not None
    shared.store.delete([data])
    shared.store.create(data, before[: len(before) // 2])
    shared.lose_manifests()
    report = shared.fsck(with_repair=True)
    assert {(each.kind, each.repair) for each in report.findings} == {("undescribed", "none")}
    assert "put a copy of the part below detached/" in report.findings[0].advice
    assert not report.clean
    assert shared.store.get(data) == before[: len(before) // 2]


def test_an_object_with_other_bytes_is_reported_and_never_replaced(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "OBJECTS_S", 0.0)
    (data,) = (key for key in shared.objects() if key.endswith(".parquet"))
    before = shared.store.get(data)
    assert before is not None
    for node in shared.cluster.nodes:
        remove_copies(node, shared.part)
    shared.store.delete([data])
    shared.store.create(data, before[:-1])
    report = shared.fsck(with_repair=True)
    assert {(each.kind, each.repair) for each in report.findings} == {("dangling", "none")}
    assert "instead of" in report.findings[0].text
    assert shared.store.get(data) == before[:-1]


def test_a_part_without_its_mark_is_reported(shared: Shared) -> None:
    shared.commit(fx.Delete(shared.mark("r2", shared.part), fx.ANY_VERSION))
    report = shared.fsck(with_repair=True)
    assert [(each.kind, each.replica, each.repair) for each in report.findings] == [("unmarked", "r2", "none")]


@pytest.fixture
def borrowing(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A part that borrows two files of a share whose own part is gone: the part and that share."""
    monkeypatch.setattr(encode, "_cut", lambda rows, *_: [rows.slice(first, 10) for first in range(0, 30, 10)])
    first, before = shared.cluster.nodes[0], shared.keys_of_shares()
    assert first.insert(rows(10, 30))[0] == 200
    shared.cluster.wait_equal(list(range(40)))
    (lender,) = shared.keys_of_shares() - before
    first.post("mutations", {"sql": "DELETE FROM t WHERE k = 10"}, wait_s=20)
    shared.cluster.wait_equal([*KEYS, *range(11, 40)])
    (part,) = (name for name in shared.cluster.wait_alike() if first.table().store.manifest(name).borrowed)
    shared.share = lender
    return part, lender


@pytest.mark.slow
def test_a_share_that_is_only_borrowed_is_no_orphan_and_needs_its_mark(
    shared: Shared, borrowing: tuple[str, str]
) -> None:
    part, lender = borrowing
    wait_for(lambda: shared.fsck(with_repair=True).clean, "all is well")
    shared.commit(fx.Delete(shared.mark("r2", part), fx.ANY_VERSION))
    (found,) = shared.fsck(with_repair=True).findings
    assert (found.kind, found.replica, found.part, found.share) == ("unmarked", "r2", part, lender)
    assert f"has no mark on share {lender}" in found.text


@pytest.mark.slow
def test_a_borrowed_object_that_is_missing_is_of_whoever_borrows_it(shared: Shared, borrowing: tuple[str, str]) -> None:
    part, lender = borrowing
    wait_for(lambda: shared.fsck().clean, "all is well")
    gone = [f"{shared.place}/{lender}/data-{number}.parquet" for number in (0, 1)]
    shared.store.delete(
        gone
    )  # the first was written anew: only the part that it was made of, kept for readers, needs it
    found = [each for each in shared.fsck().findings if each.part == part]
    assert [(each.kind, each.replica, each.share, each.evidence) for each in found] == [
        ("dangling", name, lender, ("data-1.parquet is missing",)) for name in ("r1", "r2")
    ]


@pytest.mark.slow
def test_a_part_that_has_only_borrowed_files_needs_its_manifest(shared: Shared, borrowing: tuple[str, str]) -> None:
    first, before = shared.cluster.nodes[0], shared.keys_of_shares()
    first.post("mutations", {"sql": "DELETE FROM t WHERE k >= 10 AND k < 20"}, wait_s=20)
    shared.cluster.wait_equal([*KEYS, *range(20, 40)])
    (share,) = shared.keys_of_shares() - before
    wait_for(lambda: shared.fsck().clean, "all is well")
    key = f"{shared.place}/{share}/manifest.json"
    assert [each for each in shared.objects() if share in each] == [key]
    shared.store.delete([key])
    found = shared.fsck().findings
    assert [(each.kind, each.replica, each.share) for each in found] == [
        ("dangling", name, share) for name in ("r1", "r2")
    ]
    assert borrowing[1] in shared.keys_of_shares()


def test_what_a_replica_that_is_away_may_have_is_not_judged(shared: Shared) -> None:
    key = shared.leave(LEFT)
    shared.cluster.nodes[1].stop()
    report = shared.fsck(with_repair=True)
    assert (report.findings, report.clean) == ((), False)
    assert list(report.silent) == ["r2"]
    assert key in shared.objects()


def test_another_store_under_the_same_url_is_refused(shared: Shared) -> None:
    shared.commit(fx.Set(layout.sharing(TABLE), b"another", fx.ANY_VERSION))
    with pytest.raises(BadInput, match="is another store here"):
        shared.fsck()


def test_a_local_table_has_nothing_to_compare(shared: Shared) -> None:
    shared.cluster.create_table("local")
    with pytest.raises(BadInput, match="the rows of local are on local disks; `replitree check local`"):
        shared.connection.fsck("local")
