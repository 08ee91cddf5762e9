"""Replicas that are dropped and join again under their names, while a process of the earlier one is still at work.

r2 is good, and rests.  The process of r1 has something in its hands: a part that it registers with its mark, a share that it
releases, an insert.  Its session ends without its knowledge, an operator drops r1, and n1, on a machine of its own, joins in
its name.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import TWO
from replitree_verify.models.merge import BOTH
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model

OTHERS = (Insert("r2", ((1, "a"),)),)
OPEN = (Insert("r2", ((1, "a"),), quorum=4),)
DROP = (Ask("r2", 9, DropEntry("r2", EntryId("d"), "all")),)
PULLED = ("r2 ins 1", "r2", "r1 pull")
"""r2 has a part, and r1 its entry."""

LEFT = (*PULLED, "r1 work", "r2 ask 9", "r1 pull", "r1 work")
"""The part has left r1, which has still to release its share."""

AGAIN = ("drop of a replica finished", "replica added")
RESTING = ("r1 life", "r1 pull", "r2 life", "r2 pull", "r2 work")


def _rejoins(name: str, description: str, **more: Any) -> Model:
    """Return a model in which r1 is dropped and joins again on another machine; `more` as of `Model`."""
    given: dict[str, Any] = {
        "seats": (*TWO, ("n1", "r1"), ("op", "op")),
        "inserts": OTHERS,
        "faults": {Fault.EXPIRY: 1},
        # Only the process that is at work is to lose its session: it does not know of the drop.
        "struck": ((Fault.EXPIRY, "r1"),),
        "workers": BOTH,
        "started": BOTH,
        "stored": True,
        # Another machine: the process that joins shares neither disk nor incarnation with the earlier one.
        "machines": ("n1",),
        "operators": ("op",),
        "duties": (Duty("op", "drop", ("r1", more.get("stored", True))),),
        "prelude": PULLED,
        "resting": RESTING,
        "probes": AGAIN,
    }
    return Model(name, description, **(given | more))


def _remade(name: str, does: str, **more: Any) -> Model:
    """Return a model in which the table is dropped and made anew, and r1's machine opens that one as well."""
    given: dict[str, Any] = {
        "seats": (*TWO, ("l1", "r1"), ("op", "op")),
        "machines": ("l1",),
        "remade": ("l1",),
        "duties": (Duty("op", "remake", (BOTH,)),),
    }
    return _rejoins(name, f"{does}; its table is dropped, and another one of its name is created", **(given | more))


