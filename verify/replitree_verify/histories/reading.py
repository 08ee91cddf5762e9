"""Reading a history: strictly, with the line and what to do about it.

Lines are decoded some thousands at a time, and become columns at once: a million operations are never a million objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from replitree.decoding import json_decoder
from replitree.errors import BadInput, UnsupportedFormat
from replitree.wire.history_format import FORMAT, LEVELS, NUMBER_MAX, OUTCOMES, VERSION, Header, Operation
from replitree_verify.histories.columns import (
    FAILED,
    INSERT,
    NEVER,
    NOTHING,
    OK,
    READ,
    UNKNOWN,
    Dictionaries,
    Flags,
    History,
    Ints,
    joined,
    offsets_of,
)

LINES_AT_ONCE = 20_000
BYTES_AT_ONCE = 8 << 20

_LEVEL = {name: number for number, name in enumerate(LEVELS)} | {None: NOTHING}
_OUTCOME = {name: number for number, name in enumerate(OUTCOMES)}
_decoder = json_decoder(Operation)
_header_decoder = json_decoder(Header)


def read_files(paths: Sequence[Path | str]) -> History:
    """Read the files of one history.

    Raises
    ------
    BadInput
        A line is not what it should be, or the files have different clocks; says which and what to do.
    UnsupportedFormat
        Written by a newer replitree.
    """
    read_clock(paths)
    return complete(joined([part for path in paths for part in chunks(Path(path))]))


def read_clock(paths: Sequence[Path | str]) -> str:
    """Return the clock of the files of one history; errors as `read_files`."""
    clocks = {read_header(Path(path)): path for path in paths}
    # Times of two clocks have no order, and every rule compares times.
    if len(clocks) > 1:
        one, two, *_ = clocks.values()
        raise BadInput(
            f"{one} and {two} have times of different clocks: judge each by itself, or record on one machine"
        )
    return next(iter(clocks))


def parse(operations: Iterable[Operation], name: str = "history") -> History:
    """Return operations as a history, checked as those of a file are."""
    found = list(operations)
    return complete(to_columns(found, name, 2))


def read_header(path: Path) -> str:
    """Return the clock that a file names in its first line; errors as `read_files`."""
    try:
        with path.open("rb") as file:
            line = file.readline()
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error.strerror}") from error
    try:
        header = _header_decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"{path}, line 1: not the header of a history ({error}); name a file that a recorder wrote"
        ) from error
    if header.format != FORMAT:
        raise BadInput(
            f'{path}, line 1: the format is "{header.format}", not "{FORMAT}"; name a file that a recorder wrote'
        )
    if header.version != VERSION:
        raise UnsupportedFormat(
            f"{path}, line 1: version {header.version} of the format, this one reads {VERSION}: upgrade"
        )
    return header.clock


def chunks(path: Path, begin: int = 0, end: int | None = None, line: int = 1) -> Iterator[History]:
    """Read the operations of a file whose lines begin within a stretch of it; errors as `read_files`.

    Parameters
    ----------
    path
        The file.
    begin, end
        The stretch, in bytes; by default all of the file.
    line
        Number of the first line that begins in it.
    """
    first = line
    with path.open("rb") as file:
        go_to_line(file, begin)
        if begin == 0:
            file.readline()
            line += 1
        while end is None or file.tell() < end:
            left = BYTES_AT_ONCE if end is None else min(BYTES_AT_ONCE, end - file.tell())
            lines = file.readlines(max(1, left))
            if not lines:
                break
            for start in range(0, len(lines), LINES_AT_ONCE):
                some = lines[start : start + LINES_AT_ONCE]
                yield to_columns(_decoded(some, path, line), str(path), line)
                line += len(some)
        # At least one part, if an empty one: columns of no part at all can't be joined.
        if line <= first + (begin == 0):
            yield to_columns([], str(path), line)


def go_to_line(file: BinaryIO, begin: int) -> None:
    """Go to the first line that begins at or after a byte."""
    if begin:
        # One byte earlier: a line that begins exactly here is not skipped.
        file.seek(begin - 1)
        file.readline()


def count_lines(path: Path, begin: int, end: int) -> int:
    """Count the lines that begin within a stretch of a file."""
    count = 0
    with path.open("rb") as file:
        go_to_line(file, begin)
        while file.tell() < end and (lines := file.readlines(min(BYTES_AT_ONCE, end - file.tell()))):
            count += len(lines)
    return count


def _decoded(lines: list[bytes], path: Path, line: int) -> list[Operation]:
    whole = lines[-1].endswith(b"\n")
    if whole and all(len(each) > 1 for each in lines):  # msgspec would skip an empty one
        try:
            return _decoder.decode_lines(b"".join(lines))
        except msgspec.MsgspecError:
            pass  # it does not say which line: one by one below
    found = list[Operation]()
    for number, text in enumerate(lines, line):
        if not text.endswith(b"\n"):
            raise BadInput(f"{path}, line {number}: it is cut off; remove it when its writer was killed")
        try:
            found.append(_decoder.decode(text))
        except msgspec.MsgspecError as error:
            raise BadInput(f"{path}, line {number}: {error}; one operation a line, as its recorder wrote it") from error
    return found


# --- columns --------------------------------------------------------------------------------------------------------


class _Codes(dict[Any, int]):
    """Numbers for names, in the order in which they come."""

    def of(self, name: Any) -> int:
        return NOTHING if name is None else self.setdefault(name, len(self))


def _column(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def to_columns(operations: Sequence[Operation], name: str, line: int) -> History:
    """Return operations as columns, each checked by itself.

    Parameters
    ----------
    operations
        In their order.
    name, line
        Of the file, and of the first of them.
    """
    found = operations
    clients, objects, replicas, tokens, holders = (_Codes() for _ in range(5))
    try:
        ended = _column(NOTHING if op.answer is None else op.answer for op in found)
        outcome = _column(_OUTCOME[op.outcome] for op in found)
        history = History(
            # Filled in below: the codes are given while the columns are made.
            names=Dictionaries((), (), (), (), (), (name,)),
            scopes={number: op.scope for number, op in enumerate(found) if op.scope is not None},
            file=np.zeros(len(found), np.int64),
            line=np.arange(line, line + len(found), dtype=np.int64),
            kind=_column(READ if op.kind == "read" else INSERT for op in found),
            client=_column(clients.of(op.client) for op in found),
            object=_column(objects.of((op.table, op.partition)) for op in found),
            replica=_column(replicas.of(op.replica) for op in found),
            token=_column(tokens.of(op.token) for op in found),
            level=_column(_LEVEL[op.level] for op in found),
            outcome=outcome,
            closing=_column(op.closing for op in found).astype(np.bool_),
            call=_column(op.call for op in found),
            answer=np.where(outcome == UNKNOWN, NEVER, ended),
            ended=np.where(ended == NOTHING, NEVER, ended),
            index=_column(NOTHING if op.index is None else op.index for op in found),
            settled=_column(NOTHING if op.settled is None else op.settled for op in found),
            quorum=_column(op.quorum for op in found),
            holders=_column(holders.of(op.holders) for op in found),
            offset=offsets_of(_column(len(op.rows) for op in found)),
            first=_column(pair[0] for pair in chain.from_iterable(op.rows for op in found)),
            last=_column(pair[1] for pair in chain.from_iterable(op.rows for op in found)),
        )
    except OverflowError as error:
        raise BadInput(f"{name}, from line {line} on: a number is above {NUMBER_MAX}") from error
    names = Dictionaries(tuple(clients), tuple(objects), tuple(replicas), tuple(tokens), tuple(holders), (name,))
    history = replace(history, names=names)
    for wrong, message in _problems(history):
        if wrong.any():
            raise BadInput(f"{name}, line {line + int(np.flatnonzero(wrong)[0])}: {message}")
    return history


def _problems(history: History) -> Iterator[tuple[Flags, str]]:
    """Look for what an operation alone can have wrong."""
    read, counts = history.kind == READ, np.diff(history.offset)
    outcome, index, settled = history.outcome, history.index, history.settled
    numbers = (history.call, history.quorum, history.index + 1, history.settled + 1)
    yield np.any([(n < 0) | (n > NUMBER_MAX) for n in numbers], axis=0), f"a number is not within 0 and {NUMBER_MAX}"
    yield (
        (outcome != UNKNOWN) & (history.ended == NEVER),
        "it has an outcome and no answer's time; say `unknown` without one",
    )
    yield history.ended < history.call, "its answer is before its call; both are of one monotonic clock"
    yield read & (history.level == NOTHING), "a read says its `level`: eventual, sequential, linearizable or as_of"
    yield ~read & (history.level != NOTHING), "an insert has no `level`"
    yield (
        (history.level == LEVELS.index("as_of")) & (outcome == OK) & (index == NOTHING),
        "a read `as_of` says its `index`",
    )
    yield ~read & (counts == 0), "an insert names its `rows`"
    yield read & (outcome != OK) & (counts > 0), "a read that was not answered has no `rows`"
    yield (
        (settled != NOTHING) & ((index == NOTHING) | (settled < index)),
        "`settled` is at the insert's `index` or after it",
    )
    yield ~read & (outcome == FAILED) & (settled != NOTHING), "an insert that failed was not `settled`"
    mixed = np.zeros(len(history), np.bool_)
    for number, scope in history.scopes.items():
        apart = all(one[1] + 1 < two[0] for one, two in pairwise(scope))
        mixed[number] = not (apart and all(0 <= first <= last <= NUMBER_MAX for first, last in scope))
    yield mixed, "its `scope` is not in ascending order, or has ranges that touch"
    owner = np.repeat(np.arange(len(history)), counts)
    outside = (history.first < 0) | (history.last > NUMBER_MAX)
    text = ""
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        table, _ = history.names.object[history.object[owner[at]]]
        number = history.first[at] if history.first[at] < 0 else history.last[at]
        text = (
            f"row {number} of table {table} is not within 0 and {NUMBER_MAX}: the column that numbers the rows (the first of"
            " the order key, or key= of the Recorder) may not have such a number; record another one with"
            " Recorder(file, key=…)"
        )
    yield _of_owner(outside, owner, len(history)), text
    yield _of_owner(history.first > history.last, owner, len(history)), "a range of rows begins after its end"
    later = np.zeros(len(owner), np.bool_)
    later[1:] = (owner[1:] == owner[:-1]) & (history.first[1:] < history.first[:-1])
    yield _of_owner(later, owner, len(history)), "its ranges of rows are not in ascending order"
    touching = np.zeros(len(owner), np.bool_)
    touching[1:] = (owner[1:] == owner[:-1]) & (history.first[1:] <= history.last[:-1] + 1)
    yield ~read & _of_owner(touching, owner, len(history)), "ranges of an insert's rows touch: write them as one"


def _of_owner(wrong: Flags, owner: Ints, count: int) -> Flags:
    found = np.zeros(count, np.bool_)
    found[owner[wrong]] = True
    return found


# --- a whole history ------------------------------------------------------------------------------------------------------


def complete(history: History) -> History:
    """Leave out first lines of inserts that have a second one; check that clients do one thing after the other.

    Raises
    ------
    BadInput
        A client does two things at once.
    """
    order = np.lexsort((history.line, history.file, history.call, history.client))
    client, call = history.client[order], history.call[order]
    same = (client[1:] == client[:-1]) & (call[1:] == call[:-1])
    # A recorder writes an insert before it asks for it, too: a client that is killed leaves it behind as unknown.
    begun = same & (history.ended[order][:-1] == NEVER) & (history.kind[order][:-1] == INSERT)
    _refuse(history, order, same & ~begun, "has two operations that begin at once: give each thread its own name")
    kept = np.sort(np.delete(order, np.flatnonzero(begun)))
    found = history if len(kept) == len(history) else history.take(kept)
    order = np.lexsort((found.call, found.client))
    client, ended = found.client[order], found.ended[order]
    early = (client[1:] == client[:-1]) & (found.call[order][1:] < ended[:-1])
    never = early & (ended[:-1] == NEVER)
    # Before `early`, which holds for these operations, too: this message says more.
    _refuse(found, order, never, "goes on after an operation that never ended: give who comes after it another name")
    _refuse(found, order, early, "begins an operation before its last one ended: give each thread its own name")
    return found


def _refuse(history: History, order: Ints, wrong: Flags, message: str) -> None:
    if wrong.any():
        at = np.flatnonzero(wrong)[0]
        one, two = int(order[at]), int(order[at + 1])
        who = history.names.client[history.client[two]]
        files = [history.names.file[history.file[number]] for number in (one, two)]
        other = f"line {history.line[one]}" if files[0] == files[1] else f"{files[0]}, line {history.line[one]}"
        raise BadInput(f"{files[1]}, line {history.line[two]}: client {who} {message} ({other})")
