"""The model: one leader with a lease, one candidate, a log that refuses what is sent after the fence, and two clocks.

A tick moves the candidate's clock.  The leader's may miss it, but never two in a row: it runs at half the speed at least.
Messages take any time; what was sent before the fence is stored before it, or never.

The invariant (I14): a read that the leader answers by its lease does not lack what its successor has acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from typing_extensions import override

from replitree.tablet.core import lease
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.lease import Tenure
from replitree.tablet.group.ids import NOTHING, Generation, GenStep, Step
from replitree_verify.engine import small_search
from replitree_verify.engine.small_search import Declaration, Rules, Searched, search_all
from replitree_verify.patches.patch import Patch

DURATION = 2
LOWERED = 1
TICKS_MAX = 8
ENTRIES_MAX = 2


class Stage(Enum):
    """Where the candidate is."""

    AWAY = 0
    BEGUN = 1
    FENCED = 2
    ELECTED = 3
    ACTIVE = 4


class LeaseState(NamedTuple):
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

    @property
    def key(self) -> LeaseState:
        """What tells it apart."""
        return self


MODEL = Declaration(
    "lease",
    "a leader with a lease and its successor, with clocks of different speeds",
    probes=(
        "read by lease",
        "it acknowledges something",
        "the leader gives its lease up",
        "the leader lowers its lease",
    ),
)
DESCRIPTIONS = {"I14": "a read that a leader answers by its lease does not lack what its successor has acknowledged"}


class Space(small_search.Space[LeaseState]):
    """The states, and the moves between them.

    Attributes
    ----------
    probes
        The moves that were seen, and whether a read was.
    """

    def __init__(self) -> None:
        self.model = MODEL
        self.probes = set[str]()

    @override
    def first(self) -> LeaseState:
        return LeaseState()

    @override
    def steps(self, state: LeaseState, /) -> Iterator[tuple[str, LeaseState]]:
        for text, after in moves(state):
            self.probes.add(text)
            yield text, after

    def violations(self, state: LeaseState) -> Iterator[str]:
        """Give what does not hold in a state."""
        if lease.may_answer(Tenure(*state.tenure), state.clock):
            self.probes.add("read by lease")
            # The successor has acknowledged something that the leader does not have: its read lacks it.
            if state.stage is Stage.ACTIVE:
                yield "I14: the leader answers a read, and its successor has acknowledged more"


def search(_: Declaration, mutant: Patch | None = None) -> Searched:
    """Search the one model; all else as of `search_all`."""
    space = Space()
    found = search_all(space, Rules(always=space.violations), mutant)
    return replace(found, probes=frozenset(space.probes))


def moves(state: LeaseState) -> Iterator[tuple[str, LeaseState]]:
    """Yield what may happen next: time goes on, then the leader's moves, then the candidate's."""
    if state.ticks < TICKS_MAX:
        later = state._replace(ticks=state.ticks + 1)
        yield "a tick", later._replace(clock=state.clock + 1, missed=False)
        # A clock of the right kind never misses two ticks in a row: that is the drift that the protocol allows for.
        if not state.missed:
            yield "a tick that the leader's clock misses", later._replace(missed=True)
    if len(state.sent) < ENTRIES_MAX and state.tenure[0]:
        yield "the leader sends an entry", _sent(state, state.tenure)
        tenure = lease.released(Tenure(*state.tenure))
        yield "the leader gives its lease up", _sent(state, (tenure.duration_ns, tenure.until_ns))
    if len(state.sent) < ENTRIES_MAX and state.tenure[0] > LOWERED:
        tenure = lease.lowered(Tenure(*state.tenure), LOWERED)
        yield "the leader lowers its lease", _sent(state, (tenure.duration_ns, tenure.until_ns))
    for number, (at, said, is_stored, is_heard) in enumerate(state.sent):
        # After the fence the log refuses it: an entry is stored before, or never.
        if not is_stored and state.stage in (Stage.AWAY, Stage.BEGUN):
            yield "an entry is stored", _with(state, number, (at, said, True, False))
        # In order: a later entry counts only when all before it are stored, so its lease does not last earlier.
        if is_stored and not is_heard and all(each[3] for each in state.sent[:number]):
            # The time of sending is not needed any more: without it states that differ in nothing else are one.
            heard = _with(state, number, (0, said, True, True))
            # From when it was sent, not from when it was heard: the candidate may have begun to wait in between.
            yield "the leader hears of it", _extended(heard, at)
    match state.stage:
        case Stage.AWAY:
            yield "the candidate begins", state._replace(stage=Stage.BEGUN, since=state.ticks)
        case Stage.BEGUN:
            yield "its fence holds", state._replace(stage=Stage.FENCED, since=state.ticks)
        case Stage.FENCED:
            ready = lease.ready_at(accepted_of(state), state.since)
            # From here on only `ready` counts; `since` is set to 0 so that it makes no states differ.
            yield "it is elected", state._replace(stage=Stage.ELECTED, since=0, ready=ready)
        case Stage.ELECTED if state.ticks >= state.ready:
            yield "it acknowledges something", state._replace(stage=Stage.ACTIVE)


def _sent(state: LeaseState, tenure: tuple[int, int]) -> LeaseState:
    said = lease.metadata(Tenure(*tenure))
    return state._replace(tenure=tenure, sent=(*state.sent, (state.clock, said, False, False)))


def _extended(state: LeaseState, sent: int) -> LeaseState:
    tenure = lease.extended(Tenure(*state.tenure), sent)
    return state._replace(tenure=(tenure.duration_ns, tenure.until_ns))


def _with(state: LeaseState, number: int, entry: tuple[int, tuple[tuple[int, bytes], ...], bool, bool]) -> LeaseState:
    return state._replace(sent=(*state.sent[:number], entry, *state.sent[number + 1 :]))


def accepted_of(state: LeaseState) -> tuple[tuple[GenStep, LogEntry], ...]:
    """Return the entries that count: those that are stored with all before them."""
    accepted = list[tuple[GenStep, LogEntry]]()
    for number, (_, said, is_stored, _) in enumerate(state.sent, 1):
        if not is_stored:
            break
        accepted.append((GenStep(Generation(1), Step(number)), LogEntry(NOTHING, Step(0), metadata=said)))
    return tuple(accepted)
