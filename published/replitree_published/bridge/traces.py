"""The traces of a running cluster, read and put into one order.

Each process has written what it sent to coordination and what became of it (`coordination.trace`).  Coordination gives every
commit a number of its own (the zxid of the answer), in the order in which it has done them: by that the traces of all
processes are one.  An answer to a client comes after what its process had seen by then, by reads too.

A commit without an answer has no number: it took place at some time after the last commit that its process had heard of, or
never.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from replitree.coordination.trace import FORMAT, SUFFIX, CommitEnded, CommitSent, Line, Told, TraceHead
from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.effects import Operation

_TABLE = re.compile(r"(.*/tables/[^/]+)(?:/|$)")
_decode = json_decoder(Line).decode


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a trace."""

    file: str
    line: int

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Say it."""
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Done:
    """A commit.

    Attributes
    ----------
    zxid
        Its place in the order of coordination; of one without an answer, that which it came after.
    place, session
        Where it was written down, and whose session it was.
    operations, created
        What it did, and the paths that it has created; None when there was no answer.
    """

    zxid: int
    place: Place
    session: int
    operations: tuple[Operation, ...]
    created: tuple[str, ...] | None

    @property
    def table(self) -> str | None:
        """The path of the table that it is about."""
        found = _TABLE.match(self.operations[0].path)
        return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client heard; `zxid` is up to where its replica had seen what coordination did."""

    zxid: int
    place: Place
    told: Told


@dataclass(frozen=True, slots=True)
class Traces:
    """All traces of a cluster.

    Attributes
    ----------
    events
        Commits that took place and what clients heard, in order.
    doubts
        Commits without an answer, in no order.
    gaps
        Where lines are lacking.
    """

    events: tuple[Done | Heard, ...]
    doubts: tuple[Done, ...]
    gaps: tuple[str, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The paths of the tables that they are about."""
        return tuple(sorted({each.table for each in self.events if isinstance(each, Done) and each.table is not None}))


def read_traces(folder: Path) -> Traces:
    """Read all traces in a folder.

    Raises
    ------
    BadInput
        There are none, or one can't be read; says which line.
    """
    files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise BadInput(f"{folder} has no traces (*{SUFFIX}): name the folder that `trace` of the servers names")
    events: list[Done | Heard] = []
    doubts: list[Done] = []
    gaps: list[str] = []
    for file in files:
        _read_file(file, events, doubts, gaps)
    return Traces(tuple(sorted(events, key=_order)), tuple(doubts), tuple(gaps))


def _order(event: Done | Heard) -> tuple[int, bool, str, int]:
    return event.zxid, isinstance(event, Heard), event.place.file, event.place.line


def _read_file(file: Path, events: list[Done | Heard], doubts: list[Done], gaps: list[str]) -> None:
    sent: dict[int, tuple[Place, CommitSent, int]] = {}
    zxid, numbers = 0, 0
    for number, line in enumerate(_lines(file), 1):
        place = Place(file.name, number)
        match line:
            case TraceHead():
                if line.format != FORMAT or number > 1:
                    raise BadInput(f"{place}: a trace of format {line.format} begins; this version reads {FORMAT}")
            case CommitSent():
                if line.number != numbers:
                    gaps.append(f"{place}: commit {line.number} comes where {numbers} should: lines were taken out")
                numbers = line.number + 1
                sent[line.number] = place, line, zxid
            case CommitEnded() if line.number not in sent:
                gaps.append(f"{place}: commit {line.number} ends, and was never sent: a line was taken out")
            case CommitEnded():
                begun, commit, _ = sent[line.number]
                if line.outcome != "unknown":
                    del sent[line.number]
                    zxid = max(zxid, line.zxid)
                if line.outcome == "applied":
                    events.append(Done(line.zxid, begun, commit.session, _operations(commit), line.created))
            case Told():
                events.append(Heard(max(zxid, line.zxid), place, line))
    doubts += [Done(after, begun, commit.session, _operations(commit), None) for begun, commit, after in sent.values()]


def _operations(commit: CommitSent) -> tuple[Operation, ...]:
    return tuple(step.operation() for step in commit.steps)


def _lines(file: Path) -> list[Line]:
    """Return the lines of a file; the last one may have been cut off when its process was killed."""
    try:
        raw = file.read_bytes().split(b"\n")
    except OSError as error:
        raise BadInput(f"{file} can't be read: {error.strerror}") from error
    found: list[Line] = []
    for number, line in enumerate(raw[:-1], 1):
        try:
            found.append(_decode(line))
        except msgspec.DecodeError as error:
            raise BadInput(f"{file.name}, line {number} is not of a trace: {error}") from error
    return found
