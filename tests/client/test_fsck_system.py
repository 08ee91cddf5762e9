"""Fsck on a real S3 server, which fails now and then, while replicas work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Create
from replitree.protocol.core.layout import TablePlace
from replitree.storage.objects import open_store
from tests.replica.inprocess import ROOT, TOKEN, InProcessCluster, rows
from tests.shared.stores import BUCKET, FAULTY, FOLDER, on

pytestmark = pytest.mark.system

TABLE = TablePlace(layout.table_path(ROOT, "t"))
INSERTS = 12
CHECKS_MAX = 1000
LEFT, UNOWNED = "0" * 32, "1" * 32


@pytest.fixture
def cluster(tmp_path: Path, store_url: str) -> Iterator[InProcessCluster]:
    """Two replicas that end before their store does."""
    del store_url
    made = InProcessCluster(tmp_path, 2, old_parts_lifetime_s=0.0)
    yield made
    made.close()


@pytest.fixture
def connection(cluster: InProcessCluster) -> Iterator[Connection]:
    tree = cluster.shared
    made = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(tree))
    yield made
    made.close()


class Checks:
    """Runs fsck over and over beside what is done, and remembers what it told."""

    def __init__(self, connection: Connection) -> None:
        self.told: list[str] = []
        self._connection = connection
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._check)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _check(self) -> None:
        for _ in range(CHECKS_MAX):
            is_last = self._done.is_set()
            found = self._connection.fsck("t", with_repair=True, grace_s=0.0).findings
            self.told += [f"{each.kind} {each.share} {each.repair}" for each in found]
            if is_last:
                return


@on(FAULTY, at_night=(FOLDER, BUCKET))
def test_repairs_beside_inserts_and_merges_lose_nothing(
    store_url: str, cluster: InProcessCluster, connection: Connection
) -> None:
    """With no grace at all: what is young is safe, too, because every repair proves it."""
    definition = cluster.create_table(storage=store_url)
    store, place = open_store(store_url), f"tables/{definition.table_id}"
    for share in (LEFT, UNOWNED):
        store.create(f"{place}/{share}/data-0.parquet", b"1234")
    cluster.admin.perform(Commit(Create(layout.share(TABLE, UNOWNED))))
    with Checks(connection) as checks:
        for number in range(INSERTS):
            status, answer = cluster.nodes[number % 2].insert(rows(10 * number))
            assert status == 200, answer
        cluster.wait_equal(list(range(10 * INSERTS)))
    assert {f"orphan {LEFT} done", f"unowned {UNOWNED} done"} <= set(checks.told)
    assert not any(text.startswith(("dangling", "unmarked")) for text in checks.told)
    cluster.wait_equal(list(range(10 * INSERTS)))
    assert not list(store.list(f"{place}/{LEFT}"))
