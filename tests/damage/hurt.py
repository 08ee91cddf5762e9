"""Ways in which a disk damages a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

ZEROS_MAX = 512
"""Bytes of a block that is replaced by zeros, at most."""

Hurt = Callable[[bytes, random.Random, Sequence[bytes]], bytes]
"""Makes the damaged bytes out of the bytes of a file and those of other files of its kind; equal bytes are no damage."""


def _bit(data: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def _byte(data: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


def _zeros(data: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    first = chance.randrange(len(data))
    last = min(len(data), first + chance.randrange(1, ZEROS_MAX + 1))
    return data[:first] + bytes(last - first) + data[last:]


def _truncated(data: bytes, chance: random.Random, _: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data))]


def _other(_: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    return chance.choice(others)


HURTS: dict[str, Hurt] = {
    "bit": _bit,
    "byte": _byte,
    "zeros": _zeros,
    "truncated": _truncated,
    "swapped": _other,
    "older": _other,
}
"""By name.  `swapped` takes the bytes of another file of the same kind, `older` those that the file had before."""

TRIES_MAX = 50


class Damageable(Protocol):
    """A file, or what is damaged as one."""

    def read_bytes(self) -> bytes:
        """Return what it has; raises `FileNotFoundError`."""

    def write_bytes(self, data: bytes, /) -> int:
        """Write other bytes into it."""


def hurt(path: Damageable, way: str, chance: random.Random, others: Sequence[bytes]) -> bytes | None:
    """Damage a file in one of the `HURTS`; return the bytes that it had, None when it can't be damaged in this way.

    The file is written in place, as a disk would: hard links to it see the damage too.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # the replica has just replaced it
        return None
    others = [each for each in others if each != data]
    if not data or (way in ("swapped", "older") and not others):
        return None
    for _ in range(TRIES_MAX):
        damaged = HURTS[way](data, chance, others)
        if damaged != data:
            path.write_bytes(damaged)
            return data
    return None
