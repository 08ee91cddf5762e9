"""Sessions: identifiers, passwords, timeouts, and which of them have been silent for too long.

A session is in the state, and in the log, from its opening to its end.  When it was last heard is known to the leader alone, by
a clock that is never set.  A new leader gives every session its full timeout from the moment at which it begins to serve, so
that no session ends because its leader did.

What this module never does: end a session.  It says which ones are due; an entry ends them, and a client hears "expired" only
when that entry is committed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from replitree.keeper.core.wire import PASSWORD_BYTES

NO_PASSWORD: Final = bytes(PASSWORD_BYTES)

NS_PER_MS: Final = 1_000_000


class Limits(NamedTuple):
    """Bounds of session timeouts, in milliseconds.

    Attributes
    ----------
    tick_ms
        The grain of expiry: a session ends at the first multiple of it after its timeout.
    timeout_ms_min, timeout_ms_max
        A client that asks for less or more gets these.
    """

    tick_ms: int = 2_000
    timeout_ms_min: int = 4_000
    timeout_ms_max: int = 40_000

    def negotiated(self, asked_ms: int) -> int:
        """Return the timeout that a client gets."""
        return max(self.timeout_ms_min, min(asked_ms, self.timeout_ms_max))


def password_of(secret: bytes, session: int) -> bytes:
    """Return the password of a session: no client can guess one, and no server has to store it."""
    return hmac.digest(secret, session.to_bytes(8, "big"), hashlib.sha256)[:PASSWORD_BYTES]


def is_password(secret: bytes, session: int, password: bytes | None) -> bool:
    """Whether this is the password of a session; the comparison takes the same time for every wrong one."""
    return hmac.compare_digest(password_of(secret, session), password or b"")


class Silence:
    """When each session is due: a wheel of ticks.

    Parameters
    ----------
    limits
        The tick.
    timeouts
        The sessions of the state with their timeouts in milliseconds.
    now_ns
        When the leader begins to serve, in nanoseconds of a clock that is never set.
    """

    def __init__(self, limits: Limits, timeouts: Mapping[int, int], now_ns: int) -> None:
        self._tick_ns = limits.tick_ms * NS_PER_MS
        self._due: dict[int, int] = {}
        self._ticks: dict[int, dict[int, None]] = {}
        for session, timeout_ms in timeouts.items():
            self.hear(session, timeout_ms, now_ns)

    def hear(self, session: int, timeout_ms: int, now_ns: int) -> None:
        """Note that a session was heard; any bytes of its connection count."""
        tick = (now_ns + timeout_ms * NS_PER_MS) // self._tick_ns + 1
        if self._due.get(session) != tick:
            self.forget(session)
            self._due[session] = tick
            self._ticks.setdefault(tick, {})[session] = None

    def forget(self, session: int) -> None:
        """Note that a session has ended, or is about to."""
        tick = self._due.pop(session, None)
        if tick is not None:
            del self._ticks[tick][session]
            if not self._ticks[tick]:
                del self._ticks[tick]

    def due(self, now_ns: int) -> list[int]:
        """Return the sessions that were silent for their timeout; each is returned once, unless it is heard again."""
        now = now_ns // self._tick_ns
        found = [
            session for tick in sorted(tick for tick in self._ticks if tick <= now) for session in self._ticks[tick]
        ]
        self.forget_all(found)
        return found

    def forget_all(self, sessions: Iterable[int]) -> None:
        """Forget several sessions."""
        for session in sessions:
            self.forget(session)
