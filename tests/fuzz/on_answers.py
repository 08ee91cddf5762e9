"""Targets: what other servers answer: ZooKeeper's answers, bundles of parts from replicas, snapshots of machines."""

from __future__ import annotations

import http.client
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from kazoo.exceptions import MarshallingError
from typing_extensions import override

from replitree.coordination.requests import encode_transaction, send_get_many, send_transaction
from replitree.errors import ReplitreeError
from replitree.machines.register import CompareAndSet, Register
from replitree.machines.sequencer import Sequencer, Take
from replitree.protocol.core import effects as fx
from replitree.replica.perform.exchange import Exchange, Peer
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import read_manifest
from replitree.tablet.core.bodies import encode_commands
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.machine import Machine
from replitree.tablet.core.snapshots import COMMANDS
from replitree.tablet.group.ids import Generation, GenStep, Step
from replitree.tablet.runtime.opening import replayed
from tests.fuzz.mutate import Shape
from tests.fuzz.target import Read, Target, reads
from tests.tablet.building import data_id

PART_FOLDER = Path(__file__).parents[1] / "formats/storage/part-1"


# --- ZooKeeper ----------------------------------------------------------------------------------------------------------


class _Client:
    """Takes a request as kazoo's client does, which gives it the bytes of the answer later."""

    chroot = ""
    default_acl = None

    def __init__(self) -> None:
        self.request: Any = None

    def _call(self, request: Any, _: object) -> None:
        self.request = request


def _requests() -> tuple[Any, Any]:
    client = _Client()
    send_transaction(client, encode_transaction(client, (fx.Check("/a", fx.Version(0)),)))
    transaction = client.request
    send_get_many(client, ("/a",))
    return transaction, client.request


_TRANSACTION, _READS = _requests()


# --- bundles ------------------------------------------------------------------------------------------------------------


class _Socket:
    """A connection on which one answer has come."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


class _Fed(Exchange):
    """An exchange whose requests all get the same answer."""

    body = b""

    @override
    def _request(
        self, peer: Peer, method: str, path: str, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\n\r\n".encode()
        answer = http.client.HTTPResponse(cast("Any", _Socket(head + self.body)))
        answer.begin()
        return answer


@contextmanager
def _bundles(folder: Path) -> Iterator[Read]:
    manifest = read_manifest(PART_FOLDER)
    fetch = fx.FetchPart(f"{manifest.partition}_0_0_0", manifest.content, ("r1",))

    def one(data: bytes) -> bool:
        exchange = _Fed(PartStore(folder / "t"), lambda _name, _fresh: Peer("127.0.0.1:1", "x", "t"), 1)
        exchange.body = data
        try:
            (outcome,) = exchange.fetch([fetch])
        finally:
            exchange.close()
            shutil.rmtree(folder / "t")
        assert isinstance(outcome, fx.Fetched | fx.NotFetched | fx.StoreFailed)
        return isinstance(outcome, fx.Fetched)

    yield one


# --- machines -----------------------------------------------------------------------------------------------------------

_STATE, _SINCE = data_id(3, 1), data_id(3, 2)
_MACHINES: tuple[tuple[Machine[Any], bytes], ...] = (
    (Register(), encode_commands([msgspec.msgpack.encode(CompareAndSet("a", 1, "x"))])),
    (Sequencer(), encode_commands([msgspec.msgpack.encode(Take("a"))])),
)


def _snapshot(data: bytes) -> bool:
    """Open a tablet whose log begins with a snapshot: of each machine, since a snapshot may belong to another one."""
    nothing = GenStep(Generation(0), Step(0))
    counted = ((COMMANDS, (7).to_bytes(8, "big")),)
    entry = LogEntry(nothing, Step(0), references=(_STATE, _SINCE), is_snapshot=True, metadata=counted)
    place, refused = GenStep(Generation(3), Step(3)), 0
    for machine, since in _MACHINES:
        try:
            state, commands = replayed(machine, ((place, entry),), ((_STATE, data), (_SINCE, since)))
        except ReplitreeError:
            refused += 1
            continue
        assert commands == 8
        assert machine.restore(machine.snapshot(state)) == state
    return refused < len(_MACHINES)


TARGETS = (
    Target("zk-transaction", reads(lambda data: _TRANSACTION.deserialize(data, 0)), (MarshallingError,), share=400),
    Target("zk-reads", reads(lambda data: _READS.deserialize(data, 0)), (MarshallingError,), share=400),
    Target("bundle", _bundles, (), share=100),
    Target("machine-snapshot", reads(_snapshot), (), Shape.MSGPACK, share=400),
)
