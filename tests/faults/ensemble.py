"""A ZooKeeper ensemble whose servers reach each other through links only.

Every server has a configuration of its own, in which the others are behind fronts: one for a server's port for followers, one
for its port for elections.  Whichever of two servers begins a connection, its bytes go through the link from the one that
began.

A server that is called by one with a lower number hangs up and calls back, at the address that the caller has said first.  The
link says another one of equal length: that of the front before it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from replitree.coordination.embedded import LOCALHOST, EmbeddedZooKeeper
from tests.faults.proxy import Link, Network


class LinkedEnsemble(EmbeddedZooKeeper):
    """An ensemble for tests.

    Parameters
    ----------
    folder, servers
        As of an `EmbeddedZooKeeper`.
    network
        What carries the links.
    link
        Returns the link from one server to another, by their indexes.
    """

    def __init__(self, folder: Path, servers: int, network: Network, link: Callable[[int, int], Link]) -> None:
        super().__init__(folder, servers, durable=False)
        self._network = network
        self._link = link

    @override
    def port_between(self, source: int, target: int, port: int) -> int:
        front = self._network.front({"": self._link(source, target)}, 0, port)
        self._link(target, source).says[_address(port)] = _address(front)
        return front


def _address(port: int) -> bytes:
    assert port >= 10_000, "an address is replaced by another one of its length"
    return f"{LOCALHOST}:{port}".encode()
