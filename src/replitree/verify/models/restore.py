"""Coordination has lost the table, and it is made anew from the parts on one replica's disk, which is cut off and begun again.

r1 has two parts, r2 only the first of them; no process runs.  In most models the server of r1 stays off, and r2 comes whenever
coordination has the table: it joins, waits for a good replica, and recovers.
"""

from __future__ import annotations

from replitree.verify.model import Duty, Fault, Insert, Model
from replitree.verify.models.insert import TWO

BOTH = ("r1", "r2")
OPERATED = (*TWO, ("op", "op"))
INSERTS = (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),)))
WIPED = ("r1 ins 1", *BOTH, "r1 ins 2", "r1", "wipe")
RESTORE = Duty("op", "restore", ("r1",))
DONE = ("restoring begun", "restored")

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
        "restore_join",
        "another replica starts while a table is restored, joins, recovers and inserts; the restore is cut off",
        OPERATED,
        (*INSERTS, Insert("r2", ((3, "c"),))),
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "replica added", "waited for a source", "recovered", "crash"),
    ),
    Model(
        "restore_session",
        "another replica joins while a table is restored, and its session ends",
        OPERATED,
        (*INSERTS, Insert("r2", ((3, "c"),))),
        {Fault.EXPIRY: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life",),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "replica added", "recovered", "activated again", "insert fenced"),
    ),
    Model(
        "restore_start",
        "the server of the replica starts as soon as nobody holds its disk, also between two runs",
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
        "restore_join_late",
        "another replica joins while a table is restored; the restore is cut off, answers are lost, views lag",
        OPERATED,
        (*INSERTS, Insert("r2", ((3, "c"),))),
        {Fault.CRASH: 1, Fault.UNKNOWN: 1, Fault.STALE: 1},
        workers=BOTH,
        started=BOTH,
        prelude=WIPED,
        resting=("r1 life", "r2 work"),
        operators=("op",),
        duties=(RESTORE,),
        probes=(*DONE, "replica added", "recovered", "crash", "late request applied", "stale read"),
        nightly=True,
    ),
)
