"""When a candidate stands: not while somebody leads, and one after the other when nobody does.

Nothing here is needed for safety: any number may stand at any time, and one wins at most.  But each that wins ends the one
before, so they ask each other first.  A peer counts while it says that it leads or is about to; one that was silent
`SILENCE_MAX` times, or whose port is closed, does not.  Of those that stand by the first one in the order of their addresses
stands at once, each other later, and later again by chance when it was not elected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

LOOK_S = 0.1
"""How often peers are asked."""

PATIENCE_S = 0.5
"""How long an answer is waited for."""

SILENCE_MAX = 3

STEP_S = 0.3
"""So much later the next one of those that stand by does."""

BACKOFF_MAX = 5
"""Doublings of the random part, at most."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What is known of another candidate.

    Attributes
    ----------
    url
        Where it is.
    role
        What it said last: ``leader``, ``candidate``, ``standby``, ``deposed``; None: its port is closed.
    silent
        How often it did not answer since.
    """

    url: str
    role: str | None = None
    silent: int = 0

    @property
    def is_alive(self) -> bool:
        """Whether it counts."""
        return self.role is not None and self.silent < SILENCE_MAX


def delay_s(own: str, peers: Sequence[Peer], failures: int, draw: float) -> float | None:
    """Return in how many seconds to stand if nothing changes; None: not now, for somebody leads.

    Parameters
    ----------
    own
        The own address.
    peers
        What is known of the others.
    failures
        How often it stood and was not elected.
    draw
        A random number from 0 to 1.
    """
    alive = [peer for peer in peers if peer.is_alive]
    if any(peer.role in ("leader", "candidate") for peer in alive):
        return None
    rank = sum(peer.url < own for peer in alive)
    chance = draw * STEP_S * ((1 << min(failures, BACKOFF_MAX)) - 1)
    return rank * STEP_S + chance


def ask(peer: Peer, patience_s: float = PATIENCE_S) -> Peer:
    """Ask a peer what it is."""
    address = urlsplit(peer.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=patience_s)
    try:
        connection.request("GET", "/status")
        return Peer(peer.url, json.loads(connection.getresponse().read()).get("role"))
    except ConnectionRefusedError:
        return Peer(peer.url)
    except (OSError, HTTPException, ValueError):
        return Peer(peer.url, peer.role, peer.silent + 1)
    finally:
        connection.close()