MODELS = (
    _rejoins(
        "rejoin_register",
        "a process registers a part; its replica is dropped, and another process joins as it",
        probes=(*AGAIN, "execution fenced"),
    ),
    _rejoins(
        "rejoin_leave",
        "a process lets go of a share",
        commands=DROP,
        upkeepers=("r1",),
        prelude=LEFT,
        resting=(*RESTING, "r1 work"),
    ),
    _rejoins(
        "rejoin_append",
        "a process inserts rows; any session ends, so that the other process may be activated twice",
        inserts=(*OTHERS, Insert("r1", ((2, "b"),))),
        # The session of any process may end, so that n1 may activate twice.
        struck=(),
        upkeepers=("n1",),
        resting=(*RESTING, "r1 work"),
        probes=(*AGAIN, "insert fenced"),
    ),
    _rejoins(
        "rejoin_count",
        "a process registers a part and, in the same commit, counts its replica for the insert, which is open",
        inserts=OPEN,
        stored=False,
        prelude=("open r2 ins 1", "r2", "r1 pull"),
        probes=(*AGAIN, "execution fenced"),
    ),
    _rejoins(
        "rejoin_count_later",
        "the same, and another replica was faster: the process registers the part, and then counts its replica",
        seats=(*TWO, ("r3", "r3"), ("n1", "r1"), ("op", "op")),
        inserts=OPEN,
        stored=False,
        workers=(*BOTH, "r3"),
        started=(*BOTH, "r3"),
        prelude=("open r2 ins 1", "r2", "r1 pull", "r3 pull", "hold r1 work", "r3 work"),
        resting=(*RESTING, "r3", "r3 life"),
        probes=(*AGAIN, "execution fenced"),
    ),
    _rejoins(
        "rejoin_first",
        "two processes add a replica of a new name, one after the other; the first one registers a part",
        stored=False,
        absent=("r1",),
        started=("r2",),
        # The second process is held before its commit: both have found the name free.
        prelude=("r2 ins 1", "r2", "hold n1 life", "r1 life"),
        probes=(*AGAIN, "execution fenced"),
    ),
    _rejoins(
        "rejoin_again",
        "the same, and the name was dropped before, after two epochs",
        stored=False,
        absent=("r1",),
        started=("r2",),
        prelude=(
            *("r2 ins 1", "r2", "r1 life", "stop r1", "r1 life", "stop r1", "drop r1"),
            *("hold n1 life", "r1 life"),
        ),
        probes=(*AGAIN, "execution fenced"),
    ),
    _rejoins(
        "rejoin_doubt",
        "a process registers a part, while the answer to a commit is lost",
        faults={Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        probes=(*AGAIN, "execution fenced", "late request applied"),
    ),
    _remade(
        "remade_register",
        "a process registers a part",
        probes=(*AGAIN, "execution fenced"),
    ),
    _remade(
        "remade_leave",
        "a process lets go of a share",
        commands=DROP,
        upkeepers=("r1",),
        prelude=LEFT,
        resting=(*RESTING, "r1 work"),
    ),
    _remade(
        "remade_append",
        "a process inserts rows",
        inserts=(*OTHERS, Insert("r1", ((2, "b"),))),
        resting=(*RESTING, "r1 work"),
        probes=(*AGAIN, "insert fenced"),
    ),
    _remade(
        "remade_activate",
        "a process begins to act for a replica, and says which store its table lies in",
        seats=(("r1", "r1"), ("l1", "r1"), ("op", "op")),
        inserts=(),
        workers=(),
        started=(),
        duties=(Duty("op", "remake", (("r1",),)),),
        prelude=(),
        resting=(),
        probes=(*AGAIN, "replaced process stopped"),
    ),
    Model(
        "remade_helped",
        "a process helps to drop a table, which is made anew, and gets an insert, meanwhile",
        (("r1", "r1"), ("l1", "r1"), ("op", "op"), ("ap", "ap")),
        (Insert("r1", ((1, "a"),)), Insert("l1", ((2, "b"),))),
        {},
        started=("r1",),
        prelude=("r1 ins 1", "stop r1"),
        resting=("r1 life",),
        machines=("l1",),
        remade=("l1",),
        operators=("op", "ap"),
        duties=(Duty("op", "remake", (("r1",),)), Duty("ap", "remove")),
        probes=AGAIN,
    ),
    Model(
        "remade_doubt",
        "an operator drops a table and makes it anew, gets no answer to a commit, and tries again; the commit comes late",
        (*TWO, ("op", "op")),
        (),
        {Fault.UNKNOWN: 1},
        resting=("r1 life", "r2 life"),
        stored=True,
        operators=("op",),
        duties=(Duty("op", "remake", (BOTH,)),),
        probes=(AGAIN[0], "late request applied"),
    ),
    Model(
        "remade_restored",
        "a process registers a part and takes another epoch; coordination has lost its table, which is restored from r2's disk",
        (*TWO, ("l1", "r1"), ("op", "op")),
        OTHERS,
        {Fault.EXPIRY: 1},
        workers=BOTH,
        started=BOTH,
        prelude=(*PULLED, "wipe r1"),
        resting=RESTING[1:],
        struck=((Fault.EXPIRY, "r1"),),
        machines=("l1",),
        remade=("l1", "op"),
        operators=("op",),
        duties=(Duty("op", "restore", ("r2",)),),
        probes=("restored", "replica added", "execution fenced"),
    ),
)
