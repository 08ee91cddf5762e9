"""Recovery: a lost replica takes over the state of a good one, whatever happens to either meanwhile.

Mostly r2 has executed the first insert and was away since; r1 has gone on and cleaned the log, so r2 is lost.
"""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry, MutateEntry
from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.clean import INSERTS, KEEP, THREE
from replitree_verify.models.insert import two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model, Proposal

BOTH = ("r1", "r2")
CLEAN = Duty("r1", "clean", (KEEP,))
AGAIN = (CLEAN, CLEAN)
LEFT = ("r1 ins 1", "r2 life", "r2", "stop r2", "r1 ins 2", "r1 ins 3")
"""r2 has the first insert and is away; the others have to come."""

LOST = (*LEFT, "r1", "r1 clean1")
"""r2 is lost, with one part of its own; r1 has everything."""

MERGE = (Proposal("r1", ("all_0_0_0", "all_1_1_0")),)
DROP = Ask("r1", 9, DropEntry("r1", EntryId("d"), "all"))
MUTATION = Ask("r1", 9, MutateEntry("r1", EntryId("m"), "*", "x"))
HOLE = Ask("r1", 9, DropEntry("r1", EntryId("d"), "all", 1, 1))
DONE = ("recovery begun", "recovered")
BEHIND = (
    "r1 ins 1", "r1 pull", "r2", "stop r2", "r1 ins 2", "r1 ins 3", "r1 pull", "r3 life", "r3 pull", "stop r3", "lose r3",
)  # fmt: skip
"""r1 has pulled everything and executed nothing; r2 has the first insert and is away; r3 has pulled everything, and is lost."""

