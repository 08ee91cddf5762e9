"""Stages of a joint insert: the CPU time of each kind of thread, per shard that it touches.

Two servers run in the process of the benchmark, so that the system can tell what each of their threads has used; ZooKeeper is a
process of its own.  One client inserts `ROWS` rows into all shards of a table, then waits until the servers are at rest again.
What they do at rest is left out.

Keys of `StagesBench.measure`, each in CPU milliseconds of one insert, divided by the number of shards::

    stage_<name>_ms     of the threads of a stage, both replicas together: see `STAGES`
    zookeeper_ms        of ZooKeeper's process
    sum_ms              of all of them, the client included
    zk_requests         requests of both servers to ZooKeeper
    insert_ms           p50 of how long an insert takes; of all shards
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from replitree.client import Connection
from replitree.client.transport.access import Access
from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.replica.http.http_server import HttpServer
from replitree.replica.kit.config import Address, ServerConfig
from replitree.replica.server import Server
from replitree.replica.server_process import COLLECT_OBJECTS
from replitree_bench.kit.report import Measured, Report, medians, quantile
from replitree_bench.kit.systems import REPLICAS, SCHEMA, make_rows

SHARDS = 16
ROWS = 1_000
INSERTS = 5
"""In one round: so few that no merge begins, which is a cost of its own."""

WARM_UPS = 2
QUIET_S = 1.0
CREATE_S = 120.0

STAGES = {
    "http-": "request",
    "stage-": "stage",
    "sync-": "sync",
    "commit-": "commit",
    "pull-": "pull",
    "execute-small-": "execute",
    "execute-making-": "merge",
    "lead-": "merge",
    "Thread-": "session",
    "MainThread": "client",
}
"""What the threads do whose names begin so.

``request``: take rows, split and check them, and send parts to the other replica; ``stage``: encode and write files;
``commit``: gather requests, commit; ``pull``: read the log, commit; ``execute``: publish or fetch a part, sync, register it;
``session``: kazoo's connection to ZooKeeper.
"""

HOST = "127.0.0.1"


class StagesBench:
    """A sharded table on two servers in this process.

    Parameters
    ----------
    folder
        Where the servers and ZooKeeper have their data.
    shards
        Of the table.
    """

    def __init__(self, folder: Path, shards: int = SHARDS) -> None:
        self._shards, self._number = shards, 0
        self._ending = ExitStack()
        try:
            zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
            zookeeper.start()
            self._ending.callback(zookeeper.stop)
            pid = zookeeper.pid(0)
            assert pid is not None, "it was started"
            self._zookeeper, token = pid, secrets.token_hex()
            serving = (_serving(folder, f"r{number + 1}", zookeeper.url, token) for number in range(REPLICAS))
            self._sessions = [self._ending.enter_context(each) for each in serving]
            access = Access(zookeeper.url, token)
            connection = self._ending.enter_context(Connection(access, lambda: ZooKeeperCoordination(zookeeper.url)))
            self._table = connection.create_table(
                "stages",
                SCHEMA,
                order_by="k",
                shard_by="k",
                shards=shards,
                wait_replicas=REPLICAS,
                timeout_s=CREATE_S,
            )
            for _ in range(WARM_UPS):
                self._insert()
            # As a server does it: see `replitree.replica.server_process`.
            gc.freeze()
            gc.set_threshold(COLLECT_OBJECTS, 20, 20)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the servers and ZooKeeper."""
        self._ending.close()

    def measure(self, _number: int) -> Measured:
        """Insert, and return what each stage has used."""
        time.sleep(QUIET_S)
        at_rest, began = self._used_ms(), time.perf_counter()
        time.sleep(QUIET_S)
        rest_s = time.perf_counter() - began
        before, began, asked, times = self._used_ms(), time.perf_counter(), self._asked(), list[float]()
        for _ in range(INSERTS):
            times.append(self._insert())
            time.sleep(QUIET_S / 4)
        time.sleep(QUIET_S)
        spent, used = (time.perf_counter() - began) / rest_s, self._used_ms()
        found: Measured = {
            name: (used[name] - before[name] - spent * (before[name] - at_rest[name])) / INSERTS / self._shards
            for name in used
        }
        found["sum_ms"] = sum(found.values())
        found["zk_requests"] = (self._asked() - asked) / INSERTS / self._shards
        found["insert_ms"] = quantile(times, 0.5)
        return found

    def _insert(self) -> float:
        self._number += 1
        rows, began = make_rows(self._number * ROWS, ROWS), time.perf_counter()
        self._table.insert(rows)
        return 1e3 * (time.perf_counter() - began)

    def _asked(self) -> int:
        return sum(sum(session.requests.values()) for session in self._sessions)

    def _used_ms(self) -> dict[str, float]:
        """Return the CPU milliseconds that each stage has used so far."""
        used = dict.fromkeys((*(f"stage_{name}_ms" for name in (*STAGES.values(), "other")), "zookeeper_ms"), 0.0)
        for thread in threading.enumerate():
            stage = next((name for begin, name in STAGES.items() if thread.name.startswith(begin)), "other")
            with suppress(OSError):  # it may have ended
                used[f"stage_{stage}_ms"] += _used_ms_of(Path(f"/proc/self/task/{thread.native_id}"))
        for task in Path(f"/proc/{self._zookeeper}/task").iterdir():
            with suppress(OSError):
                used["zookeeper_ms"] += _used_ms_of(task)
        return used


def stages_report(*, rounds: int, shards: int, say: Callable[[str], None], folder: Path | None = None) -> Report:
    """Measure the stages of inserts into a table of so many shards."""
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        say(f"creating a table of {shards} shards")
        with closing(StagesBench(place, shards)) as bench:
            found = list(map(bench.measure, range(rounds)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    note = "two servers in the process of the benchmark; CPU milliseconds of one insert, for each shard"
    return Report("stages", medians(found), {}, rounds, "", {"machine": note})


def _used_ms_of(task: Path) -> float:
    """Return the CPU milliseconds of a thread."""
    return int((task / "schedstat").read_text().split()[0]) / 1e6


@contextmanager
def _serving(folder: Path, name: str, url: str, token: str) -> Iterator[ZooKeeperCoordination]:
    """Run a server, with its HTTP server on a loop in a thread of its own."""
    token_file = folder / f"{name}.token"
    token_file.touch(0o600)
    token_file.write_text(token)
    config = ServerConfig(name=name, zookeeper=url, data=str(folder / name), token_file=str(token_file))
    loop, session = asyncio.new_event_loop(), ZooKeeperCoordination(url)
    threading.Thread(target=loop.run_forever, name=f"http-{name}", daemon=True).start()
    tables: Any = _Tables()
    http = HttpServer(tables, token, config)
    port = asyncio.run_coroutine_threadsafe(http.listen(HOST, 0), loop).result()
    server = tables.server = Server(config, token, Address(HOST, port), session, session.url.root)
    server.start()
    try:
        yield session
    finally:
        server.stop()
        asyncio.run_coroutine_threadsafe(http.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)


class _Tables:
    """The server of an HTTP server, which listens before it: the server's address has the port."""

    server: Server

    def __getattr__(self, name: str) -> object:
        return getattr(self.server, name)


__all__ = ["STAGES", "StagesBench"]
