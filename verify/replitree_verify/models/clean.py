"""Cleaning of the log: what a replica needs stays, a replica that is too far behind is marked lost first, and none is left out.

In most models three inserts are in the log, every replica that is active has pulled and executed them.
"""

from __future__ import annotations

from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.insert import two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Duty, Insert, Model

THREE = (("r1", "r1"), ("r2", "r2"), ("r3", "r3"))
BOTH = ("r1", "r2")
INSERTS = tuple(Insert("r1", ((n, token),)) for n, token in ((1, "a"), (2, "b"), (3, "c")))
WRITTEN = ("r1 ins 1", "r1 ins 2", "r1 ins 3")
AHEAD = (*WRITTEN, "r1", "r2")
"""r1 and r2 have everything; r3 was never there."""

# An inactive replica may be one entry behind before it is marked lost.
KEEP = Keep(0, 1)
CLEANERS = (Duty("r1", "clean", (KEEP,)), Duty("r2", "clean", (KEEP,)))

MODELS = (
    Model(
        "clean_clean",
        "two replicas clean the log at once while a third one is away for good; answers are lost, views lag",
        THREE,
        INSERTS,
        {Fault.UNKNOWN: 1, Fault.STALE: 1},
        workers=BOTH,
        started=BOTH,
        prelude=AHEAD,
        # No process of r3 ever starts: it holds the log back until it is marked lost.
        resting=(*BOTH, "r3 life"),
        duties=CLEANERS,
        probes=("marked lost", "log cleaned", "cleaning refused by is_lost", "late request applied", "stale read"),
    ),
    Model(
        "clean_crash",
        "a replica dies while it cleans, so that another one cleans, and is behind itself when it comes back",
        THREE,
        INSERTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        prelude=AHEAD,
        resting=(*BOTH, "r3 life"),
        duties=CLEANERS,
        probes=("marked lost", "log cleaned", "crash", "cleaning refused by host"),
    ),
    Model(
        "clean_return",
        "a replica that is away returns, and recovers if need be, while two others clean the log; answers are lost",
        THREE,
        INSERTS,
        {Fault.UNKNOWN: 1},
        workers=(*BOTH, "r3"),
        started=BOTH,
        prelude=AHEAD,
        resting=BOTH,
        duties=CLEANERS,
    ),
    Model(
        "clean_half_dropped",
        "the log is cleaned while a replica is half dropped, for good",
        (("r1", "r1"), ("r2", "r2")),
        INSERTS,
        {},
        workers=("r1",),
        started=("r1",),
        # The drop of r2 was cut off: it must hold no entry back.
        prelude=(*WRITTEN, "r1", "halve r2"),
        resting=("r1", "r2 life"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        # All three entries: the replica that is half dropped needs none of them.
        cleaned_to=3,
        probes=("log cleaned",),
    ),
    Model(
        "clean_torn",
        "the log is cleaned while a replica recovers from one that pulls; views lag, and move on in the middle of a reading",
        THREE,
        INSERTS,
        {Fault.STALE: 1},
        workers=("r1", "r2", "r3"),
        started=("r1", "r3"),
        prelude=(*WRITTEN[:2], "r3", "r1 ins 3", "r1 pull", "r2 life", "r2 pull", "stop r2", "lose r2"),
        resting=("r1", "r2", "r3 work"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=("log cleaned", "recovered", "torn read", "cleaning refused by is_lost"),
    ),
    two(
        "clean_pull",
        "a pull in doubt takes place after the pointer was read again, and its entry is removed before the next one",
        INSERTS[:2],
        {Fault.UNKNOWN: 1},
        prelude=(*WRITTEN[:2], "r1"),
        resting=("r1",),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=("log cleaned", "late request applied"),
    ),
    two(
        "clean_duplicate",
        "a token is inserted again while the entry of its first insert is removed",
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "a"),))),
        {Fault.UNKNOWN: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=BOTH,
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=("log cleaned", "duplicate"),
    ),
    two(
        "clean_insert",
        "the session of a replica ends while it inserts and an answer is lost; it is marked lost, and its entry is removed",
        (Insert("r2", ((1, "a"),)),),
        {Fault.UNKNOWN: 1, Fault.EXPIRY: 1},
        resting=("r1 work", "r2 pull", "r2 work"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=("log cleaned", "marked lost", "recovered", "late request applied", "insert in doubt"),
    ),
)
