"""The benchmark of a steady stream: what it sends, and what it counts."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from replitree.client import Table
from replitree.client.cluster import LocalCluster
from replitree.errors import ReplitreeError
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from replitree_bench.kit.systems import SCHEMA, make_rows
from replitree_bench.table import steady
from replitree_bench.table.steady import PartWatch, partition_parts, run_stream, write_amplification


def test_every_insert_falls_due_once() -> None:
    numbers: list[int] = []
    stream = run_stream(numbers.append, seconds=0.05, rate=400, clients=4)
    assert sorted(numbers) == list(range(20))
    assert stream.inserts == len(stream.latencies_s) == len(stream.due_s) == 20
    assert stream.seconds >= 19 / 400


def test_a_late_insert_does_not_put_off_the_next_one() -> None:
    """One client is held up until all the others' inserts are done."""
    done = threading.Semaphore(0)

    def insert(number: int) -> None:
        if number == 0:
            for _ in range(9):
                assert done.acquire(timeout=20)
        else:
            done.release()

    stream = run_stream(insert, seconds=0.01, rate=1000, clients=2)
    assert stream.inserts == 10
    assert max(stream.due_s) >= 9 / 1000  # it was due before all the others


def test_an_insert_that_fails_ends_the_stream() -> None:
    def insert(number: int) -> None:
        if number == 3:
            raise ReplitreeError("broken")

    with pytest.raises(ReplitreeError, match="broken"):
        run_stream(insert, seconds=3600, rate=1000, clients=3)


def test_parts_are_counted_by_partition() -> None:
    assert partition_parts(()) == 0
    assert partition_parts(["2018-01_0_0_0", "2018-02_1_1_0", "2018-01_2_9_1"]) == 2


def test_what_merges_wrote_counts_again() -> None:
    assert write_amplification({}) == 0
    assert write_amplification({"all_0_0_0": 10, "all_1_1_0": 10}) == 1
    assert write_amplification({"all_0_0_0": 10, "all_1_1_0": 10, "all_0_1_1": 20, "all_0_5_2": 20}) == 3


def test_the_parts_on_disk_are_looked_through(tmp_path: Path) -> None:
    definition = define_table("t", SCHEMA, order_by="k", table_id="0" * 32)
    for part, rows in (("all_0_0_0", 10), ("all_1_1_0", 20), ("all_0_1_1", 30)):
        stage_table(make_rows(0, rows), definition, tmp_path, prefix="new@")
        (tmp_path / "new@all").rename(tmp_path / part)
    (tmp_path / "all_2_2_0").mkdir()  # on its way out
    watch = PartWatch((), tmp_path)
    watch.scan()
    assert watch.rows == {"all_0_0_0": 10, "all_1_1_0": 20, "all_0_1_1": 30}
    assert write_amplification(watch.rows) == 2
    assert set(watch.sizes) == set(watch.rows)


def test_a_watch_that_fails_is_not_taken_for_one_that_saw_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot(_: int) -> None:
        raise ReplitreeError("gone")

    monkeypatch.setattr(steady, "LOOK_S", 0.0)
    watch = PartWatch((cast("Table", SimpleNamespace(snapshot=snapshot)),), tmp_path)
    watch.run()
    with pytest.raises(ReplitreeError, match="could not be counted any more: gone"):
        watch.check()


@pytest.mark.slow
def test_a_stream_on_real_replicas_is_counted_to_the_end(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        measured = steady.measure(cluster, seconds=1, rate=20, clients=4, say=lambda _: None)
    assert measured["asked_per_s"] == 20
    assert 0 < measured["inserts_per_s"] <= 22
    assert 1 <= measured["partition_parts_end"] <= measured["partition_parts_max"] <= 20
    assert measured["row_write_amplification"] >= 1
    assert measured["write_amplification"] >= 1
