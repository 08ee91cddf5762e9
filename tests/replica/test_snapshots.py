"""Old parts, leases, and what the table was at an earlier index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from replitree.errors import LeaseLost, Unavailable
from replitree.protocol.core.effects import EntryId, LogIndex, Version
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, NO_FLOOR, ConsumerNode, Consumers, ConsumerValue
from replitree.replica.kit import old_parts
from replitree.replica.kit.old_parts import OldParts
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows, wait_for

TABLE = "/v1/tables/t"


def cluster_with(folder: Path, lifetime_s: float) -> InProcessCluster:
    cluster = InProcessCluster(folder, old_parts_lifetime_s=lifetime_s)
    cluster.create_table()
    for node in cluster.nodes:
        node.post("merges/pause")
    return cluster


def fill(cluster: InProcessCluster, count: int) -> None:
    for number in range(count):
        cluster.nodes[0].insert(rows(10 * number))
    cluster.wait_alike()


def merge(cluster: InProcessCluster) -> None:
    for node in cluster.nodes:
        node.post("merges/resume")
    assert cluster.nodes[0].post("optimize", {"final": True})["finished"] is True
    cluster.wait_alike()


def remove_due(old: OldParts) -> int:
    """Delete the old parts whose time is over and that no lease or tag keeps; return how many."""
    return old.remove_chosen(old.choose_due(), old.tags, NO_CONSUMERS)


def names(snapshot: dict[str, object]) -> list[str]:
    parts = snapshot["parts"]
    assert isinstance(parts, list)
    return [part["part"] for part in parts]


def test_files_of_old_parts_go_after_their_lifetime_on_every_replica(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 0.0)
    try:
        fill(cluster, 3)
        merge(cluster)
        for node in cluster.nodes:
            store = node.table().store
            wait_for(lambda store=store: store.parts() == ("all_0_2_1",), "only the result is left")  # type: ignore[misc]
            wait_for(lambda node=node: node.get("status")["old_parts"] == 0, "nothing is old")  # type: ignore[misc]
            marks = store.root / "retired"
            wait_for(lambda marks=marks: not any(marks.iterdir()), "no mark is left")  # type: ignore[misc]
            assert store.detached() == ()
    finally:
        cluster.close()


def test_a_lease_keeps_files_until_it_is_released(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 0.0)
    try:
        fill(cluster, 3)
        first = cluster.nodes[0]
        snapshot = first.get("snapshot", lease_s=60)
        assert snapshot["lease_s"] == 60.0
        merge(cluster)
        wait_for(lambda: cluster.nodes[1].table().store.parts() == ("all_0_2_1",), "gone where nobody reads")
        assert remove_due(first.table().old_parts) == 0
        status = first.get("status")
        assert (status["old_parts"], status["leases"]) == (3, 1)
        assert status["old_bytes"] > 0
        for part in snapshot["parts"]:
            assert (Path(part["path"]) / "data-0.parquet").exists()
        path = f"leases/{snapshot['lease']}"
        assert first.post(path, lease_s=30) == {"lease": snapshot["lease"], "lease_s": 30.0}
        assert first.request("DELETE", f"{TABLE}/{path}") == (200, {})
        assert first.request("DELETE", f"{TABLE}/{path}") == (200, {})
        wait_for(lambda: first.table().store.parts() == ("all_0_2_1",), "gone after the release")
        status_code, body = first.request("POST", f"{TABLE}/{path}")
        assert (status_code, body["error"]) == (410, "LeaseLost")
    finally:
        cluster.close()


def test_old_parts_are_known_after_a_restart(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 3600.0)
    try:
        fill(cluster, 3)
        merge(cluster)
        cluster.nodes[0].post("drop", {"all": True})
        cluster.wait_alike()
        first = cluster.nodes[0]
        first.restart()
        wait_for(lambda: cluster.is_active(first), "active again")
        assert first.get("status")["old_parts"] == 4
        assert first.table().store.detached() == ()
        assert first.keys() == []
    finally:
        cluster.close()


def test_the_table_as_it_was_at_every_index(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 3600.0)
    try:
        first = cluster.nodes[0]
        fill(cluster, 2)
        first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5"})
        fill_more = first.insert(rows(20))[1]["index"]
        merge(cluster)
        first.post("drop", {"all": True})
        cluster.wait_alike()
        expected = {
            0: [],
            1: ["all_0_0_0"],
            2: ["all_0_0_0", "all_1_1_0"],
            3: ["all_0_0_0_2", "all_1_1_0_2"],
            fill_more + 1: ["all_0_0_0_2", "all_1_1_0_2", "all_3_3_0"],
            5: ["all_0_3_1_2"],
            6: [],
        }
        for index, parts in expected.items():
            snapshot = first.get("snapshot", as_of=index, lease_s=5)
            assert (snapshot["index"], names(snapshot)) == (index, parts)
        status, body = first.request("GET", f"{TABLE}/snapshot?as_of=7&wait_s=0.1")
        assert (status, body["error"]) == (503, "ReplicaBehind")
        for _ in range(2):
            for node in cluster.nodes:
                node.restart()
            wait_for(lambda: all(map(cluster.is_active, cluster.nodes)), "active again")
            for node in cluster.nodes:
                for index, parts in expected.items():
                    assert names(node.get("snapshot", as_of=index, wait_s=5)) == parts, (
                        "after a restart of all replicas"
                    )
        # Without the version log only what came since the start is known.
        first.stop()
        for file in (first.table().store.root / "versions").iterdir():
            file.unlink()
        first.restart()
        wait_for(lambda: cluster.is_active(first), "active again")
        status, body = first.request("GET", f"{TABLE}/snapshot?as_of=3")
        assert (status, body["error"]) == (410, "SnapshotExpired")
        assert "the first version that it knows is 6" in body["message"]
        assert names(first.get("snapshot", as_of=6)) == []
    finally:
        cluster.close()


def test_an_earlier_index_whose_parts_are_gone_is_refused(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 0.0)
    try:
        fill(cluster, 2)
        merge(cluster)
        first = cluster.nodes[0]
        wait_for(lambda: first.table().store.parts() == ("all_0_1_1",), "the sources are gone")
        status, body = first.request("GET", f"{TABLE}/snapshot?as_of=2")
        assert (status, body["error"]) == (410, "SnapshotExpired")
        assert "table.set_keep" in body["message"]
    finally:
        cluster.close()


def test_an_index_is_read_before_a_merge_below_it_is_done(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 3600.0)
    try:
        fill(cluster, 2)
        first = cluster.nodes[0]
        first.post("optimize", {"final": True}, wait_s=0)
        index = first.insert(rows(20))[1]["index"]
        snapshot = first.get("snapshot", as_of=index + 1)
        assert names(snapshot) == ["all_0_0_0", "all_1_1_0", "all_3_3_0"]
    finally:
        cluster.close()


def test_who_waits_for_a_mutation_sees_it_at_another_replica(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0))
    index = first.post("mutations", {"sql": "DELETE FROM t WHERE k < 5"})["index"]
    snapshot = second.get("snapshot", mutated=index)
    assert names(snapshot) == ["all_0_0_0_1"]
    status, body = second.request("GET", f"{TABLE}/snapshot?mutated={index + 1}&wait_s=0.1")
    assert (status, body["error"]) == (503, "ReplicaBehind")


def test_a_broken_part_is_never_left_out_silently(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    first.insert(rows(0, 1000))
    cluster.wait_equal(list(range(1000)))
    first.coordination.suspend()
    second.table().progress.hide(("all_0_0_0",))
    status, body = second.request("GET", f"{TABLE}/snapshot")
    assert (status, body["error"]) == (503, "ReplicaUnavailable")
    assert "all_0_0_0" in body["message"]
    first.coordination.resume()


def test_parts_that_the_condition_of_a_reader_rules_out_are_not_sent(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    for number in range(3):
        first.insert(rows(10 * number))
    assert names(first.get("snapshot", level="linearizable", where="k = 12", columns=1)) == ["all_1_1_0"]
    assert names(first.get("snapshot", level="linearizable", where="k >= 15", columns=1)) == [
        "all_1_1_0",
        "all_2_2_0",
    ]
    everything = ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert names(first.get("snapshot", where="k = 12", columns=2)) == everything  # the names are those of other columns
    assert names(first.get("snapshot", where="k =", columns=1)) == everything  # the reader finds the same, and says so


@pytest.mark.parametrize("query", ["lease_s=-1", "lease_s=x", "as_of=x", "min_index=1.5", "mutated=-3", "wait_s=nan"])
def test_nonsense_in_a_query_is_refused(cluster: InProcessCluster, query: str) -> None:
    status, body = cluster.nodes[0].request("GET", f"{TABLE}/snapshot?{query}")
    assert (status, body["error"]) == (400, "BadInput")


# --- old parts by themselves --------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    """A store with the parts all_0_0_0 … all_4_4_0."""
    store, definition = PartStore(tmp_path / "table"), define_table("t", SCHEMA, order_by="k")
    for number in range(5):
        stage_table(rows(number, 1), definition, store.staging, prefix=store.staging_prefix("x"))
        store.staged.publish("x", {"all": f"all_{number}_{number}_0"})
    return store


def test_marks_keep_their_time_over_a_restart(store: PartStore) -> None:
    now = [1_000_000.0]
    old = OldParts(store, 100.0, lambda: now[0])
    old.retire(["all_0_0_0", "all_1_1_0", "all_9_9_0"])
    assert old.names() == {"all_0_0_0", "all_1_1_0"}
    for mark in (store.root / "retired").iterdir():
        os.utime(mark, (now[0], now[0]))
    again = OldParts(store, 100.0, lambda: now[0])
    assert again.sizes()["old_bytes"] == 0  # a start does not wait for that
    again.read_sizes()
    assert again.sizes()["old_bytes"] == sum(store.manifest(part).bytes for part in again.names())
    now[0] += 99.0
    assert remove_due(again) == 0
    now[0] += 1.0
    assert remove_due(again) == 2
    assert store.parts() == ("all_2_2_0", "all_3_3_0", "all_4_4_0")


def test_table_says_how_long_its_old_parts_stay(store: PartStore) -> None:
    now, keep = [1_000_000.0], [None, 50.0]
    old = OldParts(store, 100.0, lambda: now[0], lambda: keep[-1])
    old.retire(["all_0_0_0"])
    now[0] += 49.0
    assert remove_due(old) == 0
    now[0] += 1.0
    keep.pop()
    assert remove_due(old) == 0
    keep.append(50.0)
    assert remove_due(old) == 1


def test_a_part_that_comes_back_is_not_old(store: PartStore) -> None:
    old = OldParts(store, 0.0)
    old.retire(["all_0_0_0"])
    old.revive(["all_0_0_0", "all_1_1_0"])
    assert remove_due(old) == 0
    assert not old.is_old("all_0_0_0")


class Feed:
    """Each part is needed by the entry of its number, and by nothing for the feed's own time."""

    def unneeded(self, parts: Sequence[str]) -> tuple[str, ...]:
        return tuple(parts)

    def needed_from(self, parts: Sequence[str], index: LogIndex) -> frozenset[str]:
        return frozenset(part for part in parts if int(part.split("_")[1]) >= index)


