"""A recorded run of a real cluster: several clients at once, and the verdict on what they wrote down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files

pytestmark = pytest.mark.system

TRIES = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running cluster of two replicas."""
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder, 2, durable=False) as cluster:
        cluster.create_table("t", "k bigint not null, v string", order_by="k")
        yield folder


def test_clients_of_a_real_cluster_leave_a_history_that_is_fine(folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"history-{number}.jsonl" for number in range(2)]

    def work(number: int) -> None:
        with replitree.connect(folder, record=files[number]) as connection:
            table = connection.table("t")
            for k in range(TRIES):
                first = 1_000 * number + 2 * k
                index = table.insert({"k": [first, first + 1], "v": ["a", "b"]}, token=f"{number}-{k}").index
                table.to_arrow()
                table.replica(f"r{1 + k % 2}").to_arrow(["k"], min_index=index)
                table.replica(f"r{1 + k % 2}").to_arrow(level="linearizable")
                table.replica(f"r{2 - k % 2}").to_arrow(level="sequential")
            table.to_arrow(as_of=TRIES)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = read_files(files)
    verdict = check(history)
    assert verdict.fine, verdict.anomalies[:1]
    assert (verdict.inserts, verdict.reads) == (2 * TRIES, 2 * (4 * TRIES + 1))
    # each read waits for what its own connection has inserted, so clients see their own inserts
    assert "Q2" not in check(history, "sequential").counts
