"""Histories of any length, right by construction, written quickly: clients take turns, and reads show all before.

Client c has the rows from ``c << 40`` on, one after the other, so a read is one range for each client, whatever the number of
its rows.  A few reads may be spoilt: they lack the last insert that was acknowledged before them, or one in the middle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from replitree.wire.history_format import Level, Operation, encode_header, encode_line

ROWS = 3
"""Rows of each insert."""


def large(
    count: int, clients: int = 8, level: Level = "linearizable", stale: Collection[int] = ()
) -> Iterator[Operation]:
    """Return operations, half of them inserts.

    Parameters
    ----------
    count
        How many.
    clients
        Half of them insert, and half of them read.
    level
        What reads promise.
    stale
        The reads, counted from 0, that lack the last insert.
    """
    writers = clients // 2
    done = [0] * writers
    for number in range(count // 2):
        writer, now = number % writers, number * 100
        base = writer << 40
        rows = (base + ROWS * done[writer], base + ROWS * (done[writer] + 1) - 1)
        name = f"w{writer}"
        yield Operation("insert", name, "t", now, "ok", now + 40, rows=(rows,), index=number, token=f"{name}-{number}")
        done[writer] += 1
        seen = list(done)
        if number in stale:
            seen[writer] -= 1
        shown = tuple((w << 40, (w << 40) + ROWS * n - 1) for w, n in enumerate(seen) if n)
        reader = f"r{number % (clients - writers)}"
        told = None if number in stale else number + 1
        yield Operation("read", reader, "t", now + 50, "ok", now + 130, level, shown, index=told, replica=reader)


def write_large(path: Path, count: int, **options: object) -> None:
    """Write such a history to a file; options as `large`."""
    with path.open("wb") as file:
        file.write(encode_header("test"))
        file.writelines(map(encode_line, large(count, **options)))  # type: ignore[arg-type]  # passed on as they are
