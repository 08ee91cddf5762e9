"""Coordination has lost the table, and it is made anew from the parts on one replica's disk, which is cut off and begun again.

In most models r2 comes whenever coordination has the table: it joins, waits for a good replica, and recovers.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model

BOTH = ("r1", "r2")
INSERTS = (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),)))
# r1 has two parts, and r2 only the first of them; after the wipe no process runs.
WIPED = ("r1 ins 1", *BOTH, "r1 ins 2", "r1", "wipe")
RESTORE = Duty("op", "restore", ("r1",))
DONE = ("restoring begun", "restored")


def _restore(name: str, description: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of a table that is restored from r1; `more` as of `Model`."""
    asked: dict[str, Any] = {"prelude": WIPED, "operators": ("op",), "duties": (RESTORE,), **more}
    return two(name, description, asked.pop("inserts", INSERTS), faults, probes=(*DONE, *probes), **asked)


def _joined(name: str, description: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of a table that is restored from r1 while r2 joins, recovers and inserts; `more` as of `Model`."""
    # The server of r1 stays off: the restore has its disk.
    asked: dict[str, Any] = {"resting": ("r1 life",), **more}
    return _restore(name, description, faults, *probes, inserts=(*INSERTS, Insert("r2", ((3, "c"),))), **asked)


MODELS = (
    _restore(
        "restore_crash",
        "a restore is cut off twice, anywhere, and begun again; an answer is lost",
        {Fault.CRASH: 2, Fault.UNKNOWN: 2},
        *("earlier run fenced", "crash", "late request applied", "unknown: applied, answer lost"),
        resting=("r1 life", "r2 life"),
    ),
    _restore(
        "restore_breaks",
        "a part breaks while a restore is cut off and begun again; requests come late",
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        *("earlier run fenced", "registration taken back", "crash", "late request applied"),
        resting=("r1 life", "r2 life"),
        duties=(RESTORE, Duty("r1", "break", ("all_1_1_0",))),
    ),
    _restore(
        "restore_again",
        "a table is restored, and its restore is begun again after the end; a part breaks before, between or after",
        {},
        resting=("r1 life", "r2 life"),
        duties=(RESTORE, Duty("op", "restore-again", ("r1",)), Duty("r1", "break", ("all_1_1_0",))),
    ),
    _joined(
        "restore_join",
        "another replica starts while a table is restored, joins, recovers and inserts; the restore is cut off",
        {Fault.CRASH: 1},
        *("replica added", "waited for a source", "recovered", "crash"),
    ),
    _joined(
        "restore_session",
        "another replica joins while a table is restored, and its session ends",
        {Fault.EXPIRY: 1},
        *("replica added", "recovered", "activated again", "insert fenced"),
    ),
    _restore(
        "restore_start",
        "the server of the replica starts as soon as no process holds its disk, also between two runs",
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        *("restoring refused by host", "crash"),
        resting=("r2 life",),
    ),
    _restore(
        "restore_two",
        "two operators restore the table from two replicas at once; one of them is cut off",
        {Fault.CRASH: 1},
        *("replica added", "recovered", "crash"),
        resting=("r1 life",),
        operators=("op", "ap"),
        duties=(RESTORE, Duty("ap", "restore", ("r2",))),
    ),
    two(
        "restored",
        "a table was restored: both replicas come back, and a token from before is inserted again; the log rolls over",
        (*INSERTS, Insert("r1", ((3, "a"),))),
        {},
        prelude=(*WIPED, "op restore1"),
        operators=("op",),
        duties=(RESTORE, Duty("r1", "roll", (1,))),
        probes=("replica added", "recovered", "rolled over"),
    ),
    _restore(
        "restore_spoilt",
        "a part on the disk is not whole: the table is restored without it, and another replica has it",
        {},
        "recovered",
        prelude=(*WIPED[:-1], "r2", "spoil r1 all_1_1_0", "wipe"),
        resting=("r1 life",),
    ),
    _restore(
        "restore_detached",
        "a part was detached, and is still on the disk: its process died before it could take it out; the restore is cut off",
        {Fault.CRASH: 1},
        "crash",
        commands=(Ask("r1", 9, DropEntry("r1", EntryId("d"), "all", 0, 0, detach=True)),),
        prelude=(*WIPED[:-1], "r2", "r1 ask 9", *BOTH, "unmark r1 all_0_0_0", "wipe"),
        resting=("r2 life",),
    ),
    _joined(
        "restore_join_late",
        "another replica joins while a table is restored; the restore is cut off, answers are lost, views lag",
        {Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.STALE: 1},
        *("replica added", "recovered", "crash", "late request applied", "stale read"),
        resting=("r1 life", "r2 work"),
    ),
)
