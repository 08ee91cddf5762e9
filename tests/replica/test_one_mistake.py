"""One client's mistake concerns nobody else: it is answered to its own request, and costs no epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.coordination.port import REQUEST_BYTES_MAX, commit_bytes
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, encode_entry, inserted_parts
from replitree.protocol.core.layout import NAME_LENGTH_MAX, Replica, TablePlace
from replitree.protocol.program.inserter import accept_insert
from replitree.protocol.state.registration import leave_queue, register
from replitree.replica.insert import inserts as inserts_module
from replitree.replica.perform import progress
from replitree.replica.perform.availability import State
from replitree.replica.perform.commit_size import PARTS_MAX, check_insert
from replitree.storage.parts import encode
from replitree.storage.schema.definition import TableSettings, define_table
from replitree.storage.schema.definition_checks import PARTITIONS_PER_INSERT_MAX
from tests.replica.inprocess import SCHEMA, InProcessCluster, Node, rows, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with the table `t`, partitioned by `k`, of which an insert may write to five partitions."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table(settings=TableSettings(partitions_per_insert_max=5), partition_by=["k"])
    yield cluster
    cluster.close()


def activations(node: Node, table: str = "t") -> float:
    """How often a table of this server has been activated."""
    samples = [sample for metric in node.server.metrics.activations.collect() for sample in metric.samples]  # type: ignore[union-attr]
    counts = [s.value for s in samples if s.name.endswith("_total") and s.labels["table"] == table]
    return sum(counts)


def hold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let no group begin until the event is set, so that what comes meanwhile forms one."""
    go_on, real = threading.Event(), accept_insert

    def held(*arguments: Any) -> Any:
        assert go_on.wait(60)
        return real(*arguments)

    monkeypatch.setattr(inserts_module, "accept_insert", held)
    return go_on


def insert_together(
    node: Node, monkeypatch: pytest.MonkeyPatch, tables: list[pa.Table], before: pa.Table
) -> list[tuple[int, Any]]:
    """Insert one table, and meanwhile others that form one group; return the answers to these."""
    answers: dict[int, tuple[int, Any]] = {}
    go_on = hold(monkeypatch)

    def client(number: int, table: pa.Table) -> None:
        answers[number] = node.insert(table, token=f"token-{number}")

    committer = node.table().inserts._committer  # noqa: SLF001 - a group is what waits in it
    threads = [threading.Thread(target=client, args=(0, before))]
    threads[0].start()
    wait_for(lambda: node.table().inserts._answers, "the first group is on its way")  # noqa: SLF001
    threads += [threading.Thread(target=client, args=each) for each in enumerate(tables, 1)]
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: len(committer._waiting) == len(tables), "all wait")  # noqa: SLF001
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers[0][0] == 200
    return [answers[number] for number in range(1, len(tables) + 1)]


def test_too_many_partitions_are_refused_before_the_group_and_cost_nobody_anything(cluster: InProcessCluster) -> None:
    first = cluster.nodes[0]
    before = [activations(node) for node in cluster.nodes]
    for _ in range(20):
        status, answer = first.insert(rows(0, 6))
        assert (status, answer["error"]) == (400, "BadInput")
        assert "6 partitions" in answer["message"]
        assert "may write to 5" in answer["message"]
    assert first.insert(rows(0, 5))[0] == 200
    assert [activations(node) for node in cluster.nodes] == before


