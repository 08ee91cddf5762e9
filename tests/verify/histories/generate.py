"""Histories that are right by construction, and ways to spoil them.

A run is simulated with one log: what happens in it is decided at one moment between call and answer, and what reads show is a
prefix of the log.  Replicas lag, answers are lost, inserts fail, are tried again, and count only later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from replitree.wire.history_format import Level, Operation, Ranges, to_ranges

CLIENT_ROWS = 1 << 20
"""How far apart the rows of two clients are."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a history is like."""

    operations: int = 30
    clients: int = 3
    replicas: int = 2
    reads: float = 0.5
    unknown: float = 0.1
    failed: float = 0.05
    settled: float = 0.3
    positions: float = 1.0
    levels: Sequence[Level] = ("eventual", "sequential", "linearizable", "as_of")


@dataclass(slots=True)
class _World:
    """The log, how far each replica is, and what each client must see."""

    log: list[Ranges | None] = field(default_factory=list)
    counts_from: dict[Ranges, int] = field(default_factory=dict)
    pointer: dict[str, int] = field(default_factory=dict)
    floor: dict[str, int] = field(default_factory=dict)

    def rows_below(self, index: int) -> Ranges:
        shown = [rows for rows, place in self.counts_from.items() if place < index]
        return to_ranges([row for rows in shown for first, last in rows for row in range(first, last + 1)])


@dataclass(slots=True)
class _Plan:
    """One operation to be: when it begins, when it takes effect, when its client goes on."""

    client: str
    call: int
    effect: int
    answer: int
    kind: str
    rows: Ranges = ()
    outcome: str = "ok"
    token: str | None = None


def correct(seed: int, shape: Shape | None = None, *, closing: bool = False) -> list[Operation]:
    """Return a history in which every promise is kept."""
    draw, shape = random.Random(seed), shape or Shape()
    world = _World()
    plans = sorted(_plans(draw, shape), key=lambda plan: plan.effect)
    found = [_done(plan, world, draw, shape) for plan in plans]
    if closing:
        found += _closing(world, shape, max(plan.answer + plan.effect for plan in plans) + 1000)
    return sorted(found, key=lambda operation: operation.call)


def _plans(draw: random.Random, shape: Shape) -> Iterator[_Plan]:
    """Plan what each client does, one after the other."""
    now = {f"c{number}": draw.randrange(50) for number in range(shape.clients)}
    next_row = {client: CLIENT_ROWS * number for number, client in enumerate(now)}
    again: dict[str, _Plan] = {}
    for number in range(shape.operations):
        client = draw.choice(sorted(now))
        call = now[client] + draw.randrange(1, 20)
        answer = call + draw.randrange(2, 60)
        plan = _Plan(client, call, draw.randrange(call + 1, answer + 1), answer, "read")
        now[client] = answer + draw.randrange(5)
        if draw.random() >= shape.reads:
            plan.kind, plan.token = "insert", f"t{number}"
            plan.outcome = _outcome(draw, shape)
            before = again.pop(client, None)
            if before is not None:
                plan.rows, plan.token = before.rows, before.token
            else:
                row = next_row[client]
                next_row[client] = row + draw.randrange(1, 4)
                plan.rows = ((row, next_row[client] - 1),)
            if plan.outcome == "unknown":
                plan.effect += draw.choice((0, 0, 40, 1000))
                if draw.random() < 0.7:
                    again[client] = plan
        yield plan


def _outcome(draw: random.Random, shape: Shape) -> str:
    value = draw.random()
    if value < shape.unknown:
        return "unknown"
    return "failed" if value < shape.unknown + shape.failed else "ok"


def _done(plan: _Plan, world: _World, draw: random.Random, shape: Shape) -> Operation:
    if plan.kind == "insert":
        return _inserted(plan, world, draw, shape)
    replica, level = f"r{draw.randrange(shape.replicas)}", draw.choice(shape.levels)
    tail = len(world.log)
    index = tail
    if level in {"eventual", "sequential"}:
        index = draw.randint(world.pointer.get(replica, 0), tail)
    if level == "sequential":
        index = max(index, world.floor.get(plan.client, 0))
    if level == "as_of":
        index = draw.randint(0, tail)
    else:
        world.pointer[replica] = max(index, world.pointer.get(replica, 0))
    if level in {"sequential", "linearizable"}:
        world.floor[plan.client] = max(index, world.floor.get(plan.client, 0))
    told = index if level == "as_of" or draw.random() < shape.positions else None
    rows = world.rows_below(index)
    return Operation(
        "read", plan.client, "t", plan.call, "ok", plan.answer, level, rows=rows, index=told, replica=replica
    )


def _inserted(plan: _Plan, world: _World, draw: random.Random, shape: Shape) -> Operation:
    operation = Operation("insert", plan.client, "t", plan.call, "ok", plan.answer, rows=plan.rows, token=plan.token)
    outcome, known = plan.outcome, draw.random() < shape.positions
    place = world.counts_from.get(plan.rows)
    happens = place is None and outcome != "failed" and (outcome == "ok" or draw.random() < 0.6)
    index = place
    if happens:
        index = len(world.log)
        world.log.append(plan.rows)
        if draw.random() < shape.settled and outcome == "ok":
            world.log += [None] * draw.randrange(1, 3)
        world.counts_from[plan.rows] = len(world.log) - 1
    if outcome != "ok":
        return _told(operation, outcome, plan)
    world.floor[plan.client] = max(world.floor.get(plan.client, 0), world.counts_from[plan.rows] + 1)
    if place is not None:
        return operation
    assert index is not None
    settled = world.counts_from[plan.rows]
    if not known:
        return operation
    return msgspec.structs.replace(operation, index=index, settled=settled if settled != index else None)


def _told(operation: Operation, outcome: str, plan: _Plan) -> Operation:
    """Return an insert that failed, with rows that are never seen, or one whose end nobody knows."""
    if outcome == "failed":
        rows = ((plan.rows[0][0] + CLIENT_ROWS // 2, plan.rows[0][1] + CLIENT_ROWS // 2),)
        return msgspec.structs.replace(operation, outcome="failed", rows=rows, token=None)
    return msgspec.structs.replace(operation, outcome="unknown")


def _closing(world: _World, shape: Shape, now: int) -> list[Operation]:
    tail = len(world.log)
    rows = world.rows_below(tail)
    names = [f"r{number}" for number in range(shape.replicas)]
    return [
        Operation(
            "read", f"closing {name}", "t", now, "ok", now + 9, "eventual", rows, index=tail, replica=name, closing=True
        )
        for name in names
    ]
