"""Merges on an object store with real processes, of which the one that merges is paused or killed in the middle of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from replitree.client import Table
from replitree.client.cluster import LocalCluster
from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Get
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.storage.objects import open_store
from replitree.storage.parts.encode import FILE_ROWS_MIN
from tests.client.test_shared_system import Shares
from tests.shared.stores import credentials
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS = {
    "old_parts_lifetime_s": 0.5,
    "shared_cache_bytes": 0,
    "session_timeout_s": 4.0,
    "merge_memory_bytes": 8 << 20,
    "fetch_wait_s": 600.0,
    "part_bytes_max": 1,
}
"""Small windows make merges slow; who waits would wait for ten minutes without the mark; nothing is merged unasked."""

ROWS, PARTS, TRIES = 300_000, 4, 5


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with credentials(), LocalCluster(folder, 3, durable=False, settings=SETTINGS) as cluster:
        yield cluster


def batch(number: int) -> pa.Table:
    """Rows whose keys lie between those of all other batches."""
    keys = np.arange(ROWS, dtype=np.int64) * 64 + number
    noise = np.random.default_rng(number).integers(0, 1 << 62, (2, ROWS))
    return pa.table({"k": keys, "a": noise[0], "b": pa.array(noise[1].astype(str))})


class Merging:
    """A table that is merged on request, and who does it."""

    def __init__(self, cluster: LocalCluster, table: Table, shares: Shares) -> None:
        self.cluster, self.table, self.shares = cluster, table, shares
        self.inserted = 0

    def fill(self) -> None:
        for _ in range(PARTS):
            self.table.insert(batch(self.inserted))
            self.inserted += 1

    def fill_and_begin(self) -> threading.Thread:
        """Insert parts, and ask for a merge of everything."""
        self.fill()
        return self.ask(lambda: self.table.optimize(final=True))

    def ask(self, what: Callable[[], object]) -> threading.Thread:
        """Ask for something, and do not wait for it."""

        def tried() -> None:
            with suppress(ReplitreeError):
                what()

        asked = threading.Thread(target=tried)
        asked.start()
        return asked

    def mark(self) -> tuple[str, str] | None:
        """The result that is being made, and who makes it."""
        place = self.shares._place  # noqa: SLF001
        for result in self.shares.children(layout.all_merged(place)):
            node = self.shares._session.perform(Get(layout.merged(place, result)))  # noqa: SLF001
            if node is not None:
                return result, node.value.decode().partition("~")[0]
        return None

    def catch(self, signal_number: int, begin: Callable[[int], threading.Thread] | None = None) -> tuple[str, str]:
        """Send who makes a result a signal in the middle of it; return the result and the replica.

        Parameters
        ----------
        begin
            Asks for a result, and is given the number of the try; by default new parts are merged.
        """
        for number in range(TRIES):
            asked = begin(number) if begin is not None else self.fill_and_begin()
            wait_for(lambda: self.mark() is not None, "somebody makes it", 60.0)
            found = self.mark()
            if found is not None:
                pid = next(each.pid for each in self.cluster.processes if each.name == found[1])
                os.kill(pid, signal_number)
                if self.mark() == found:
                    return found
                os.kill(pid, signal.SIGCONT)
            asked.join(120.0)
        raise AssertionError(f"all of {TRIES} results were made too fast")

    def holders(self, result: str) -> set[str]:
        """Who has registered a result, or what has become of it since."""
        place = self.shares._place  # noqa: SLF001
        parts = {name: self.shares.children(layout.parts(Replica(place, name))) for name in self.cluster.names}
        made = parse_part(result)
        return {name for name, some in parts.items() if any(parse_part(part).covers(made) for part in some)}

    def told(self) -> str:
        """What each replica has, and why its queue waits; for a failure."""
        replicas = self.cluster.status(self.table.name).tables[0].replicas
        return str(
            [(each.name, each.state, each.reason, each.queue, each.running, each.postponed) for each in replicas]
        )

    def wait_for_all(self, result: str, last: str) -> None:
        """Wait until the last one has a result, too."""
        everybody = set(self.cluster.names)
        wait_for(lambda: self.holders(result) == everybody, lambda: f"{last} has it, too: {self.told()}", 60.0)

    def check(self) -> None:
        """Everybody has every row once, and the store has exactly what is referred to."""
        self.shares.wait_settled()
        for name in self.cluster.names:
            keys = self.table.replica(name).to_arrow(level="linearizable", columns=["k"])["k"].to_numpy()
            assert len(keys) == self.inserted * ROWS
            assert len(np.unique(keys)) == len(keys)


@pytest.fixture
def merging(running: LocalCluster, store_url: str) -> Iterator[Merging]:
    name, schema = f"merging_{len(running.tables())}", "k bigint, a bigint, b string"
    table = running.create_table(name, schema, order_by="k", storage=store_url, wait_replicas=3)
    shares = Shares(running, table, open_store(store_url))
    yield Merging(running, table, shares)
    running.drop_table(name)
    shares.close()


def test_who_merges_is_paused_for_longer_than_its_session(merging: Merging) -> None:
    result, slow = merging.catch(signal.SIGSTOP)
    pid = next(each.pid for each in merging.cluster.processes if each.name == slow)
    try:
        wait_for(lambda: len(merging.holders(result)) == 2, "the others have merged it", 90.0)
        assert slow not in merging.holders(result)
    finally:
        os.kill(pid, signal.SIGCONT)
    merging.wait_for_all(result, "the slow one")
    merging.check()
    assert len(merging.shares.stored()) == 1


def test_who_merges_is_killed(merging: Merging) -> None:
    result, killed = merging.catch(signal.SIGKILL)
    wait_for(lambda: len(merging.holders(result)) == 2, "the others have merged it", 90.0)
    merging.cluster.kill(killed)
    merging.cluster.start(killed)
    merging.wait_for_all(result, "the killed one")
    merging.check()
    assert len(merging.shares.stored()) == 1


def test_who_writes_some_files_of_a_part_anew_is_killed(merging: Merging) -> None:
    """A part of two files; each try deletes a row of the first one, until somebody is caught at it."""
    table, keys = merging.table, np.arange(2 * FILE_ROWS_MIN, dtype=np.int64)
    noise = np.random.default_rng(0).integers(0, 1 << 62, (2, len(keys)))
    table.insert(pa.table({"k": keys, "a": noise[0], "b": pa.array(noise[1].astype(str))}))
    (part,) = table.snapshot().parts
    assert len(part.manifest.files) == 2
    result, killed = merging.catch(
        signal.SIGKILL, lambda number: merging.ask(lambda: table.delete(f"k = {number}", command_id=f"d{number}"))
    )
    wait_for(lambda: len(merging.holders(result)) == 2, "the others have it", 90.0)
    merging.cluster.kill(killed)
    merging.cluster.start(killed)
    merging.wait_for_all(result, "the killed one")
    merging.shares.wait_settled()
    (made,) = (each.manifest for each in table.snapshot(level="linearizable").parts)
    assert [file.name for file in made.files if file.borrowed_of] == [part.manifest.files[1].name]
    assert merging.shares.stored() == set(made.shares)
    for name in merging.cluster.names:
        found = table.replica(name).to_arrow(level="linearizable", columns=["k"])["k"].to_numpy()
        assert np.array_equal(found, keys[-len(found) :])
        assert len(keys) - TRIES <= len(found) < len(keys)
