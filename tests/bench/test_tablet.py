"""The benchmark of tablets measures what it says, with small numbers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from replitree_bench.tablet.directories import TabletBench, histogram
from replitree_bench.tablet.loops import SmallWrites, synced_loops
from replitree_bench.tablet.store import GET_DOLLARS, PUT_DOLLARS, StoreBench


@pytest.mark.slow
def test_round_has_every_key_and_a_restart_takes_five_round_trips(tmp_path: Path) -> None:
    ours, plain = TabletBench(tmp_path, commands=200, recovered=300).measure(0)
    assert {"group_commit", "group_commit_one", "one_client", "one_client_copies"} <= set(ours) & set(plain)
    assert all(value > 0 for value in (*ours.values(), *plain.values()))
    assert (ours["restart_round_trips"], ours["restart_all_round_trips"]) == (5, 8)


def test_loops_write_and_sync_as_often_and_as_much_as_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = Counter[str](), os.fdatasync

    def fdatasync(descriptor: int) -> None:
        synced[Path(f"/proc/self/fd/{descriptor}").readlink().name] += 1
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    assert synced_loops(tmp_path / "loop", [[5, 7], [12], [1] * 4], 2) > 0
    assert synced == {"0": 2, "1": 1, "2": 4}
    assert [(tmp_path / "loop" / str(number)).stat().st_size for number in range(3)] == [12, 12, 4]
    with SmallWrites(tmp_path, b"small") as loop:
        loop.write_one()
        loop.write_two_of_three()
        loop.wait()
    assert [(tmp_path / f"small-{number}").read_bytes() for number in range(4)] == [b"small"] * 4
    assert sum(synced.values()) == 11


def test_histogram_counts_every_time() -> None:
    assert histogram([0.0001] * 3 + [0.001]) == {"0.25": 3, "1": 1}


@pytest.mark.slow
def test_batch_on_a_store_is_one_put_and_at_most_one_get(tmp_path: Path) -> None:
    ours, plain = StoreBench(f"file://{tmp_path}", commits=200, recovered=120).measure()
    assert set(plain) <= set(ours)
    assert ours["puts_per_batch"] == 1
    assert 0 < ours["gets_per_batch"] <= 1
    assert ours["cost_per_million"] * ours["commits_per_batch"] <= PUT_DOLLARS + GET_DOLLARS + 0.001
    assert ours["recovery_gets"] >= 120
    # Requests that a busy machine sends only after another one was answered count as one more.
    assert 5 <= ours["restart_round_trips"] <= 7
    # The process tries what the store can do.
    assert ours["restart_first_round_trips"] > ours["restart_round_trips"]