MODELS = (
    two(
        "recover_crash",
        "a lost replica dies anywhere in its recovery, twice; the source has still to merge a part that it has",
        INSERTS,
        {Fault.CRASH: 2},
        started=("r1",),
        merges=MERGE,
        prelude=(*LEFT, "r1", "r1 lead1", "r1 pull", "r1 clean1"),
        resting=("r1",),
        duties=(CLEAN,),
        probes=(*DONE, "queue taken over", "merged", "crash"),
    ),
    two(
        "recover_doubt",
        "an answer is lost in a recovery from a source that pulls and executes a drop meanwhile",
        INSERTS,
        {Fault.UNKNOWN: 1},
        started=("r1",),
        commands=(DROP,),
        prelude=(*LOST, "r1 ask 9"),
        duties=(CLEAN,),
        probes=(*DONE, "queue taken over", "late request applied"),
    ),
    two(
        "recover_session",
        "the session of a recovering replica ends, and it dies; the log is cleaned again meanwhile",
        (*INSERTS, Insert("r1", ((4, "d"),))),
        {Fault.EXPIRY: 1, Fault.CRASH: 1},
        started=("r1",),
        prelude=(*LOST, "r1 ins 4", "r1"),
        resting=("r1",),
        duties=AGAIN,
        probes=(*DONE, "activated again", "log cleaned"),
    ),
    two(
        "recover_away",
        "the session of a recovering replica ends, and the log is cleaned beyond the pointer that it has taken over",
        (*INSERTS, Insert("r1", ((4, "d"),))),
        {Fault.EXPIRY: 1},
        started=("r1",),
        prelude=(*LOST, "r1 ins 4"),
        resting=("r1 work", "r2 work"),
        duties=(CLEAN, Duty("r1", "clean", (Keep(0, 0),))),
        probes=("recovery begun", "log cleaned", "activated again", "recovery refused by is_active"),
    ),
    two(
        "recover_get",
        "the source executes its queue while a replica recovers from it; fetches fail",
        INSERTS,
        {Fault.FETCH: 1},
        started=("r1",),
        prelude=(*LEFT, "r1 pull", "r1 clean1"),
        duties=(CLEAN,),
        probes=(*DONE, "queue taken over", "fetch failed"),
    ),
    two(
        "recover_merge",
        "the source pulls and executes a merge while a replica recovers from it",
        INSERTS,
        {Fault.FETCH: 1},
        started=("r1",),
        merges=MERGE,
        prelude=(*LOST, "r1 lead1"),
        duties=(CLEAN,),
        probes=(*DONE, "merged", "fetch failed"),
    ),
    two(
        "recover_drop",
        "the source pulls and executes a drop while a replica recovers from it; it dies",
        INSERTS,
        {Fault.CRASH: 1},
        started=("r1",),
        prelude=(*LOST, "r1 ask 9"),
        commands=(DROP,),
        duties=(CLEAN,),
        probes=(*DONE, "parts dropped", "crash"),
    ),
    two(
        "recover_mutate",
        "the source pulls and executes a mutation while a replica recovers from it",
        INSERTS[:2],
        {},
        started=("r1",),
        prelude=("r1 ins 1", "r2 life", "r2", "stop r2", "lose r2", "r1 ins 2", "r1", "r1 ask 9"),
        commands=(MUTATION,),
        duties=(CLEAN,),
        probes=(*DONE, "mutated"),
    ),
    two(
        "recover_gone",
        "a part that a lost replica has was dropped meanwhile; answers are lost, it dies",
        INSERTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        started=("r1",),
        prelude=(*LEFT, "r1", "r1 ask 9", "r1", "r1 clean1"),
        resting=("r1",),
        commands=(DROP,),
        duties=(CLEAN,),
        probes=(*DONE, "part let go", "parts kept aside", "late request applied"),
    ),
    Model(
        "recover_source_lost",
        "a recovery prefers an inactive source, which the cleaner marks lost meanwhile, twice",
        THREE,
        INSERTS,
        {},
        workers=("r1", "r2", "r3"),
        started=BOTH,
        prelude=BEHIND,
        resting=("r1", "r2 life", "r3 work"),
        duties=AGAIN,
        probes=(*DONE, "recovery refused by is_lost", "marked lost", "cleaning refused by is_lost"),
    ),
    Model(
        "recover_source_returns",
        "the source of a recovery is inactive, is marked lost, comes back and recovers itself",
        THREE,
        INSERTS[:2],
        {},
        workers=("r1", "r2", "r3"),
        started=BOTH,
        prelude=("r1 ins 1", "r2", "stop r2", "r1 ins 2", "r1 pull", "lose r3"),
        resting=("r1", "r2 work", "r2 pull", "r3 work", "r3 pull"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=(*DONE, "recovery refused by is_lost", "marked lost"),
    ),
    two(
        "recover_pointer",
        "the source pulls and cleans the log between the two steps in which its pointer is taken over; views lag",
        INSERTS,
        {Fault.STALE: 1},
        started=("r1",),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 ins 3", "r2 life", "r2 pull", "stop r2", "lose r2"),
        resting=("r1 work", "r2 work"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=(*DONE, "recovery refused by log_pointer", "log cleaned"),
    ),
    two(
        "recover_queue",
        "a lost replica has entries in its queue, and has executed others, that were dropped meanwhile; it dies",
        INSERTS,
        {Fault.CRASH: 1},
        prelude=("r1 ins 1", "r2", "r1 ins 2", "r2 pull", "stop r2", "r1 ins 3", "r1", "r1 ask 9", "r1", "r1 clean1"),
        resting=("r1",),
        commands=(DROP,),
        duties=(CLEAN,),
        probes=(*DONE, "old queue emptied", "part let go", "crash"),
    ),
    two(
        "recover_own_insert",
        "a replica dies while it inserts and is marked lost: its rows are committed, and no other replica has them",
        (Insert("r2", ((1, "a"),)),),
        {Fault.CRASH: 1, Fault.EXPIRY: 1},
        resting=("r1 work", "r2 pull", "r2 work"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=(*DONE, "queue taken over", "committed staging kept", "crash"),
    ),
    two(
        "recover_hole",
        "a part that a lost replica has was dropped, and a merge reaches over the hole",
        INSERTS,
        {Fault.CRASH: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_2_2_0")),),
        commands=(HOLE,),
        prelude=(
            "r1 ins 1",
            "r1 ins 2",
            "r2",
            "stop r2",
            "r1 ins 3",
            "r1",
            "r1 ask 9",
            "r1",
            "r1 lead1",
            "r1",
            "r1 clean1",
        ),
        resting=("r1",),
        duties=(CLEAN,),
        probes=(*DONE, "part let go", "crash"),
    ),
    two(
        "forgiven",
        "an operator has declared a replica good whose entries are gone; an answer is lost, it dies",
        INSERTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        started=("r1",),
        prelude=(*LOST, "forgive r2"),
        resting=("r1",),
        duties=(CLEAN,),
        forgiven=("r2",),
        probes=(*DONE, "found itself lost", "crash", "late request applied"),
    ),
    Model(
        "recover_two",
        "two lost replicas recover at once, while the log is cleaned",
        THREE,
        INSERTS[:2],
        {},
        workers=("r1", "r2", "r3"),
        started=("r1",),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 clean1"),
        resting=("r1",),
        duties=AGAIN,
        probes=DONE,
    ),
    two(
        "lost_while_running",
        "the session of a replica ends while it executes; it is marked lost, and recovers in the same process",
        INSERTS,
        {Fault.EXPIRY: 1, Fault.FETCH: 1},
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r2 pull", "r1 ins 3", "r1"),
        resting=("r1", "r2 pull"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=(*DONE, "marked lost", "activated again", "execution fenced"),
    ),
    two(
        "lost_while_making",
        "the session of a replica ends while it merges with other bytes than others; it is marked lost, and recovers",
        INSERTS,
        {Fault.EXPIRY: 1, Fault.DIFFERS: 1},
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 2", *BOTH, "r1 lead1", "r1 pull", "r2 pull", "r1 ins 3", "r1 pull", "r1 work"),
        resting=("r1 pull", "r2 pull", "r2 work", "r1 work"),
        duties=(Duty("r1", "clean", (Keep(0, 0),)),),
        probes=(*DONE, "marked lost", "merged"),
    ),
    Model(
        "recover_source_dropped",
        "the source of a recovery is dropped, and joins again as a lost replica",
        (*THREE, ("op", "op")),
        INSERTS[:2],
        {},
        workers=("r1", "r2", "r3"),
        started=BOTH,
        prelude=("r1 ins 1", "r2", "stop r2", "r1 pull", "r1 clean1", "r1 ins 2", "r1 pull", "lose r3"),
        resting=("r1", "r2 work", "r2 pull", "r3 work", "r3 pull"),
        operators=("op",),
        duties=(Duty("r1", "clean", (Keep(0, 9),)), Duty("op", "drop", ("r2",))),
        probes=(*DONE, "recovery refused by replicas", "replica added", "drop of a replica finished"),
    ),
)