def a_consumer(index: int, expired: str = "", parts: tuple[str, ...] = ()) -> Consumers:
    value = ConsumerValue(index, EntryId("c"), "r1", parts=parts, expired=expired)
    return Consumers(Version(0), (ConsumerNode("c", value, Version(0)),))


def test_consumers_keep_what_they_have_not_read_and_their_snapshot(store: PartStore) -> None:
    old = OldParts(store, 0.0)
    old.feed = Feed()
    old.retire([f"all_{number}_{number}_0" for number in range(5)])
    forgotten = list[LogIndex]()
    due = old.choose_due()
    assert len(due) == 5
    assert old.remove_chosen(due, old.tags, a_consumer(3, parts=("all_0_0_0",)), forgotten.append) == 2
    assert old.names() == {"all_0_0_0", "all_3_3_0", "all_4_4_0"}
    assert forgotten == [3]
    assert old.sizes()["consumer_parts"] == 3
    assert old.bytes_for(ConsumerValue(4, EntryId("c"), "r1")) < old.bytes_for(ConsumerValue(3, EntryId("c"), "r1"))
    assert old.remove_chosen(old.choose_due(), old.tags, a_consumer(3, "it is over"), forgotten.append) == 3
    assert forgotten[-1] == NO_FLOOR


def test_nothing_goes_that_was_chosen_before_the_feed_is_held(store: PartStore) -> None:
    old = OldParts(store, 0.0)
    old.feed = Feed()
    old.retire([f"all_{number}_{number}_0" for number in range(5)])
    due, forgotten = old.choose_due(), list[LogIndex]()
    hold = old.hold_feed(LogIndex(3))
    # The consumers were read before that of this hold was committed.
    assert old.remove_chosen(due, old.tags, NO_CONSUMERS, forgotten.append) == 0
    assert (forgotten, old.feed_floor) == ([], 3)
    assert old.remove_chosen(old.choose_due(), old.tags, NO_CONSUMERS, forgotten.append) == 3
    assert forgotten == [3]
    old.release_feed(hold)
    assert remove_due(old) == 2


