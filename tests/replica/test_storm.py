"""Everything at once, with restarts and lost sessions: in the end every replica has exactly the fold of the log."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, GetMany, LogIndex
from replitree.protocol.core.entries import decode_entry
from replitree.protocol.core.fold import fold
from replitree.replica.table import maintenance
from tests.replica.inprocess import InProcessCluster, Node, as_stream, rows, wait_for

TABLE = "/v1/tables/t"


class Storm:
    """Clients of a cluster, each with its own draws; what they hear must be an answer or an error that may be retried."""

    def __init__(self, cluster: InProcessCluster, seed: int, rounds: int) -> None:
        self.cluster = cluster
        self._rounds = rounds
        self._seed = seed
        self._problems: list[BaseException] = []
        self._restarting = threading.Lock()

    def ask(self, draw: random.Random, method: str, path: str, body: bytes | None) -> None:
        node = draw.choice(self.cluster.nodes)
        try:
            status, answer = node.request(method, f"{TABLE}/{path}", body)
        except OSError:
            return
        assert status in (200, 400, 404, 503, 504), answer
        assert "defect" not in str(answer), answer

    def insert(self, draw: random.Random) -> None:
        query = draw.choice(["", "", "", "", "overwrite=partitions&", "overwrite=all&"])
        body = as_stream(rows(draw.randrange(40), 10))
        self.ask(draw, "POST", f"insert?{query}token={draw.random()}", body)

    def command(self, draw: random.Random) -> None:
        key = draw.randrange(50)
        what, body = draw.choice(
            [
                ("mutations", {"sql": f"DELETE FROM t WHERE k = {key}"}),
                ("mutations", {"sql": f"UPDATE t SET v = v + 1 WHERE k > {key}"}),
                ("drop", {"partition": str(key // 10 * 10)}),
                ("drop", {"blocks": [key, key + 3]}),
                ("optimize", {"final": True}),
                ("optimize", {"partition": "10"}),
                ("alter", {"sql": f"ALTER TABLE t ADD COLUMN c{draw.randrange(1000)} int"}),
            ]
        )
        self.ask(draw, "POST", f"{what}?wait_s=0.5", json.dumps(body).encode())

    def disturb(self, draw: random.Random) -> None:
        node = draw.choice(self.cluster.nodes)
        with self._restarting:
            if draw.random() < 0.5:
                self.cluster.shared.expire(node.coordination.session_id)
            else:
                node.restart()
            wait_for(lambda: self.cluster.is_active(node), "active again")

    def run(self, *actions: Callable[[random.Random], None]) -> None:
        def loop(number: int, action: Callable[[random.Random], None]) -> None:
            try:
                draw = random.Random(1000 * self._seed + number)
                for _ in range(self._rounds):
                    action(draw)
            except BaseException as problem:  # noqa: BLE001 - raised again below
                self._problems.append(problem)

        threads = [threading.Thread(target=loop, args=pair) for pair in enumerate(actions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._problems:
            raise self._problems[0]


def fold_of(cluster: InProcessCluster) -> tuple[str, ...]:
    """The parts that the table has, from the log alone."""
    table = cluster.nodes[0].table().replica.table
    names = cluster.admin.perform(Children(layout.log(table))) or ()
    paths = tuple(f"{layout.log(table)}/{name}" for name in names)
    nodes = cluster.admin.perform(GetMany(paths)).nodes
    log = [
        (LogIndex(index), decode_entry(node.value, path))
        for index, (path, node) in enumerate(zip(paths, nodes, strict=True))
        if node is not None
    ]
    return tuple(part.name for part in fold(log))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_replica_ends_with_the_fold_of_the_log(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "ORPHANS_S", 0.0)
    cluster = InProcessCluster(tmp_path, replicas=3, old_parts_lifetime_s=0.0, merge_threads=2)
    try:
        cluster.create_table(partition_by="truncate(10, k)")
        storm = Storm(cluster, seed, rounds=15)
        storm.run(storm.insert, storm.insert, storm.command, storm.command, storm.disturb)
        for node in cluster.nodes:
            wait_for(lambda node=node: cluster.is_active(node), "active in the end")  # type: ignore[misc]
        settle(cluster)
    finally:
        cluster.close()


def settle(cluster: InProcessCluster) -> None:
    """Wait until nothing is left to do, and compare with the log and with the disks."""
    parts = cluster.wait_alike()
    assert tuple(sorted(parts)) == tuple(sorted(fold_of(cluster)))
    for node in cluster.nodes:
        registered = cluster.admin.perform(Children(layout.parts(node.table().replica)))
        assert registered is not None

        def is_tidy(node: Node = node) -> bool:
            return untidy(node, parts) == ([], (), ())

        try:
            wait_for(is_tidy, "", 10.0)
        except AssertionError:
            assert untidy(node, parts) == ([], (), ()), f"{node.name} has on disk what the table has not"


def untidy(node: Node, parts: dict[str, str]) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """What is on a disk and should not be: parts, staging ids, fetches."""
    store = node.table().store
    return [part for part in store.parts() if part not in parts], store.stagings(), store.fetches()
