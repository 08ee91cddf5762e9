"""A picture of the number line: how long the log is, and how far each replica has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 60
"""Characters of the line itself."""


@dataclass(frozen=True, slots=True)
class ReplicaPosition:
    """One replica on the line.

    Attributes
    ----------
    name
        Of the replica.
    pointer
        Index of the next log entry that it will pull; None before it joined.
    queue
        Entries that it has pulled and not executed.
    state
        A word for people: alive, killed, catching up.
    """

    name: str
    pointer: int | None
    queue: int = 0
    state: str = "alive"


@dataclass(frozen=True, slots=True)
class Signs:
    """What the picture is drawn with."""

    log: str
    log_end: str
    done: str
    queued: str
    here: str
    stopped: str


UNICODE = Signs("─", "┤", "█", "▒", "▶", "✗")
ASCII = Signs("-", "|", "=", "~", ">", "x")


def draw(tail: int, marks: Sequence[ReplicaPosition], *, signs: Signs = UNICODE, width: int = WIDTH) -> list[str]:
    r"""Draw the line.

    Parameters
    ----------
    tail
        Index of the next log entry.
    marks
        The replicas, in the order to show them.
    signs
        `UNICODE` or `ASCII`.
    width
        Characters from index 0 to the tail.

    Returns
    -------
    list[str]
        Lines: the log first, then one for each replica.

    Examples
    --------
    >>> print("\n".join(draw(8, [ReplicaPosition("r1", 8), ReplicaPosition("r2", 4, state="killed")], signs=ASCII, width=8)))
    log          --------| 8
    r1   alive   ========> 8
    r2   killed  ====x     4
    """
    names = max(len("log"), *(len(mark.name) for mark in marks)) if marks else len("log")
    states = max((len(mark.state) for mark in marks), default=0)
    lines = [f"{'log':<{names}}  {'':<{states}}  {signs.log * width}{signs.log_end} {tail}"]
    for mark in marks:
        line, where = "", "not there yet"
        if mark.pointer is not None:
            pulled = _column(mark.pointer, tail, width)
            executed = _column(mark.pointer - mark.queue, tail, width)
            head = signs.stopped if mark.state == "killed" else signs.here
            line = signs.done * executed + signs.queued * (pulled - executed) + head
            where = f"{mark.pointer} ({mark.queue} in its queue)" if mark.queue else str(mark.pointer)
        lines.append(f"{mark.name:<{names}}  {mark.state:<{states}}  {line:<{width + 1}} {where}")
    return lines


def _column(index: int, tail: int, width: int) -> int:
    """Return the column of an index; only the tail itself is drawn at the end."""
    if tail <= 0 or index >= tail:
        return width
    return min(width - 1, max(0, index) * width // tail)


def _queued(mark: ReplicaPosition) -> str:
    return f" ({mark.queue} in its queue)" if mark.queue else ""
