"""A machine for tests: it keeps the words that it was told, and answers how many there are."""

from __future__ import annotations

State = tuple[str, ...]


class Words:
    """The machine; the word `fail` breaks it.

    Parameters
    ----------
    broken
        Words that break it; so does the snapshot of one of them.
    """

    def __init__(self, broken: frozenset[bytes] = frozenset({b"fail"})) -> None:
        self._broken = broken

    def begin(self) -> State:
        """Return no words."""
        return ()

    def apply(self, state: State, command: bytes) -> tuple[State, bytes]:
        """Add a word."""
        if command in self._broken:
            raise ValueError("no such word")
        after = (*state, command.decode())
        return after, str(len(after)).encode()

    def snapshot(self, state: State) -> bytes:
        """Return all words."""
        if any(word.encode() in self._broken for word in state):
            raise ValueError("no such word")
        return " ".join(state).encode()

    def restore(self, data: bytes) -> State:
        """Return the words of a snapshot."""
        return tuple(data.decode().split())
