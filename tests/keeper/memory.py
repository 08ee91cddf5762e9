"""A keeper in memory: the core with a log that is committed at once, every entry through its bytes."""

from __future__ import annotations

from replitree.keeper.core.apply import applied
from replitree.keeper.core.batch import Batch, Begin, decode_batch, encode_batch, encode_internal
from replitree.keeper.core.front import Front
from replitree.keeper.core.sessions import Limits
from replitree.keeper.core.state import RULES, State, begin

LIMITS = Limits(tick_ms=500, timeout_ms_min=1_000, timeout_ms_max=60_000)
"""As the embedded ZooKeeper has them."""

SUPER_DIGEST = b"super:D/InIHSb7yEEbrWz8b9l71RjZJU="
"""Of the user super with the password test."""

SECRET = b"secret of tests!"


def begun(generation: int = 1, state: State | None = None, now_ms: int = 1_000) -> State:
    """Return a state in which a leader of this generation has chosen the secret."""
    state = begin() if state is None else state
    batch = Batch(RULES, generation, now_ms, [[]], [0], [0], [encode_internal(Begin(SECRET))])
    assert [outcome.fault for outcome in applied(state, batch)] == [""]
    return state


class MemoryKeeper:
    """Connections to a keeper whose log is a list.

    Attributes
    ----------
    log
        The entries so far.
    """

    def __init__(self, state: State | None = None, generation: int = 1) -> None:
        self.state = begun(generation, state)
        self.now_ms = 1_000_000
        self.log: list[bytes] = []
        self.front = Front(self.state, generation, LIMITS, self.now_ns, SUPER_DIGEST)
        self._received: dict[int, bytes] = {}
        self._closed: set[int] = set()

    @property
    def now_ns(self) -> int:
        return self.now_ms * 1_000_000

    def connect(self, address: str = "127.0.0.1") -> int:
        return self.front.connected(address)

    def send(self, connection: int, data: bytes) -> None:
        """Let bytes of a client arrive, and commit what comes of them."""
        self.front.received(connection, data, self.now_ns)
        self.turn()

    def turn(self) -> None:
        """Commit all that waits, and take what is sent."""
        while batch := self.front.take_batch(self.now_ms):
            self.log.append(encode_batch(batch))
            self.front.committed(decode_batch(self.log[-1]))
        for output in self.front.take_output():
            self._received[output.connection] = self._received.get(output.connection, b"") + output.data
            if output.is_closed:
                self._closed.add(output.connection)

    def take(self, connection: int) -> tuple[bytes, bool]:
        """Return what a client has received, and whether its connection was closed."""
        return self._received.pop(connection, b""), connection in self._closed

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.front.tick(self.now_ns)
        self.turn()
