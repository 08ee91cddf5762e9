"""Histories that may be wrong: right ones with something changed, and ways to change one that must be found."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from replitree.wire.history_format import Level, Operation, Ranges, to_ranges
from tests.verify.histories.generate import Shape, correct

SMALL: Sequence[Sequence[Level]] = (("linearizable",), ("sequential",), ("sequential", "linearizable", "as_of"))


def arbitrary(seed: int) -> list[Operation]:
    """Return a small history that is right in about one case of two."""
    draw = random.Random(seed)
    shape = Shape(
        operations=draw.randrange(4, 13),
        clients=draw.randrange(2, 5),
        reads=0.55,
        unknown=draw.choice((0.0, 0.2)),
        failed=draw.choice((0.0, 0.1)),
        positions=draw.choice((0.0, 0.5, 1.0)),
        levels=draw.choice(SMALL),
    )
    operations = correct(seed, shape)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        number = draw.randrange(len(operations))
        operations[number] = _changed(operations[number], operations, draw)
    return operations


def _changed(operation: Operation, operations: Sequence[Operation], draw: random.Random) -> Operation:
    """Change something about an operation that leaves it possible to write it down."""
    inserts = [each for each in operations if each.kind == "insert"]
    if operation.kind == "read" and inserts and draw.random() < 0.8:
        one = draw.choice(inserts)
        change = without if has(operation, one) else with_rows
        return change(operation, one)
    if operation.kind == "insert" and operation.outcome == "unknown":
        return msgspec.structs.replace(operation, outcome="ok")
    if operation.kind == "insert" and operation.index is not None:
        return msgspec.structs.replace(
            operation, index=max(0, operation.index + draw.choice((-2, -1, 1))), settled=None
        )
    if operation.kind == "read" and operation.level != "as_of":
        return msgspec.structs.replace(operation, level=draw.choice(("sequential", "linearizable")))
    return operation


def numbers(rows: Ranges) -> list[int]:
    """Return the rows of ranges."""
    return [row for first, last in rows for row in range(first, last + 1)]


def has(read: Operation, insert: Operation) -> bool:
    """Tell whether a read shows an insert."""
    return set(numbers(insert.rows)) <= set(numbers(read.rows))


def without(read: Operation, insert: Operation) -> Operation:
    """Return a read that does not show an insert."""
    gone = set(numbers(insert.rows))
    return msgspec.structs.replace(read, rows=to_ranges([row for row in numbers(read.rows) if row not in gone]))


def with_rows(read: Operation, insert: Operation) -> Operation:
    """Return a read that shows an insert too."""
    return msgspec.structs.replace(read, rows=to_ranges([*numbers(read.rows), *numbers(insert.rows)]))


# --- one known thing -----------------------------------------------------------------------------------------------------

Spoil = Callable[[list[Operation], random.Random], bool]
"""Changes a history so that something is wrong with it; False when it has nothing to change."""

FAR = 1 << 40
"""A row that nobody inserts."""


def _change(operations: list[Operation], old: Operation, new: Operation) -> bool:
    operations[operations.index(old)] = new
    return True


def _replace(operations: list[Operation], old: Operation, **new: object) -> bool:
    return _change(operations, old, msgspec.structs.replace(old, **new))


def _reads(operations: Sequence[Operation], *levels: str) -> list[Operation]:
    return [each for each in operations if each.kind == "read" and (not levels or each.level in levels)]


def _acknowledged(operations: Sequence[Operation]) -> list[Operation]:
    return [each for each in operations if each.kind == "insert" and each.outcome == "ok" and each.answer is not None]


def _pick(draw: random.Random, pairs: Sequence[tuple[Operation, Operation]]) -> tuple[Operation, Operation] | None:
    return draw.choice(pairs) if pairs else None


def _ends_before(one: Operation, two: Operation) -> bool:
    return one.answer is not None and one.answer < two.call


def _lacks(operations: list[Operation], draw: random.Random, own: bool, *levels: str) -> bool:
    """Let a read forget an insert that was acknowledged before it began."""
    pair = _pick(draw, [
        (read, each) for read in _reads(operations, *levels) for each in _acknowledged(operations)
        if _ends_before(each, read) and has(read, each) and (each.client == read.client or not own)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], without(*pair))


def stale(operations: list[Operation], draw: random.Random) -> bool:
    """Let a linearizable read forget an insert."""
    return _lacks(operations, draw, False, "linearizable")


def forgets_own(operations: list[Operation], draw: random.Random) -> bool:
    """Let a sequential read forget its client's insert."""
    return _lacks(operations, draw, True, "sequential")


