"""Coordination has lost the table, and it is made anew from the parts on one replica's disk, which is cut off and begun again.

In most models r2 comes whenever coordination has the table: it joins, waits for a good replica, and recovers.
"""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import TWO
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model

BOTH = ("r1", "r2")
OPERATED = (*TWO, ("op", "op"))
INSERTS = (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),)))
# r1 has two parts, and r2 only the first of them; after the wipe no process runs.
WIPED = ("r1 ins 1", *BOTH, "r1 ins 2", "r1", "wipe")
RESTORE = Duty("op", "restore", ("r1",))
DONE = ("restoring begun", "restored")


def _joined(name: str, description: str, faults: dict[Fault, int], *probes: str) -> Model:
    """Return a model of a table that is restored from r1 while r2 joins, recovers and inserts."""
    return Model(
        name,
        description,
        OPERATED,
        (*INSERTS, Insert("r2", ((3, "c"),))),
        faults,
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        # The server of r1 stays off: the restore has its disk.
        resting=("r1 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, *probes),
    )


MODELS = (
    Model(
        "restore_crash",
        "a restore is cut off twice, anywhere, and begun again; an answer is lost",
        OPERATED,
        INSERTS,
        {Fault.CRASH: 2, Fault.UNKNOWN: 2},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life", "r2 life"),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "earlier run fenced", "crash", "late request applied", "unknown: applied, answer lost"),
    ),
    Model(
        "restore_breaks",
        "a part breaks while a restore is cut off and begun again; requests come late",
        OPERATED,
        INSERTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life", "r2 life"),
        operators=("op",),
        duties=(RESTORE, Duty("r1", "break", ("all_1_1_0",))),
        probes=(*DONE, "earlier run fenced", "registration taken back", "crash", "late request applied"),
    ),
    Model(
        "restore_again",
        "a table is restored, and its restore is begun again after the end; a part breaks before, between or after",
        OPERATED,
        INSERTS,
        {},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life", "r2 life"),
        operators=("op",),
        duties=(RESTORE, Duty("op", "restore-again", ("r1",)), Duty("r1", "break", ("all_1_1_0",))),
        probes=DONE,
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
    Model(
        "restore_start",
        "the server of the replica starts as soon as no process holds its disk, also between two runs",
        OPERATED,
        INSERTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r2 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "restoring refused by host", "crash"),
    ),
    Model(
        "restore_two",
        "two operators restore the table from two replicas at once; one of them is cut off",
        (*OPERATED, ("ap", "ap")),
        INSERTS,
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life",),
        operators=("op", "ap"),
        duties=(RESTORE, Duty("ap", "restore", ("r2",))),
        probes=(*DONE, "replica added", "recovered", "crash"),
    ),
    Model(
        "restored",
        "a table was restored: both replicas come back, and a token from before is inserted again; the log rolls over",
        OPERATED,
        (*INSERTS, Insert("r1", ((3, "a"),))),
        {},
        workers=BOTH,
        started=BOTH,
        prelude=(*WIPED, "op restore1"),
        operators=("op",),
        duties=(RESTORE, Duty("r1", "roll", (1,))),
        probes=("replica added", "recovered", "rolled over"),
    ),
    Model(
        "restore_spoilt",
        "a part on the disk is not whole: the table is restored without it, and another replica has it",
        OPERATED,
        INSERTS,
        {},
        workers=BOTH,
        started=BOTH,
        prelude=(*WIPED[:-1], "r2", "spoil r1 all_1_1_0", "wipe"),
        resting=("r1 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "recovered"),
    ),
    Model(
        "restore_detached",
        "a part was detached, and is still on the disk: its process died before it could take it out; the restore is cut off",
        OPERATED,
        INSERTS,
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        commands=(Ask("r1", 9, DropEntry("r1", EntryId("d"), "all", 0, 0, detach=True)),),
        prelude=(*WIPED[:-1], "r2", "r1 ask 9", *BOTH, "unmark r1 all_0_0_0", "wipe"),
        resting=("r2 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "crash"),
    ),
    replace(
        _joined(
            "restore_join_late",
            "another replica joins while a table is restored; the restore is cut off, answers are lost, views lag",
            {Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.STALE: 1},
            *("replica added", "recovered", "crash", "late request applied", "stale read"),
        ),
        resting=("r1 life", "r2 work"),
    ),
)
