"""Log lines about refused requests: who was refused, and why; never what the request says.

At most one line in `REFUSALS_S` seconds, with the number of those before it that have none: clients without the token must not
be able to fill the disk.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, cast

from replitree.replica.kit.logs import Log

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

REFUSALS_S = 10.0
"""Seconds between two lines."""


class Refusals:
    """Counts refusals, and logs some of them."""

    def __init__(self) -> None:
        self._said_at = -math.inf
        self._unsaid = 0

    def note(self, log: Log, peer: object, reason: str) -> None:
        """Count a refusal, and log it unless one was logged a moment ago.

        Parameters
        ----------
        peer
            The client's host and port, or None.
        """
        now = time.monotonic()
        if now - self._said_at < REFUSALS_S:
            self._unsaid += 1
            return
        address = peer[0] if isinstance(peer, tuple) else ""
        log.warning("a request was refused", address=address, reason=reason, refused_before=self._unsaid)
        self._said_at, self._unsaid = now, 0


class _KindsOnly:
    """A logger for the general HTTP server, whose messages and tracebacks quote requests: the kind of a problem is kept."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def debug(self, *_: object, **__: object) -> None:
        """Log nothing."""

    info = debug

    def warning(self, *_: object, exc_info: object = None, **__: object) -> None:
        """Log the kind of a problem."""
        problem = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
        self._note("it could not be served" if problem is None else type(problem).__name__)

    error = exception = critical = warning


def kinds_only(note: Callable[[str], None]) -> logging.Logger:
    """Return a logger that gives `note` the kind of each problem, and nothing of its message."""
    return cast("logging.Logger", _KindsOnly(note))
