"""Joint inserts of real processes: coordinator and participant are killed around the commit, and each row is there once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import pytest

from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.port import make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, decode_entry
from tests.replica.inprocess import ROOT, TOKEN, as_stream, rows, wait_for
from tests.replica.sharded import NAMES, SHARDS, make_place, make_shards

pytestmark = pytest.mark.system

ROUNDS = 4
BEFORE_KILL_S = 0.03


class Replica:
    """A replica in a process of its own, which is started again after each kill."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        folder.mkdir()
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        self._config, self._log = folder / "server.toml", folder / "log"
        self._config.write_text(
            f'name = "{name}"\nzookeeper = "{url}"\ndata = "{folder}/data"\ntoken_file = "{folder}/token"\n'
        )
        self.name = name

    def start(self) -> None:
        with self._log.open("a") as log:
            command = [sys.executable, "-m", "replitree.replica", "--config", str(self._config)]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._log.read_text()
        self.address = str(json.loads(line)["address"])

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ask(self, path: str, body: bytes | None = None, **query: object) -> dict[str, Any]:
        """Send a request; an answer that did not come is unknown."""
        connection, method = HTTPConnection(self.address, timeout=30), "GET" if body is None else "POST"
        try:
            connection.request(method, f"{path}?{urlencode(query)}", body, {"Authorization": f"Bearer {TOKEN}"})
            answer = json.loads(connection.getresponse().read())
        except (OSError, HTTPException, ValueError):
            return {"outcome": "unknown"}
        finally:
            connection.close()
        return cast("dict[str, Any]", answer)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Replica, Replica, Any]]:
    """Two replicas, each with both shards of `d`, and a session beside them."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(tmp_path / "zookeeper", root=ROOT, durable=False))
        session = ZooKeeperCoordination(f"zk://127.0.0.1:{zookeeper.ports[0]}")
        stack.callback(session.close)
        make_root(session, layout.tables(ROOT))
        make_place(session)
        make_shards(lambda nodes: run(nodes, lambda effect: session.perform(cast("fx.CoordinationEffect", effect))))
        first, second = (Replica(tmp_path / name, name, zookeeper.url) for name in ("r1", "r2"))
        for replica in (first, second):
            replica.start()
            stack.callback(replica.end, signal.SIGTERM)
        yield first, second, session


def insert(first: Replica, second: Replica, number: int) -> dict[str, Any]:
    """Insert ten rows into each shard under a token, once; the outcome may be that it is not known, or that it failed."""
    shares: list[dict[str, Any]] = []
    for shard, replica in enumerate((first, second)):
        body = as_stream(rows(1000 * number + 100 * shard))
        coordinates = "true" if shard == 0 else "false"
        share = replica.ask(
            f"/v1/tables/{NAMES[shard]}/prepared", body, map_version=0, coordinates=coordinates, keep_s=2
        )
        if "staging" not in share:
            return share
        shares.append(share)
    body = json.dumps({"prepared": shares}).encode()
    return first.ask(f"/v1/tables/{NAMES[0]}/joint", body, token=f"token {number}")


def try_once(first: Replica, second: Replica, number: int, told: list[str]) -> None:
    """Insert, and note what the client hears."""
    told.append(str(insert(first, second, number).get("outcome", "failed")))


def is_in(first: Replica, second: Replica, number: int) -> bool:
    """Insert under a token that may have been used; whether the rows are certainly in."""
    return insert(first, second, number).get("outcome") in ("inserted", "duplicate")


def shows(replica: Replica, shard: int, count: int) -> bool:
    """Whether a replica shows so many rows of a shard."""
    return replica.ask(f"/v1/tables/{NAMES[shard]}/status").get("rows") == count


def has_none(session: Any, path: str) -> bool:
    """Whether a node has no children."""
    return not session.perform(fx.Children(path))


def logged(session: Any, shard: int) -> list[GetEntry]:
    """The inserts in the log of a shard."""
    found: list[GetEntry] = []
    index = 0
    while (node := session.perform(fx.Get(layout.log_entry(SHARDS[shard], index)))) is not None:
        entry = decode_entry(node.value, "")
        if isinstance(entry, GetEntry):
            found.append(entry)
        index += 1
    return found


def test_each_joint_insert_is_in_both_shards_once_whatever_is_killed(
    replicas: tuple[Replica, Replica, Any],
) -> None:
    first, second, session = replicas
    draw, told = random.Random(26), list[str]()
    for number in range(ROUNDS):
        thread = threading.Thread(target=try_once, args=(first, second, number, told))
        victim = (first, second)[number % 2]
        thread.start()
        # A part of the inserts is over by then, a part has just begun, and some are in their commit.
        thread.join(draw.uniform(0.0, BEFORE_KILL_S))
        victim.end(signal.SIGKILL)
        victim.start()
        thread.join()
        wait_for(partial(is_in, first, second, number), f"insert {number} is in", 60.0)
    for shard in range(2):
        entries = logged(session, shard)
        assert len(entries) == ROUNDS, told
        assert {each.shards for each in entries} == {2}
    assert {each.joint for each in logged(session, 0)} == {each.joint for each in logged(session, 1)}
    for shard, replica in ((0, first), (0, second), (1, first), (1, second)):
        wait_for(partial(shows, replica, shard, ROUNDS * 10), "all rows are shown")
    # What the killed processes had prepared is forgotten: no node, and no folder that is not a part's.
    for shard, name in ((shard, name) for shard in range(2) for name in ("r1", "r2")):
        path = f"{layout.replicas(SHARDS[shard])}/{name}/prepared"
        wait_for(partial(has_none, session, path), "no node is left", 60.0)
