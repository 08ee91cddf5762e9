"""Runs in files: the outlines of a run, one after the other, to be followed later, or at another place.

A file is JSON lines.  The first is ``{"format":1,"replicas":[names]}``, each of the others an outline (of `outline`) that
differs from the one before.  Whoever can see each change of a table's coordination can write one; `replitree verify bridge
--record` writes that of a simulated run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree_published.bridge.explored import wrong_step
from replitree_published.bridge.mapping import Follower, Mapping
from replitree_published.bridge.outline import Outline

FORMAT = 1

T = TypeVar("T")


class Head(msgspec.Struct, frozen=True):
    """The first line of a file: its format, and the names of the replicas in the order in which outlines have them."""

    replicas: tuple[str, ...]
    format: int = FORMAT


def write_head(file: IO[bytes], names: tuple[str, ...]) -> None:
    """Begin a file."""
    file.write(msgspec.json.encode(Head(names)) + b"\n")


def write_outline(file: IO[bytes], outline: Outline) -> None:
    """Write one more outline."""
    file.write(msgspec.json.encode(outline) + b"\n")


def read_outlines(path: Path) -> tuple[Head, Iterator[Outline]]:
    """Read a file.

    Raises
    ------
    BadInput
        It can't be read, or is not of this format; says which line, also while it is read on.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error.strerror}") from error
    if not lines:
        raise BadInput(f"{path} is empty; a recorded run begins with its replicas")
    head = _decode(lines[0], Head, path, 1)
    if head.format != FORMAT:
        raise BadInput(f"{path} has format {head.format}; this version reads {FORMAT}")
    return head, (_outline(line, len(head.replicas), path, number) for number, line in enumerate(lines[1:], 2))


def _outline(line: bytes, replicas: int, path: Path, number: int) -> Outline:
    outline = _decode(line, Outline, path, number)
    if len(outline.replicas) != replicas:
        raise BadInput(f"{path}, line {number}: {len(outline.replicas)} replicas; the first line names {replicas}")
    return outline


def _decode(line: bytes, kind: type[T], path: Path, number: int) -> T:
    try:
        return json_decoder(kind).decode(line)
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}, line {number} is not of a recorded run: {error}") from error


def follow_file(path: Path, mapping: Mapping) -> tuple[int, Follower, str | None]:
    """Follow a recorded run; return how many outlines it has up to its end or its first wrong step, and what is wrong there.

    Raises
    ------
    BadInput
        The file is not one of a recorded run.
    Undecided
        A search for a way has reached its limit.
    """
    head, outlines = read_outlines(path)
    follower = Follower(mapping, len(head.replicas))
    last: Outline | None = None
    count = 0
    for count, outline in enumerate(outlines, 1):
        wrong = None if last is None else wrong_step(follower, last, outline)
        if wrong is not None:
            return count, follower, f"{wrong} (line {count + 1})"
        last = outline
    return count, follower, None