def test_leases_are_limited_and_end_by_themselves(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_parts, "LEASES_MAX", 2)
    old = OldParts(store, 0.0)
    ended = old.lease(["all_0_0_0"], 0.0)
    held = [old.lease(["all_1_1_0"], 60.0) for _ in range(2)]
    with pytest.raises(Unavailable, match="leases"):
        old.lease([], 60.0)
    with pytest.raises(LeaseLost):
        old.renew(ended, 60.0)
    old.retire(["all_0_0_0", "all_1_1_0"])
    assert remove_due(old) == 1
    old.release(held[0])
    assert remove_due(old) == 0
    old.release(held[1])
    assert remove_due(old) == 1


def test_a_replica_says_which_entry_was_written_by_a_time(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path, 3600.0)
    try:
        first = cluster.nodes[0]
        cluster.admin.shared.now_ms = 10_000
        fill(cluster, 1)
        cluster.admin.shared.now_ms = 20_000
        for key in (100, 200):
            first.insert(rows(key))
        cluster.wait_alike()
        for _ in range(2):
            for node in cluster.nodes:
                assert node.get("written-by", time_ms=15_000, below=3) == {"index": 1, "below": 1}
                assert node.get("written-by", time_ms=9_000, below=3)["below"] == 0
            first.restart()
            wait_for(lambda: cluster.is_active(first), "active again")
        assert first.get("written-by", time_ms=15_000, below=9) == {"below": 9}, "it does not know the last entries"
        for query, reason in (("below=3", "time_ms is missing"), ("time_ms=x&below=3", "is not a number")):
            status, body = first.request("GET", f"{TABLE}/written-by?{query}")
            assert (status, body["error"]) == (400, "BadInput")
            assert reason in body["message"]
    finally:
        cluster.close()