def test_good_inserts_of_many_clients_go_on_beside_one_whose_inserts_are_refused(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    before = [activations(node) for node in cluster.nodes]
    refused: list[int] = []
    statuses: list[int] = []

    def bad() -> None:
        refused.extend(node.insert(rows(0, 6))[0] for node in (first, second) for _ in range(25))

    def good(number: int) -> None:
        statuses.extend(first.insert(rows(1000 * number + i, 1))[0] for i in range(20))

    threads = [threading.Thread(target=bad), *(threading.Thread(target=good, args=(number,)) for number in (1, 2, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == [400] * 50
    assert statuses == [200] * 60
    assert [activations(node) for node in cluster.nodes] == before


def test_a_group_may_write_to_more_partitions_than_one_of_its_inserts(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    answers = insert_together(first, monkeypatch, [rows(10 * number, 4) for number in range(1, 5)], rows(0, 1))
    assert [status for status, _ in answers] == [200] * 4
    assert len({answer["index"] for _, answer in answers}) == 1, "they were one group"


def test_a_group_that_cannot_be_written_is_split_and_the_others_go_on(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    before = activations(first)
    real = encode.stage_table

    def stage_table(table: pa.Table, *arguments: Any, **settings: Any) -> Any:
        if 20 in table["k"].to_pylist():
            raise pa.ArrowInvalid("a value that no kernel writes")
        return real(table, *arguments, **settings)

    monkeypatch.setattr(encode, "stage_table", stage_table)
    answers = insert_together(first, monkeypatch, [rows(10, 2), rows(20, 2), rows(30, 2)], rows(0, 1))
    assert [status for status, _ in answers] == [200, 400, 200]
    assert answers[1][1]["error"] == "BadInput"
    assert "a value that no kernel writes" in answers[1][1]["message"]
    cluster.wait_equal([0, 10, 11, 30, 31])
    assert first.table().store.stagings() == ()
    assert activations(first) == before


def test_a_commit_that_is_too_large_for_a_group_is_made_for_each_of_its_inserts(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    before = activations(first)
    real = first.table().performer.perform

    def perform(effect: fx.Effect) -> Any:
        if isinstance(effect, fx.Commit) and sum("/blocks/" in each.path for each in effect.operations) > 1:
            raise BadInput("a commit of 1849437 bytes is larger than 1000000; nothing was sent")
        return real(effect)

    monkeypatch.setattr(first.table().performer, "perform", perform)
    answers = insert_together(first, monkeypatch, [rows(10, 2), rows(20, 2)], rows(0, 1))
    assert [status for status, _ in answers] == [200, 200]
    cluster.wait_equal([0, 10, 11, 20, 21])
    assert activations(first) == before


@pytest.mark.parametrize(
    ("fails", "status", "error"),
    [
        ("stage", 503, "ReadOnly"),
        ("too large", 400, "BadInput"),
        ("not sent", 503, "ReadOnly"),
        ("sent", 504, "OutcomeUnknown"),
    ],
)
def test_only_what_was_sent_is_unknown_and_only_that_costs_an_epoch(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, fails: str, status: int, error: str
) -> None:
    first = cluster.nodes[0]
    before, real, failed = activations(first), first.table().performer.perform, list[str]()

    def fail(effect: fx.Effect) -> Any:
        if failed:
            return real(effect)
        # The replica's leader may elect itself and append entries meanwhile; only the insert registers a block.
        inserts = isinstance(effect, fx.Commit) and any("/blocks/" in each.path for each in effect.operations)
        if (fails == "stage" and isinstance(effect, fx.Stage)) or (inserts and fails != "stage"):
            failed.append(fails)
            match fails:
                case "too large":
                    raise BadInput("a commit of 1849437 bytes is larger than 1000000; nothing was sent")
                case "not sent":
                    return fx.Unknown(is_sent=False)
            raise AssertionError("a defect")
        return real(effect)

    with monkeypatch.context() as broken:
        broken.setattr(first.table().performer, "perform", fail)
        answer = first.insert(rows(0, 2), token="x")
    assert (answer[0], answer[1]["error"]) == (status, error)
    wait_for(lambda: first.insert(rows(0, 2), token="x")[0] == 200, "it is inserted when it is repeated")
    cluster.wait_equal([0, 1])
    wait_for(lambda: first.table().store.stagings() == (), "nothing is left of it")
    assert activations(first) == before + (fails == "sent")


def test_a_disk_that_takes_other_writes_makes_no_replica_read_only(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    before = activations(first)
    with monkeypatch.context() as full:
        full.setattr(first.table().store, "staging_prefix", lambda staging: f"no/such/folder/{staging}@")
        assert first.insert(rows(0, 2))[0] == 503
        assert first.table().availability.state is State.ACTIVE
    assert first.insert(rows(0, 2))[0] == 200
    assert activations(first) == before


def test_a_full_disk_costs_no_epoch(cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cluster.nodes[0]
    before = activations(first)
    for _ in range(3):
        with monkeypatch.context() as full:
            full.setattr(first.table().store, "free_bytes", lambda: 0)
            wait_for(lambda: first.table().availability.state is State.READ_ONLY, "read-only")
        wait_for(lambda: first.table().availability.state is State.ACTIVE, "active again")
    assert first.insert(rows(0, 2))[0] == 200
    assert activations(first) == before


def test_a_round_of_maintenance_that_fails_costs_no_epoch(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.nodes[0]
    before, failed = activations(first), list[int]()

    def fail() -> None:
        failed.append(1)
        raise BadInput("something is in the way")

    with monkeypatch.context() as broken:
        broken.setattr(first.table().maintenance, "work", fail)
        wait_for(lambda: len(failed) > 2, "several rounds have failed")
    assert first.insert(rows(0, 2))[0] == 200
    assert activations(first) == before


# --- sizes of commits -------------------------------------------------------------------------------------------------------

LONGEST = Replica(TablePlace(layout.table_path("/replitree", "t" * NAME_LENGTH_MAX)), "r" * NAME_LENGTH_MAX)


def _commits(replica: Replica, partitions: list[str], drops: tuple[str, ...]) -> tuple[fx.Commit, fx.Commit]:
    """The commits that append an insert and that register it, with the largest numbers."""
    index = fx.LogIndex(9_999_999_999)
    parts = tuple(fx.StagedPart(each, 99_999_999_999, 99_999_999_999, "f" * 32) for each in partitions)
    entry = GetEntry(replica.name, fx.StagingId("s" * 60), parts, (), 9_999, format=2, drops=drops)
    append = fx.Commit(
        fx.Check(layout.host(replica), fx.Epoch(1)), fx.Create(layout.log_create(replica.table), encode_entry(entry))
    )
    notes = tuple(fx.Create(layout.drop(replica.table, each), str(index).encode()) for each in drops)
    registers = tuple(register(replica, part, "f" * 32) for part in inserted_parts(entry, index))
    finish = fx.Commit(fx.Check(layout.host(replica), fx.Epoch(1)), *notes, *registers, leave_queue(replica, index))
    return append, finish


@pytest.mark.parametrize("count", [PARTS_MAX, PARTITIONS_PER_INSERT_MAX])
def test_as_many_partitions_as_a_table_may_allow_fit_in_a_commit(count: int) -> None:
    partitions = [f"{number:080d}" for number in range(count)]
    check_insert(LONGEST, partitions)
    assert all(commit_bytes(commit) < REQUEST_BYTES_MAX for commit in _commits(LONGEST, partitions, ()))


@pytest.mark.parametrize("count", [2_000, 3_000, 4_000, 8_000])
@pytest.mark.parametrize("overwrites", [False, True])
def test_an_insert_is_refused_before_its_commits_would_be(count: int, overwrites: bool) -> None:
    replica = Replica(TablePlace(layout.table_path("/replitree", "t")), "r" * NAME_LENGTH_MAX)
    partitions = [f"{number:012d}" for number in range(count)]
    drops = tuple(partitions) if overwrites else ()
    fits = all(commit_bytes(commit) < REQUEST_BYTES_MAX for commit in _commits(replica, partitions, drops))
    if count == 2_000 and not overwrites:
        assert fits
        check_insert(replica, partitions, drops)
    elif not fits:
        with pytest.raises(BadInput, match=f"{count:,} partitions"):
            check_insert(replica, partitions, drops)


def test_a_setting_above_what_a_commit_carries_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"partitions_per_insert_max must be at most 2,000, not 2001: an insert is one commit"
    ):
        define_table("t", SCHEMA, settings=TableSettings(partitions_per_insert_max=PARTITIONS_PER_INSERT_MAX + 1))


def test_entries_with_many_parts_are_registered_in_several_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PARTS_MAX", 100)
    cluster = InProcessCluster(tmp_path)
    try:
        cluster.create_table(partition_by=["k"])
        first, second = cluster.nodes
        second.coordination.suspend()
        for number in range(4):
            assert first.insert(rows(40 * number, 40))[0] == 200
        largest: list[int] = []
        real = second.table().performer.perform

        def perform(effect: fx.Effect) -> Any:
            if isinstance(effect, fx.Commit):
                largest.append(sum("/parts/" in each.path for each in effect.operations))
            return real(effect)

        second.table().performer.perform = perform  # type: ignore[method-assign]
        second.coordination.resume()
        cluster.wait_equal(list(range(160)))
        assert max(largest) == 80, "two entries fit in a commit of 100 parts"
    finally:
        cluster.close()
