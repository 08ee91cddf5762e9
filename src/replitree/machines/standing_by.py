"""When a candidate stands: not while there is a leader, and one after the other when there is none.

Nothing here is needed for safety: any number may stand at any time, and one wins at most.  But each that wins ends the one
before, so they ask each other first, and vote:

* Each candidate draws a *seed* when it starts, and anew when it has led or was not elected.  Of those that stand by, the one
  with the smallest seed stands at once, each other later, and later again by chance when it was not elected.
* A peer counts while it says that it leads or is about to.  One whose port is closed has no candidate; one that was silent
  `SILENCE_MAX` times is *away*.
* When fewer are there than most of those that are not gone, three at most, they may be on the small side of a network that is
  torn: a candidate waits `AWAY_S` longer, and then stands all the same.

Source: YDB's bootstrapper (``spec/tablet.md`` 2.1).
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
"""A peer that did not answer so many times in a row no longer counts: one lost answer is no reason to stand."""

STEP_S = 0.3
"""Seconds by which each candidate that stands by waits longer than the one before."""

AWAY_S = 1.0
"""All candidates stand so many seconds later while too many peers are away."""

ENOUGH_MAX = 3
"""Candidates that are always enough."""

SEED_BITS = 64

BACKOFF_MAX = 5
"""Doublings of the random part, at most."""


@dataclass(frozen=True, slots=True)
class PeerCandidate:
    """Another candidate, as this one knows it.

    Attributes
    ----------
    url
        Where it is.
    role
        What it said last: ``leader``, ``candidate``, ``standby``, ``deposed``; None: its port is closed.
    silent
        How often it did not answer since.
    seed
        What it has drawn.
    """

    url: str
    role: str | None = None
    silent: int = 0
    seed: int = 0

    @property
    def is_alive(self) -> bool:
        """Whether it counts."""
        return self.role is not None and self.silent < SILENCE_MAX


def delay_s(own: PeerCandidate, peers: Sequence[PeerCandidate], failures: int, draw: float) -> float | None:
    """Return in how many seconds to stand if nothing changes; None: not now, because there is a leader.

    Parameters
    ----------
    own
        This candidate.
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
    # The url breaks a tie of seeds: two candidates must not stand at the same moment.
    rank = sum((peer.seed, peer.url) < (own.seed, own.url) for peer in alive)
    chance = draw * STEP_S * ((1 << min(failures, BACKOFF_MAX)) - 1)
    count = 1 + sum(peer.role is not None for peer in peers)
    # The other side of a torn network may have a leader: it gets time to answer.
    is_small = 1 + len(alive) < min(count // 2 + 1, ENOUGH_MAX)
    return rank * STEP_S + chance + (AWAY_S if is_small else 0.0)


def ask(peer: PeerCandidate, patience_s: float = PATIENCE_S) -> PeerCandidate:
    """Ask a peer what it is."""
    address = urlsplit(peer.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=patience_s)
    try:
        connection.request("GET", "/status")
        said = json.loads(connection.getresponse().read())
        return PeerCandidate(peer.url, said.get("role"), seed=int(said.get("seed", 0)))
    except ConnectionRefusedError:
        # Its port is closed: there is no candidate, and it is not waited for.
        return PeerCandidate(peer.url)
    except (OSError, HTTPException, ValueError):
        # Its last role stands until it has been silent for some looks: a leader that is slow once is not gone.
        return PeerCandidate(peer.url, peer.role, peer.silent + 1, peer.seed)
    finally:
        connection.close()
