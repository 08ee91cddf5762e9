"""Coordination is away, in five ways: does `/health` say so in time, and is the replica back by itself?

``python -m tests.faults.away --rounds 20 [--ways closed,closes,silent,no-quorum,wiped] [--session-timeout 10]``

Each round takes coordination away from two replicas with a table, waits until `/health` of both is 503, lets coordination serve
again, and waits until both are back:

==========  ================================================================================================================
closed      the servers are killed; nobody listens on their ports
closes      each connection is taken and reset
silent      connections are taken and stay open, and no byte passes
no-quorum   two of three servers are killed
wiped       the servers are killed and their data are deleted; they begin anew, with nothing.  The servers say that the table
            vanished, the doctor says `table-gone`, the table is restored from r1, and r2 recovers without a restart
==========  ================================================================================================================

It ends with 1 when a round is too slow: 503 later than the session timeout and 5 s, or back later than 10 s after service.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from replitree.client.admin.doctor import examine
from replitree.client.cluster import TOKEN_FILE
from replitree.client.connection import connect
from replitree.replica.kit.config import load_config
from replitree.replica.rescue.restore import restore_table
from tests.faults.arguments import say
from tests.faults.cluster import FaultCluster
from tests.faults.proxy import HELD
from tests.waiting import wait_for

WAYS = ("closed", "closes", "silent", "no-quorum", "wiped")
NOTICE_S = 5.0
"""How much later than the session timeout `/health` may say that coordination is away."""

BACK_S = 10.0
"""How long after coordination serves again a replica may need."""

TABLE = "t"
ROWS = 100


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds from coordination's end to 503 at the slower replica, and from service to 200."""

    noticed_s: float
    back_s: float


class Away:
    """A cluster whose coordination goes away, and comes back."""

    def __init__(self, cluster: FaultCluster) -> None:
        self.cluster = cluster
        self._links = [link for name in cluster.names for link in cluster.links(name, *cluster.servers)]

    def health(self, name: str) -> tuple[int, dict[str, Any]]:
        """Ask a replica how it is."""
        connection = http.client.HTTPConnection(self.cluster.address(name), timeout=5)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def all_say(self, status: int) -> Callable[[], bool]:
        """Return what tells whether every replica answers `/health` with a status."""
        return lambda: all(self._status(name) == status for name in self.cluster.names)

    def _status(self, name: str) -> int:
        with suppress(OSError):
            return self.health(name)[0]
        return 0

    def begin(self, way: str) -> None:
        """Take coordination away."""
        ensemble, servers = self.cluster.ensemble, range(len(self.cluster.servers))
        match way:
            case "closed" | "wiped":
                for server in servers:
                    ensemble.kill_server(server)
            case "no-quorum":
                for server in servers[1:]:
                    ensemble.kill_server(server)
            case "closes":
                for link in self._links:
                    link.refuse(refusing=True)
                    link.reset()
            case "silent":
                for link in self._links:
                    link.impose(HELD)

    def end(self, way: str) -> None:
        """Let coordination serve again, and return when it does."""
        ensemble, servers = self.cluster.ensemble, range(len(self.cluster.servers))
        for link in self._links:
            link.clear()
        if way == "wiped":
            for server in servers:
                shutil.rmtree(self.cluster.folder / "zookeeper" / f"server-{server + 1}" / "data" / "version-2")
        for server in servers:
            ensemble.start_server(server, wait=False)
        wait_for(lambda: ensemble.leader() is not None, "coordination serves")

    def round(self, way: str) -> Round:
        """Do one round."""
        vanished = {name: self._vanished(name) for name in self.cluster.names}
        began = time.monotonic()
        self.begin(way)
        wait_for(self.all_say(503), "every replica says that coordination is away")
        noticed_s = time.monotonic() - began
        self.end(way)
        began = time.monotonic()
        wait_for(self.all_say(200), "every replica is back")
        back_s = time.monotonic() - began
        if way == "wiped":
            for name, times in vanished.items():
                wait_for(partial(self._has_vanished, name, times), f"{name} says that the table vanished")
            self.restore()
        return Round(noticed_s, back_s)

    def _serves(self, name: str) -> bool:
        return bool(self.health(name)[1]["tables"] == {TABLE: "active"})

    def _vanished(self, name: str) -> int:
        return sum("table vanished" in line for line in self.cluster.process(name).words())

    def _has_vanished(self, name: str, times: int) -> bool:
        return self._vanished(name) > times

    def restore(self) -> None:
        """Restore a table that coordination has lost, when the doctor says so; only the replica that has it is stopped."""
        cluster = self.cluster
        with connect(cluster.ensemble.url, token_file=str(cluster.folder / TOKEN_FILE)) as connection:
            wait_for(
                lambda: "table-gone" in {found.code for found in examine(connection.look_over())}, "the doctor says it"
            )
        cluster.process("r1").stop()
        restored = restore_table(load_config(cluster.folder / "r1" / "server.toml"), TABLE)
        assert restored.rows == ROWS
        cluster.process("r1").launch()
        cluster.process("r1").wait_ready()
        for name in cluster.names:
            wait_for(partial(self._serves, name), f"{name} has recovered")
        with connect(cluster.ensemble.url, token_file=str(cluster.folder / TOKEN_FILE)) as connection:
            for name in cluster.names:
                rows = connection.table(TABLE).replica(name).to_arrow()["id"].to_pylist()
                assert sorted(rows) == list(range(ROWS)), f"{name} has other rows"


def rounds_of(folder: Path, way: str, count: int, session_timeout_s: float) -> list[Round]:
    """Do rounds of one way with a cluster of its own."""
    servers = 3 if way in ("no-quorum", "wiped") else 1
    with FaultCluster(folder, 2, servers, {"session_timeout_s": session_timeout_s}) as cluster:
        table = cluster.connection.create_table(TABLE, "id bigint not null", order_by="id", wait_replicas=2)
        table.insert({"id": list(range(ROWS))}, quorum=2)
        away = Away(cluster)
        wait_for(away.all_say(200), "every replica is active")
        return [away.round(way) for _ in range(count)]


def slow(rounds: Sequence[Round], session_timeout_s: float) -> list[Round]:
    """Return the rounds that took too long."""
    return [each for each in rounds if each.noticed_s > session_timeout_s + NOTICE_S or each.back_s > BACK_S]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--session-timeout", type=float, default=10.0)
    arguments = parser.parse_args()
    failed = 0
    for way in arguments.ways.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rounds = rounds_of(Path(folder), way, arguments.rounds, arguments.session_timeout)
        too_slow = len(slow(rounds, arguments.session_timeout))
        failed += too_slow
        noticed, back = (
            [f"{value:.1f} s" for value in sorted(each)] for each in zip(*map(astuple, rounds), strict=True)
        )
        middle = len(rounds) // 2
        say(
            f"{way:10}  rounds {len(rounds)}  503 after {noticed[middle]}, at most {noticed[-1]}"
            f"  back after {back[middle]}, at most {back[-1]}  too slow {too_slow}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
