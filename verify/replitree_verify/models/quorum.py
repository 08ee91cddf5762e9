"""Inserts with a quorum: which replicas count, which give up, and what becomes of an insert that is given up."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import EVERY_PARTITION, DropEntry, MutateEntry
from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.clean import THREE
from replitree_verify.models.insert import TWO
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model, Proposal

BOTH = ("r1", "r2")
ALL = ("r1", "r2", "r3")
FIRST = Insert("r1", ((1, "a"),), quorum=2)
AGAIN = Insert("r2", ((2, "a"),), quorum=2)
OTHER = Insert("r1", ((3, "b"),))
REACHED, GIVEN_UP = ("quorum reached",), ("quorum given up", "failed for good")
# A waiter may lose patience at any moment, and so may the leader with an insert whose writer seems gone: so most models see
# inserts that are settled and inserts that fail.
ENDS = (*REACHED, *GIVEN_UP)
LATE = ("late request applied", "unknown: applied, answer lost")
OPEN = ("open r1 ins 1", "r1", "r2 pull")
"""r1 has the first insert, r2 is about to bring it, and its client waits."""
MERGE = (Proposal("r1", ("all_0_0_0", "all_1_1_0")),)


def _drop(seat: str) -> tuple[Ask, ...]:
    return (Ask(seat, 4, DropEntry(seat, EntryId("e4"), EVERY_PARTITION)),)


def _two(name: str, description: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of two replicas that pull and execute."""
    asked: dict[str, Any] = {"inserts": (FIRST,), "workers": BOTH, "started": BOTH, **more}
    return Model(name, description, TWO, faults=faults, probes=probes, **asked)


