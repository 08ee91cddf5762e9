"""Merges on running replicas: who proposes them, what becomes of them, and how they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MergeEntry, encode_entry
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.pull import Place, Pointer
from replitree.protocol.upkeep.clean_results import has_left
from replitree.replica.kit import history
from replitree.replica.parts.making import Maker
from replitree.storage.rewrite import merge
from replitree.storage.rewrite.merge import MergeCancelled, merge_parts
from replitree.storage.schema.definition import TableSettings
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for

PATIENCE_S = 60.0


def fill(cluster: InProcessCluster, count: int, *, each: int = 10) -> None:
    """Insert `count` parts, and wait until every replica has them, merged or not."""
    for number in range(count):
        cluster.nodes[number % len(cluster.nodes)].insert(rows(each * number, each))
    cluster.wait_equal(list(range(each * count)))


def leader_of(cluster: InProcessCluster) -> Node:
    """The replica that leads."""
    wait_for(lambda: any(node.table().leader.is_leading for node in cluster.nodes), "somebody leads")
    return next(node for node in cluster.nodes if node.table().leader.is_leading)


@pytest.fixture
def paused(cluster: InProcessCluster) -> InProcessCluster:
    """Two replicas that merge nothing by themselves."""
    for node in cluster.nodes:
        node.post("merges/pause")
    return cluster


def propose(cluster: InProcessCluster, *sources: str) -> None:
    """Append a merge, as any leader could."""
    table = cluster.nodes[0].table().replica.table
    entry = encode_entry(MergeEntry("r9", sources))
    cluster.admin.perform(fx.Commit(fx.Create(layout.log_create(table), entry, sequential=True)))


def test_the_leader_merges_many_small_parts(cluster: InProcessCluster) -> None:
    fill(cluster, 40)
    wait_for(lambda: all(len(node.contents()) < 20 for node in cluster.nodes), "fewer parts")
    cluster.wait_alike()
    cluster.wait_equal(list(range(400)))
    status = leader_of(cluster).table().status()
    assert status["leader"] in ("r1", "r2")


def test_exactly_one_replica_leads_and_another_follows_its_end(cluster: InProcessCluster) -> None:
    first = leader_of(cluster)
    (second,) = [node for node in cluster.nodes if node is not first]
    wait_for(lambda: second.table().leader.leader == first.name, "the other one follows")
    first.post("merges/pause")
    wait_for(lambda: second.table().leader.is_leading, "the other one leads")
    assert not first.table().leader.is_leading
    first.post("merges/resume")
    wait_for(lambda: first.table().leader.leader == second.name, "the first one follows")


def test_a_leader_that_loses_its_session_is_replaced(cluster: InProcessCluster) -> None:
    first = leader_of(cluster)
    (second,) = [node for node in cluster.nodes if node is not first]
    cluster.shared.expire(first.coordination.session_id)
    wait_for(lambda: second.table().leader.is_leading, "the other one leads")


def test_a_result_whose_registration_was_not_answered_is_not_made_again(
    paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(paused, 2)
    first = paused.nodes[0]
    perform, late, made = first.coordination.perform, list[fx.Commit](), list[str]()

    def lose_first(effect: fx.CoordinationEffect) -> object:
        if isinstance(effect, fx.Commit) and any("/results/" in each.path for each in effect.operations) and not late:
            late.append(effect)
            return fx.Unknown()
        return perform(effect)

    def counted(*arguments: Any, **named: Any) -> Any:
        made.append(first.name)
        return merge_parts(*arguments, **named)

    monkeypatch.setattr(first.coordination, "perform", lose_first)
    monkeypatch.setattr(merge, "merge_parts", counted)
    first.post("merges/resume")
    assert first.post("optimize", {"final": True})["finished"] is True
    assert (len(late), made) == (1, ["r1"])
    assert isinstance(perform(late[0]), fx.Refused)
    assert first.table().store.verify("all_0_1_1").rows == 20
    assert first.contents().keys() == {"all_0_1_1"}


def test_a_damaged_file_under_a_results_name_is_made_again(paused: InProcessCluster) -> None:
    fill(paused, 2)
    first = paused.nodes[0]
    store = first.table().store
    store.staged.link("all_0_0_0", "stray", "all")
    store.staged.publish("stray", {"all": "all_0_1_1"})
    (file,) = store.manifest("all_0_1_1").files
    path = store.file_path("all_0_1_1", file.name)
    raw = path.read_bytes()
    path.unlink()  # a hard link: the source keeps its own
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    first.post("merges/resume")
    assert first.post("optimize", {"final": True})["finished"] is True
    assert store.verify("all_0_1_1").rows == 20
    assert [name for name in store.detached() if name.startswith("broken")] == ["broken_all_0_1_1_0"]


def test_parts_that_mutations_are_still_to_make_are_merged(
    paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(paused, 40)
    first, may_mutate, leaves = paused.nodes[0], threading.Event(), Maker.leaves_as_it_is

    def waits(maker: Maker, effect: fx.Untouched) -> bool:
        assert may_mutate.wait(PATIENCE_S)
        return leaves(maker, effect)

    monkeypatch.setattr(Maker, "leaves_as_it_is", waits)
    for below in (5, 7):
        first.post("mutations", {"sql": f"DELETE FROM t WHERE k < {below}"}, wait_s=0)
    for node in paused.nodes:
        node.post("merges/resume")
    progress = first.table().progress

    def merges() -> list[Part]:
        return [part for each in progress.queue() if isinstance(each.entry, MergeEntry) for part in each.change.removed]

    sources = wait_for(merges, "merges are in the log")
    assert {part.mutation for part in sources} == {41}
    assert len(progress.held) == 40
    may_mutate.set()
    paused.wait_equal(list(range(7, 400)))
    paused.wait_alike()
    assert len(first.contents()) < 20


def test_parts_that_a_failing_mutation_is_to_make_are_left_alone(
    paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(paused, 3)
    table, make = paused.nodes[0].table(), Maker.make
    monkeypatch.setattr(Maker, "make", lambda *_: fx.StoreFailed("no room"))
    paused.nodes[0].post("mutations", {"sql": "UPDATE t SET v = 1 WHERE k >= 0"}, wait_s=0)
    for node in paused.nodes:
        node.post("merges/resume")
    wait_for(lambda: table.progress.why_waiting(fx.LogIndex(3))[1], "the mutation has failed")
    assert not any(each.free for each in table.merges.candidates(ahead=True))
    monkeypatch.setattr(Maker, "make", make)
    table.progress.retry_now()
    wait_for(lambda: all(each.free for each in table.merges.candidates()), "the mutation is executed")


def test_of_two_leaders_with_one_wish_the_first_counts(paused: InProcessCluster) -> None:
    fill(paused, 3)
    propose(paused, "all_0_0_0", "all_1_1_0")
    propose(paused, "all_1_1_0", "all_2_2_0")
    propose(paused, "all_0_1_1", "all_2_2_0")
    for node in paused.nodes:
        node.post("merges/resume")
    assert list(paused.wait_alike()) == ["all_0_2_2"]
    paused.wait_equal(list(range(30)))


def test_paused_merges_wait_and_inserts_do_not(paused: InProcessCluster) -> None:
    fill(paused, 2)
    answer = paused.nodes[0].post("optimize", {}, wait_s=0.2)
    assert answer["finished"] is False
    assert answer["reason"] == "merges are paused on r1: `replitree table resume-merges t`"
    assert answer["merges"][0]["applied"] is True
    assert len(paused.nodes[0].contents()) == 2
    index = paused.nodes[0].insert(rows(20))[1]["index"]
    assert paused.nodes[1].get("snapshot", min_index=index + 1, wait_s=10)["index"] == index + 1
    assert paused.nodes[0].get("status")["merges_paused"] is True
    for node in paused.nodes:
        node.post("merges/resume")
    wait_for(lambda: len(paused.wait_alike()) == 2, "merged")
    paused.wait_equal(list(range(30)))


def test_a_paused_replica_takes_the_results_of_others(paused: InProcessCluster) -> None:
    first, second = paused.nodes
    fill(paused, 3)
    second.post("merges/resume")
    answer = first.post("optimize", {"final": True})
    assert answer["finished"] is True
    assert answer["merges"][0] == {
        "index": 3,
        "applied": True,
        "finished": True,
        "reason": "",
        "partition": "all",
        "sources": ["all_0_0_0", "all_1_1_0", "all_2_2_0"],
        "result": "all_0_2_1",
    }
    assert list(paused.wait_alike()) == ["all_0_2_1"]


def test_a_replica_that_only_fetches_merges_nothing_and_never_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = InProcessCluster(tmp_path)
    small = Node("r3", tmp_path, cluster.shared, merge="fetch")
    cluster.nodes.append(small)
    small.start()
    made: list[Path] = []
    real = merge_parts

    def noted(sources: list[Path], *arguments: object, **options: object) -> object:
        made.extend(sources)
        return real(sources, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(merge, "merge_parts", noted)
    try:
        cluster.create_table()
        fill(cluster, 3)
        assert small.post("optimize", {"final": True})["finished"] is True
        assert list(cluster.wait_alike()) == ["all_0_2_1"]
        assert made
        assert not any(path.is_relative_to(small.config.data) for path in made)
        assert not small.table().leader.is_leading
    finally:
        cluster.close()


def test_large_results_are_made_by_who_proposed_them_unless_that_takes_too_long(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, fetch_above_bytes=0, fetch_wait_s=0.3)
    try:
        cluster.create_table()
        for node in cluster.nodes:
            node.post("merges/pause")
        fill(cluster, 2)
        propose(cluster, "all_0_0_0", "all_1_1_0")  # by a replica that is not there
        for node in cluster.nodes:
            node.post("merges/resume")
        assert list(cluster.wait_alike()) == ["all_0_1_1"]
    finally:
        cluster.close()


def test_a_merge_survives_a_restart_in_the_middle(paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = paused.nodes
    fill(paused, 3)
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise OSError("the disk is slow today")

        broken.setattr(merge, "merge_parts", fail)
        first.post("merges/resume")
        answer = first.post("optimize", {"final": True}, wait_s=0.3)
        assert answer["finished"] is False
        assert "slow today" in answer["reason"]
        first.restart()
    wait_for(lambda: paused.is_active(first), "active again")
    second.post("merges/resume")
    assert list(paused.wait_alike()) == ["all_0_2_1"]
    paused.wait_equal(list(range(30)))
    assert first.table().store.stagings() == ()


def test_a_drop_stops_a_merge_that_runs(paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = paused.nodes
    fill(paused, 3)
    began: list[bool] = []

    def endless(*_: object, cancelled: object, **__: object) -> None:
        began.append(True)
        assert callable(cancelled)
        wait_for(cancelled, "it is told to stop")
        raise MergeCancelled("stopped")

    monkeypatch.setattr(merge, "merge_parts", endless)
    first.post("merges/resume")
    first.post("optimize", {"final": True}, wait_s=0.1)
    wait_for(lambda: began, "the merge runs")
    assert [row["kind"] for row in first.get("status")["running"]] == ["merge"]
    assert first.post("drop", {"all": True})["finished"] is True
    assert paused.wait_alike() == {}
    assert second.insert(rows(0))[1]["outcome"] == "inserted"
    paused.wait_equal(list(range(10)))


def test_who_joins_does_not_wait_for_what_was_detached_before_its_neighbours_were_merged(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, replicas=2, old_parts_lifetime_s=0.1)
    try:
        cluster.create_table()
        for node in cluster.nodes:
            node.post("merges/pause")
        first, _ = cluster.nodes
        fill(cluster, 4)
        assert first.post("drop", {"blocks": [1, 2], "detach": True})["finished"] is True
        for node in cluster.nodes:
            node.post("merges/resume")
        first.post("optimize", {"final": True}, wait_s=60)
        assert sorted(cluster.wait_alike()) == ["all_0_3_1"]
        for node in cluster.nodes:
            wait_for(lambda node=node: node.table().store.parts() == ("all_0_3_1",), "the others are gone")  # type: ignore[misc]
        cluster.add("r3")  # it begins with the first entry of the log
        cluster.wait_equal([*range(10), *range(30, 40)])
        assert sorted(cluster.wait_alike()) == ["all_0_3_1"]
    finally:
        cluster.close()


def test_a_broken_source_is_fetched_again_and_then_merged(paused: InProcessCluster) -> None:
    first, second = paused.nodes
    fill(paused, 2, each=1000)
    file = first.table().store.file_path("all_0_0_0", "data-0.parquet")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))
    first.post("merges/resume")
    first.post("optimize", {"final": True}, wait_s=0.1)
    wait_for(lambda: list(first.contents()) == ["all_0_1_1"], "merged")
    second.post("merges/resume")
    paused.wait_alike()
    paused.wait_equal(list(range(2000)))
    assert first.table().store.detached() == ("broken_all_0_0_0_0",)


def test_a_partition_with_many_parts_is_merged_before_inserts_are_refused(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, replicas=1)
    try:
        cluster.create_table(settings=TableSettings(parts_delay=60, parts_max=140))
        for number in range(200):  # without a merge, those from the 60th on wait 40 s in all until one is refused
            assert cluster.nodes[0].insert(rows(number, 1))[0] == 200
        wait_for(lambda: len(cluster.nodes[0].keys()) == 200, "all rows")
    finally:
        cluster.close()


def test_results_are_forgotten_when_no_replica_can_make_them(paused: InProcessCluster) -> None:
    first = paused.nodes[0]
    table, epoch = first.table().replica.table, first.table().availability.active_epoch()
    assert epoch is not None
    fill(paused, 3)
    for node in paused.nodes:
        node.post("merges/resume")
    for _ in range(2):
        assert first.post("optimize", {"final": True})["finished"] is True
    paused.wait_alike()
    assert paused.admin.perform(fx.Children(layout.results(table))) == ("all_0_2_1", "all_0_2_2")
    assert first.table().leader.clean(epoch) == 0
    assert first.table().leader.clean(epoch) == 1
    assert paused.admin.perform(fx.Children(layout.results(table))) == ("all_0_2_2",)


def test_results_stay_while_a_replica_has_not_pulled_what_followed(paused: InProcessCluster) -> None:
    first, second = paused.nodes
    fill(paused, 3)
    second.coordination.suspend()
    first.post("merges/resume")
    for _ in range(2):
        assert first.post("optimize", {"final": True})["finished"] is True
    epoch = first.table().availability.active_epoch()
    assert epoch is not None
    assert [first.table().leader.clean(epoch) for _ in range(3)] == [0, 0, 0]
    results = layout.results(first.table().replica.table)
    assert paused.admin.perform(fx.Children(results)) == ("all_0_2_1", "all_0_2_2")
    second.coordination.resume()
    second.post("merges/resume")
    paused.wait_alike()
    assert first.table().leader.clean(epoch) == 1
    many = paused.admin.perform(fx.GetMany((f"{results}/all_0_2_1", f"{results}/all_0_2_2")))
    assert [node is not None for node in many.nodes] == [False, True]


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("all_0_1_2", False),  # it is there
        ("all_0_0_1", True),  # merged
        ("all_0_1_2_3", False),  # a mutation that is still to come
        ("all_3_3_1", True),  # dropped
        ("all_9_9_1", False),  # not pulled
    ],
)
def test_what_left_the_table_is_told_from_what_is_to_come(part: str, left: bool) -> None:
    place = Place(
        Pointer(fx.LogIndex(7), fx.Version(0)), PartSet.of([parse_part("all_0_1_2"), parse_part("all_5_5_0")])
    )
    assert has_left(parse_part(part), place) is left


def test_an_optimize_of_one_partition_leaves_the_others(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, replicas=1)
    try:
        cluster.create_table(partition_by="truncate(10, k)")
        (node,) = cluster.nodes
        for number in range(4):
            node.insert(rows(5 * number, 5))
        answer = node.post("optimize", {"partition": "10", "final": True})
        assert [merge["result"] for merge in answer["merges"]] == ["10_2_3_1"]
        assert sorted(node.contents()) == ["0_0_0_0", "0_1_1_0", "10_2_3_1"]
        again = node.post("optimize", {"partition": "nothing"})
        assert (again["merges"], again["finished"]) == ([], True)
        assert "no partition 'nothing'" in again["reason"]
    finally:
        cluster.close()


def test_an_optimize_of_more_merges_than_are_remembered_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "COMMANDS_MAX", 1)
    cluster = InProcessCluster(tmp_path, replicas=1)
    try:
        cluster.create_table(partition_by="truncate(10, k)")
        (node,) = cluster.nodes
        for number in (0, 5, 10, 15, 20, 25):
            node.insert(rows(number, 5))
        answer = node.post("optimize", {"final": True})
        assert (answer["finished"], len(answer["merges"])) == (True, 3)
        assert sorted(node.contents()) == ["0_0_1_1", "10_2_3_1", "20_4_5_1"]
    finally:
        cluster.close()


def test_an_optimize_that_comes_too_late_for_its_parts_looks_again(
    paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = paused.nodes
    for number in range(3):
        first.insert(rows(10 * number))
    wait_for(lambda: len(first.table().progress.held) == 3, "it has the parts")
    merges = first.table().merges
    propose, tries = merges.propose_entries, list[int]()

    def after_a_drop(epoch: fx.Epoch, entries: Sequence[MergeEntry]) -> tuple[fx.LogIndex, ...]:
        tries.append(len(entries))
        if len(tries) == 1:
            second.post("drop", {"all": True})
        return propose(epoch, entries)

    monkeypatch.setattr(merges, "propose_entries", after_a_drop)
    answer = first.post("optimize", {"final": True})
    assert (answer["merges"], answer["finished"], tries[0]) == ([], True, 1)
    assert len(tries) > 1
    paused.wait_equal([])


def test_an_optimize_without_time_tells_for_which_parts_it_came_too_late(
    paused: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = paused.nodes
    for number in range(3):
        first.insert(rows(10 * number))
    wait_for(lambda: len(first.table().progress.held) == 3, "it has the parts")
    merges = first.table().merges
    propose = merges.propose_entries

    def after_a_drop(epoch: fx.Epoch, entries: Sequence[MergeEntry]) -> tuple[fx.LogIndex, ...]:
        second.post("drop", {"all": True})
        indexes = propose(epoch, entries)
        first.table().context.pull_signal.hurry()
        wait_for(lambda: first.table().progress.is_executed(indexes[-1]), "the merge is seen")
        return indexes

    monkeypatch.setattr(merges, "propose_entries", after_a_drop)
    answer = first.post("optimize", {"final": True}, wait_s=0)
    assert (answer["merges"], answer["finished"]) == ([], False)
    assert "partition all" in answer["reason"]


@pytest.fixture
def replacing(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with a table that keeps the newest row of each key."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table(policy="replacing")
    yield cluster
    cluster.close()


def test_a_final_optimize_keeps_one_row_of_each_key(replacing: InProcessCluster) -> None:
    first, second = replacing.nodes
    first.insert(rows(0))
    second.insert(rows(5))
    replacing.wait_alike()
    assert first.post("optimize", {"final": True})["finished"] is True
    assert first.keys() == list(range(15))
    replacing.wait_equal(list(range(15)))
