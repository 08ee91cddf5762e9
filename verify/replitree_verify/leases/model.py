"""The model: one leader with a lease, one candidate, a log that refuses what is sent after the fence, and two clocks.

A tick moves the candidate's clock.  The leader's may miss it, but never two in a row: it runs at half the speed at least.
Clocks of other kinds are there for mutants.  Messages take any time; what was sent before the fence is stored before it, or
never.

The invariant (I14): a read that the leader answers by its lease does not lack what its successor has acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from replitree.tablet.core import lease
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.lease import Tenure
from replitree.tablet.group.ids import NOTHING, Generation, GenStep, Step

DURATION = 2
LOWERED = 1
TICKS_MAX = 8
ENTRIES_MAX = 2


class Clock(Enum):
    """What kind the leader's clock is.

    `BOOT`: never set, and goes on while the machine sleeps.  `MONOTONIC`: stands still meanwhile.  `WALL`: may be set back.
    """

    BOOT = "boot"
    MONOTONIC = "monotonic"
    WALL = "wall"


class Stage(Enum):
    """Where the candidate is."""

    AWAY = 0
    BEGUN = 1
    FENCED = 2
    ELECTED = 3
    ACTIVE = 4


class World(NamedTuple):
    """A state.

    Attributes
    ----------
    ticks
        How many there were: the candidate's clock.
    clock, missed
        The leader's clock; whether it missed the last tick.
    tenure
        The leader's lease: duration and end.
    sent
        Of each entry of the leader: when it was sent, by its clock; what it says of the lease; whether it is stored; whether it
        was heard to be.
    stage, since, ready
        Where the candidate is; a time at which its fence held; when it may begin to serve.
    """

    ticks: int = 0
    clock: int = 0
    missed: bool = False
    tenure: tuple[int, int] = (DURATION, 0)
    sent: tuple[tuple[int, tuple[tuple[int, bytes], ...], bool, bool], ...] = ()
    stage: Stage = Stage.AWAY
    since: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """What is explored.

    Attributes
    ----------
    clock
        Of the leader.
    counted_from
        From when on an entry makes the lease last, of when it was sent and when it was heard.
    begins_when_sent
        Whether it does so before it is heard to be stored.
    waited_from
        From when on the candidate waits, of when it began and when its fence held.
    """

    clock: Clock = Clock.BOOT
    counted_from: Callable[[int, int], int] = field(default=lambda sent, _heard: sent)
    begins_when_sent: bool = False
    waited_from: Callable[[int, int], int] = field(default=lambda _begun, fenced: fenced)


@dataclass(slots=True)
class Explored:
    """What was found: states, moves, and the way to the nearest bad state, for people; empty when there is none."""

    states: int = 0
    moves: int = 0
    trace: tuple[str, ...] = ()
    probes: set[str] = field(default_factory=set)


def explore(model: Model) -> Explored:
    """Visit every state, nearest first, or go until a read lacks something."""
    first, found = World(), Explored()
    came: dict[World, tuple[World, str] | None] = {first: None}
    level = [first]
    while level:
        following = list[World]()
        for world in level:
            if lease.may_answer(Tenure(*world.tenure), world.clock):
                found.probes.add("read by lease")
                # The successor has acknowledged something that the leader does not have: its read lacks it.
                if world.stage is Stage.ACTIVE:
                    found.states = len(came)
                    found.trace = (
                        *_way(came, world),
                        "the leader answers a read, and its successor has acknowledged more",
                    )
                    return found
            for text, after in _moves(model, world):
                found.moves += 1
                found.probes.add(text)
                if after not in came:
                    came[after] = (world, text)
                    following.append(after)
        level = following
    found.states = len(came)
    return found


def _way(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    way = list[str]()
    while (step := came[world]) is not None:
        world, text = step
        way.append(text)
    return tuple(reversed(way))


def _moves(model: Model, world: World) -> Iterator[tuple[str, World]]:
    """Yield what may happen next: time goes on, then the leader's moves, then the candidate's."""
    if world.ticks < TICKS_MAX:
        later = world._replace(ticks=world.ticks + 1)
        yield "a tick", later._replace(clock=world.clock + 1, missed=False)
        # A clock of the right kind never misses two ticks in a row: that is the drift that the protocol allows for.
        if not world.missed or model.clock is Clock.MONOTONIC:
            yield "a tick that the leader's clock misses", later._replace(missed=True)
        if model.clock is Clock.WALL and world.clock:
            yield "the leader's clock is set back", later._replace(clock=0, missed=False)
    if len(world.sent) < ENTRIES_MAX and world.tenure[0]:
        yield "the leader sends an entry", _sent(model, world, world.tenure)
        tenure = lease.released(Tenure(*world.tenure))
        yield "the leader gives its lease up", _sent(model, world, (tenure.duration_ns, tenure.until_ns))
    if len(world.sent) < ENTRIES_MAX and world.tenure[0] > LOWERED:
        tenure = lease.lowered(Tenure(*world.tenure), LOWERED)
        yield "the leader lowers its lease", _sent(model, world, (tenure.duration_ns, tenure.until_ns))
    for number, (at, said, is_stored, is_heard) in enumerate(world.sent):
        # After the fence the log refuses it: an entry is stored before, or never.
        if not is_stored and world.stage in (Stage.AWAY, Stage.BEGUN):
            yield "an entry is stored", _with(world, number, (at, said, True, False))
        # In order: a later entry counts only when all before it are stored, so its lease does not last earlier.
        if is_stored and not is_heard and all(each[3] for each in world.sent[:number]):
            # The time of sending is not needed any more: without it states that differ in nothing else are one.
            heard = _with(world, number, (0, said, True, True))
            yield "the leader hears of it", _extended(heard, model.counted_from(at, world.clock))
    yield from _candidate(model, world)


def _candidate(model: Model, world: World) -> Iterator[tuple[str, World]]:
    match world.stage:
        case Stage.AWAY:
            yield "the candidate begins", world._replace(stage=Stage.BEGUN, since=world.ticks)
        case Stage.BEGUN:
            since = model.waited_from(world.since, world.ticks)
            yield "its fence holds", world._replace(stage=Stage.FENCED, since=since)
        case Stage.FENCED:
            ready = lease.ready_at(accepted_of(world), world.since)
            # From here on only `ready` counts; `since` is set to 0 so that it makes no states differ.
            yield "it is elected", world._replace(stage=Stage.ELECTED, since=0, ready=ready)
        case Stage.ELECTED if world.ticks >= world.ready:
            yield "it acknowledges something", world._replace(stage=Stage.ACTIVE)


def _sent(model: Model, world: World, tenure: tuple[int, int]) -> World:
    said = lease.metadata(Tenure(*tenure))
    after = world._replace(tenure=tenure, sent=(*world.sent, (world.clock, said, False, False)))
    return _extended(after, world.clock) if model.begins_when_sent else after


def _extended(world: World, sent: int) -> World:
    tenure = lease.extended(Tenure(*world.tenure), sent)
    return world._replace(tenure=(tenure.duration_ns, tenure.until_ns))


def _with(world: World, number: int, entry: tuple[int, tuple[tuple[int, bytes], ...], bool, bool]) -> World:
    return world._replace(sent=(*world.sent[:number], entry, *world.sent[number + 1 :]))


def accepted_of(world: World) -> tuple[tuple[GenStep, LogEntry], ...]:
    """Return the entries that count: those that are stored with all before them."""
    accepted = list[tuple[GenStep, LogEntry]]()
    for number, (_, said, is_stored, _) in enumerate(world.sent, 1):
        if not is_stored:
            break
        accepted.append((GenStep(Generation(1), Step(number)), LogEntry(NOTHING, Step(0), metadata=said)))
    return tuple(accepted)
