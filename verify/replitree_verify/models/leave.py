"""Replicas that join, that are dropped, and what an operator does when all are lost."""

from __future__ import annotations

from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.clean import INSERTS, KEEP, THREE
from replitree_verify.models.insert import two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Duty, Insert, Model

AWAY = ("r1 ins 1", "r2 life", "stop r2", "r1 ins 2", "r1 ins 3", "r1")
"""r2 has the first insert and is away; r1 has everything."""

MODELS = (
    two(
        "join_clean",
        "a replica joins while another one cleans the log",
        INSERTS,
        {Fault.UNKNOWN: 1},
        started=("r1",),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", "r1"),
        resting=("r1",),
        absent=("r2",),
        duties=(Duty("r1", "clean", (KEEP,)),),
        probes=("replica added", "log cleaned", "cleaning refused by replicas", "recovered", "late request applied"),
    ),
    two(
        "join_clean_insert",
        "a replica joins while another one inserts and cleans the log; it dies",
        (*INSERTS[:2], Insert("r1", ((3, "c"),))),
        {Fault.CRASH: 1},
        started=("r1",),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 ins 3"),
        absent=("r2",),
        resting=("r1 work",),
        duties=(Duty("r1", "clean", (KEEP,)),),
        probes=("replica added", "log cleaned", "recovered", "queue taken over", "crash"),
    ),
    two(
        "drop_activation",
        "an operator drops a replica that is away and comes back at any moment",
        INSERTS[:2],
        {Fault.UNKNOWN: 1},
        started=("r1",),
        prelude=("r1 ins 1", "r2 life", "r2", "stop r2", "r1 ins 2", "r1"),
        resting=("r1",),
        operators=("op",),
        duties=(Duty("op", "drop", ("r2",)),),
        probes=("drop of a replica begun", "drop of a replica finished", "replica added", "late request applied"),
    ),
    two(
        "drop_half",
        "the drop of a replica is cut off anywhere; the log is cleaned, and the replica comes back",
        INSERTS,
        {Fault.CRASH: 1},
        workers=("r1",),
        started=("r1",),
        prelude=AWAY,
        resting=("r1",),
        operators=("op",),
        duties=(Duty("op", "drop", ("r2",)), Duty("r1", "clean", (KEEP,))),
        probes=(
            "drop of a replica begun",
            "drop of a replica finished",
            "log cleaned",
            "crash",
            "replica added",
            "recovered",
        ),
    ),
    Model(
        "drop_each_other",
        "two operators drop two replicas that are away, while a third one is cleaning",
        (*THREE, ("op", "op"), ("ap", "ap")),
        INSERTS,
        {},
        workers=("r1",),
        started=("r1",),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", "r1", "stop r1"),
        resting=("r1", "r1 life", "r2 life", "r3 life"),
        operators=("op", "ap"),
        duties=(Duty("op", "drop", ("r1",)), Duty("ap", "drop", ("r2",)), Duty("op", "drop", ("r3",))),
        probes=("drop of a replica begun", "drop of a replica finished"),
    ),
    two(
        "drop_session",
        "an operator drops a replica whose session has ended while it inserts and executes; its process joins again",
        (*INSERTS[:1], Insert("r2", ((2, "b"),))),
        {Fault.EXPIRY: 1},
        prelude=("r1 ins 1", "r1", "r2 pull"),
        resting=("r1", "r2 pull"),
        operators=("op",),
        duties=(Duty("op", "drop", ("r2",)),),
        probes=("drop of a replica begun", "replica added", "insert fenced", "execution fenced"),
    ),
    two(
        "survive_two",
        "all replicas are lost; two operators declare one each good, while one of the replicas comes back and they die",
        INSERTS[:1],
        {Fault.CRASH: 1},
        prelude=("r1 ins 1", "r1", "r2", "lose r1", "lose r2", "stop r1", "stop r2"),
        resting=("r2 life",),
        operators=("op", "ap"),
        duties=(Duty("op", "survive", ("r1",)), Duty("ap", "survive", ("r2",))),
        probes=("declared good", "waited for a source", "recovered", "crash"),
    ),
    two(
        "survive_behind",
        "all replicas are lost, and entries are gone; one is declared good, and another one that has more rows recovers",
        INSERTS,
        {},
        prelude=(
            *("r1 ins 1", "r1", "r2", "stop r2", "r1 ins 2", "r1", "r1 clean1"),
            *("r1 ins 3", "r1", "lose r1", "stop r1"),
        ),
        operators=("op",),
        duties=(Duty("r1", "clean", (Keep(0, 0),)), Duty("op", "survive", ("r2", True))),
        probes=("declared good", "waited for a source", "recovered", "part let go", "parts kept aside"),
    ),
)