def _three(name: str, description: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of three."""
    asked: dict[str, Any] = {"inserts": (FIRST,), "workers": ALL, "started": ALL, **more}
    return Model(name, description, asked.pop("seats", THREE), faults=faults, probes=probes, **asked)


MODELS = (
    _two("quorum_two", "an insert needs both replicas; its client loses patience at any moment", {}, *ENDS),
    _three(
        "quorum_three",
        "an insert needs two of three replicas; the two others count themselves at once",
        {},
        *(*ENDS, "quorum moved meanwhile"),
        prelude=(*OPEN, "r3 pull"),
        resting=("r1 work",),
    ),
    _three(
        "quorum_all",
        "an insert needs all three replicas, the second of which is only counted",
        {},
        *(*ENDS, "counted", "quorum moved meanwhile"),
        # All three: so the second replica is counted and does not settle.
        inserts=(Insert("r1", ((1, "a"),), quorum=3),),
        prelude=(*OPEN, "r3 pull"),
        resting=("r1 work",),
    ),
    _two(
        "quorum_crash",
        "a process dies while an insert is open; the leader gives it up at any moment",
        {Fault.CRASH: 1},
        *("quorum reached", "quorum given up", "crash"),
        prelude=OPEN,
        duties=(Duty("r2", "give-up"),),
        resting=("r1 work",),
    ),
    _two(
        "quorum_doubt",
        "an answer is lost while an insert is open",
        {Fault.UNKNOWN: 1},
        *(*ENDS, *LATE),
        prelude=OPEN,
        resting=("r1 work",),
    ),
    _two(
        "quorum_commit_doubt",
        "the answer to the commit of an insert with a quorum is lost; another replica gives it up meanwhile",
        {Fault.UNKNOWN: 1},
        *("quorum given up", "unknown: applied, answer lost", "late request applied"),
        duties=(Duty("r2", "give-up"),),
        resting=("r1", "r2 work"),
    ),
    _two(
        "quorum_expiry",
        "the session of a replica ends while an insert is open",
        {Fault.EXPIRY: 1},
        *ENDS,
        prelude=OPEN,
        resting=("r1 work",),
    ),
    _two(
        "quorum_stale",
        "a view lags while an insert is open",
        {Fault.STALE: 1},
        *(*ENDS, "stale read"),
        prelude=OPEN,
        resting=("r1 work",),
    ),
    _two(
        "quorum_retry",
        "a client sends its insert to another replica too, with the same token",
        {},
        *(*ENDS, "retry waited"),
        inserts=(FIRST, AGAIN),
        prelude=OPEN,
        resting=("r1 work",),
    ),
    _two(
        "quorum_merge",
        "the leader proposes to merge a part with one that is open, at any moment",
        {},
        *(*ENDS, "merged"),
        inserts=(OTHER, FIRST),
        merges=MERGE,
        prelude=("r1 ins 3", *BOTH, *OPEN),
        resting=("r1 work",),
    ),
    _two(
        "quorum_drop",
        "the table is dropped while an insert is open",
        {},
        *("quorum reached", "quorum given up"),
        commands=_drop("r1"),
        prelude=(*OPEN, "r1 ask 4", "r1"),
        resting=("r1",),
    ),
    _two(
        "quorum_drop_again",
        "the table is dropped while an insert is open, and its client inserts again",
        {},
        *("quorum reached", "quorum given up"),
        inserts=(FIRST, AGAIN),
        commands=_drop("r1"),
        prelude=(*OPEN, "r1 ask 4", "r1 pull"),
        resting=("r1 work",),
    ),
    _two(
        "quorum_mutate",
        "rows were changed while an insert is open; one replica has done so, the other one has the entries in its queue",
        {},
        *ENDS,
        commands=(Ask("r1", 4, MutateEntry("r1", EntryId("e4"), EVERY_PARTITION, "x")),),
        prelude=("open r1 ins 1", "r1", "r1 ask 4", "r1", "r2 pull"),
        resting=("r1 work", "r1 make"),
    ),
    _two(
        "quorum_alone",
        "no process waits for an open insert any more, and one dies",
        {Fault.CRASH: 1},
        *(*REACHED, "crash"),
        prelude=OPEN,
        resting=("r1 work", "r1 ins 1"),
    ),
    _three(
        "quorum_all_alone",
        "an insert needs all three replicas, none waits for it, and one dies that has its parts and is not counted yet",
        {Fault.CRASH: 1},
        *(*REACHED, "counted", "counted late", "quorum moved meanwhile", "crash"),
        inserts=(Insert("r1", ((1, "a"),), quorum=3),),
        prelude=(*OPEN, "r3 pull"),
        resting=("r1 work", "r1 ins 1"),
    ),
    _three(
        "quorum_recover",
        "a lost replica takes over the state of one that has an open insert, and counts",
        {},
        *(*ENDS, "recovered", "counted late"),
        workers=("r1", "r3"),
        prelude=("stop r3", "lose r3", "open r1 ins 1", "r1"),
        resting=("r1 work",),
    ),
    _three(
        "quorum_clean",
        "the log is cleaned while an insert is open that all three replicas must have, and a process dies",
        {Fault.CRASH: 1},
        *(*REACHED, "counted late", "crash"),
        inserts=(Insert("r1", ((1, "a"),), quorum=3),),
        prelude=(*OPEN, "r3 pull"),
        duties=(Duty("r1", "clean", (Keep(0, 5),)),),
        resting=("r1 work", "r1 ins 1"),
    ),
    _three(
        "quorum_dropped",
        "a replica that is counted for an open insert is dropped and joins again; all three have to have it",
        {},
        *(*REACHED, "counted", "drop of a replica finished", "replica added"),
        seats=(*THREE, ("op", "op")),
        inserts=(Insert("r1", ((1, "a"),), quorum=3),),
        prelude=("open r1 ins 1", "r1", "r2", "stop r2", "r3 pull"),
        duties=(Duty("op", "drop", ("r2",)),),
        operators=("op",),
        resting=("r1", "r1 life", "r1 ins 1", "r3 pull", "r3 life"),
    ),
    _two(
        "quorum_lost",
        "the part of an open insert breaks on its writer before another replica has fetched it",
        {},
        *("quorum given up",),
        prelude=(*OPEN, "r1 break1", "r1 watch2"),
        duties=(
            Duty("r1", "break", ("all_0_0_0",)),
            Duty("r1", "watch"),
            Duty("r2", "lose", ("all_0_0_0",)),
        ),
        resting=("r1 work",),
    ),
)