def future(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show an insert that comes later."""
    inserts = [each for each in operations if each.kind == "insert" and each.outcome != "failed"]
    first = {each.rows: each for each in reversed(inserts)}
    pair = _pick(draw, [
        (read, each) for read in _reads(operations) for each in first.values() if _ends_before(read, each)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], with_rows(*pair))


def hole(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show an insert and not one below it."""
    placed = [each for each in _acknowledged(operations) if each.index is not None]
    pair = _pick(draw, [
        (read, low) for read in _reads(operations, "sequential", "linearizable", "as_of") for low in placed
        if has(read, low) and any(has(read, high) and (high.index or 0) > (low.settled or low.index or 0) for high in placed)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], without(*pair))


def back(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read forget what an earlier one showed."""
    pair = _pick(draw, [
        (later, each) for later in _reads(operations, "linearizable")
        for before in _reads(operations, "linearizable", "sequential") if _ends_before(before, later)
        for each in _acknowledged(operations) if has(before, each) and has(later, each)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], without(*pair))


def fork(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read lack an insert that a smaller one shows."""
    strict, inserts = _reads(operations, "sequential", "linearizable", "as_of"), _acknowledged(operations)
    pair = _pick(draw, [
        (large, each) for small in strict for large in strict if len(numbers(small.rows)) < len(numbers(large.rows))
        for each in inserts if has(small, each) and has(large, each)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], without(*pair))


def inverted(operations: list[Operation], draw: random.Random) -> bool:
    """Give an insert a position above one that came after it."""
    tried = [each.token for each in operations if each.kind == "insert"]
    placed = [each for each in _acknowledged(operations) if each.index is not None and tried.count(each.token) == 1]
    pair = _pick(draw, [(one, two) for one in placed for two in placed if _ends_before(one, two)])
    return pair is not None and _replace(
        operations, pair[0], index=(pair[1].settled or pair[1].index or 0) + 50, settled=None
    )


def garbage(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show a row that nobody inserted."""
    return bool(reads := _reads(operations)) and _replace(
        operations, one := draw.choice(reads), rows=(*one.rows, (FAR, FAR))
    )


def twice(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show a row twice."""
    reads = [each for each in _reads(operations) if each.rows]
    if not reads:
        return False
    one = draw.choice(reads)
    return _replace(operations, one, rows=to_ranges([*numbers(one.rows), one.rows[0][0]]))


def torn(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show an insert without one of its rows."""
    pair = _pick(draw, [
        (read, each) for read in _reads(operations) for each in _acknowledged(operations)
        if has(read, each) and len(numbers(each.rows)) > 1
    ])  # fmt: skip
    if pair is None:
        return False
    row = draw.choice(numbers(pair[1].rows))
    return _replace(operations, pair[0], rows=to_ranges([each for each in numbers(pair[0].rows) if each != row]))


def aborted(operations: list[Operation], draw: random.Random) -> bool:
    """Let a read show an insert that failed."""
    return _shows_failed(operations, draw)


def _shows_failed(operations: list[Operation], draw: random.Random, *levels: str) -> bool:
    failed = [each for each in operations if each.outcome == "failed" and each.kind == "insert"]
    pair = _pick(draw, [(read, each) for read in _reads(operations, *levels) for each in failed])
    return pair is not None and _change(operations, pair[0], with_rows(*pair))


def dirty(operations: list[Operation], draw: random.Random) -> bool:
    """Let a strict read show an insert whose quorum failed."""
    if not _shows_failed(operations, draw, "sequential", "linearizable", "as_of"):
        return False
    for each in [each for each in operations if each.outcome == "failed" and each.kind == "insert"]:
        _replace(operations, each, index=7, quorum=2)
    return True


def _closing(operations: Sequence[Operation]) -> list[Operation]:
    return [each for each in operations if each.closing]


def lost(operations: list[Operation], draw: random.Random) -> bool:
    """Let all closing reads forget an insert."""
    shown = [each for each in _acknowledged(operations) if all(has(read, each) for read in _closing(operations))]
    if not shown:
        return False
    gone = draw.choice(shown)
    for read in _closing(operations):
        _change(operations, read, without(read, gone))
    return True


def differs(operations: list[Operation], draw: random.Random) -> bool:
    """Let the closing read of one replica forget an insert."""
    pair = _pick(draw, [
        (read, each) for read in _closing(operations) for each in _acknowledged(operations) if has(read, each)
    ])  # fmt: skip
    return pair is not None and _change(operations, pair[0], without(*pair))


def short(operations: list[Operation], draw: random.Random) -> bool:
    """Acknowledge an insert that one of three replicas has."""
    found = _acknowledged(operations)
    return bool(found) and _replace(operations, draw.choice(found), quorum=3, holders=("r0",))


def wedged(operations: list[Operation], draw: random.Random) -> bool:
    """Let one replica not answer in the end."""
    return _replace(operations, draw.choice(_closing(operations)), outcome="failed", rows=())


def silent(operations: list[Operation], _draw: random.Random) -> bool:
    """Let no replica answer in the end."""
    for each in _closing(operations):
        _replace(operations, each, outcome="failed", rows=())
    return True


INJECTED: dict[str, tuple[str, Spoil]] = {
    spoil.__name__: (anomaly, spoil)
    for anomaly, spoil in (
        ("garbage_read", garbage),
        ("aborted_read", aborted),
        ("dirty_read", dirty),
        ("duplicate_rows", twice),
        ("torn_insert", torn),
        ("lost_write", lost),
        ("divergence", differs),
        ("ack_without_quorum", short),
        ("wedged_replica", wedged),
        ("unavailable", silent),
        ("stale_read", stale),
        ("future_read", future),
        ("hole", hole),
        ("nonmonotonic_read", back),
        ("long_fork", fork),
        ("write_order_inversion", inverted),
        ("read_your_writes", forgets_own),
    )
}
"""What can be injected: the anomaly that must be found, and how."""
