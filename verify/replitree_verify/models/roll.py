"""The log goes on below a fresh parent: nothing comes after its last entry, and every replica that reads it goes on."""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree.protocol.core.layout import PARENT_ENTRIES
from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.models.insert import two
from replitree_verify.models.lost import NOTED, PART, breaking
from replitree_verify.models.restart import RIVALS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model, Proposal

BOTH = ("r1", "r2")
FIRST = Insert("r1", ((1, "a"),))
# A leader looks at its pointer, and rolls the log over after many entries; here one is enough.
ROLL = Duty("r1", "roll", (1,))
ROLLS = (ROLL, Duty("r2", "roll", (1,)))
BEYOND = f"all_{PARENT_ENTRIES}_{PARENT_ENTRIES}_0"
"""The part of the first insert below the second parent."""

MODELS = (
    two(
        "roll_insert",
        "the log rolls over while another replica inserts; an answer is lost",
        (FIRST, Insert("r2", ((2, "b"),))),
        {Fault.UNKNOWN: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r2 work"),
        duties=(ROLL,),
        probes=("rolled over", "log has gone on", "late request applied", "doubt settled: in the log"),
    ),
    two(
        "roll_two",
        "two leaders roll the log over at once; an answer is lost, a view lags",
        (FIRST,),
        {Fault.UNKNOWN: 1, Fault.STALE: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r2 work"),
        duties=ROLLS,
        probes=("rolled over", "rolled over already", "late request applied"),
    ),
    two(
        "roll_token",
        "a token comes again at a replica that does not know yet that the log has rolled over; a view lags",
        (FIRST, Insert("r2", ((2, "a"),))),
        {Fault.STALE: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r2 work", "r1 pull"),
        duties=ROLLS,
        probes=("rolled over", "rolled over already", "duplicate"),
    ),
    two(
        "roll_crash",
        "a leader dies while it rolls the log over; another one rolls it over, and inserts below the next parent",
        (FIRST, Insert("r2", ((2, "b"),))),
        {Fault.CRASH: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r1 pull"),
        duties=ROLLS,
        probes=("rolled over", "log has gone on", "crash", "own part published by execute"),
    ),
    two(
        "roll_again",
        "the log has rolled over, and does so again, while a replica that is behind catches up",
        (FIRST, Insert("r1", ((2, "b"),)), Insert("r2", ((3, "c"),))),
        {Fault.STALE: 1},
        started=("r1",),
        prelude=("r1 ins 1", "r1", "r1 roll1", "r1", "r1 ins 2", "r1"),
        resting=("r1 work",),
        duties=(ROLL, ROLL),
        probes=("rolled over", "log has gone on", "fetched"),
    ),
    two(
        "roll_merge",
        "a merge over the border of two parents, and one that is proposed while the log rolls over again",
        (FIRST, Insert("r1", ((2, "b"),))),
        {},
        merges=(Proposal("r1", ("all_0_0_0", BEYOND)),),
        prelude=("r1 ins 1", *BOTH, "r1 roll1", "r1 pull", "r2 pull", "r1 ins 2", *BOTH),
        duties=(ROLL, ROLL),
        probes=("rolled over", "log has gone on", "merged"),
    ),
    two(
        "roll_command",
        "a drop is asked for while the log rolls over; an answer is lost",
        (FIRST,),
        {Fault.UNKNOWN: 1},
        commands=(Ask("r2", 9, DropEntry("r2", EntryId("d"), "all")),),
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r2 work"),
        duties=(ROLL,),
        probes=("rolled over", "log has gone on", "late request applied"),
    ),
    Model(
        "roll_replaced",
        "a leader is replaced by another process of its replica while it rolls the log over; an answer is lost",
        RIVALS,
        (FIRST,),
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        workers=("r1",),
        started=("r1",),
        prelude=("r1 ins 1", "r1"),
        duties=(ROLL,),
        probes=("rolled over", "rolling over fenced", "replaced process stopped"),
    ),
    two(
        "roll_clean",
        "the log is cleaned beyond the border of two parents while a replica that is behind comes back; a crash",
        (FIRST, Insert("r1", ((2, "b"),)), Insert("r1", ((3, "c"),))),
        {Fault.CRASH: 1},
        prelude=("r1 ins 1", *BOTH, "stop r2", "r1 roll1", "r1", "r1 ins 2", "r1 ins 3", "r1"),
        resting=("r1",),
        duties=(ROLL, Duty("r1", "clean", (Keep(0, 1),))),
        probes=("log cleaned", "marked lost", "recovered", "crash"),
    ),
    two(
        "roll_session",
        "the session of a leader ends while it rolls the log over, or that of another replica while it inserts",
        (FIRST, Insert("r2", ((2, "b"),))),
        {Fault.EXPIRY: 1},
        prelude=("r1 ins 1", *BOTH),
        resting=("r1 work", "r2 work", "r1 pull"),
        duties=(ROLL,),
        probes=("rolled over", "log has gone on", "rolling over fenced", "insert fenced", "activated again"),
    ),
    # No other model notices a verdict on an insert that does not check which parent the log ends below.
    two(
        "roll_quorum",
        "the log rolls over while an insert is open, which is settled or given up",
        (Insert("r1", ((1, "a"),), quorum=2),),
        {},
        prelude=("open r1 ins 1", "r1", "r2 pull"),
        resting=("r1 work", "r1 pull"),
        duties=(ROLL,),
        probes=("rolled over", "log has gone on", "quorum reached", "quorum given up"),
    ),
    # No other model notices a declaration that does not check which parent the log ends below.
    two(
        "roll_lost",
        "a part that is broken on both replicas is declared lost while the log rolls over",
        (FIRST,),
        {},
        prelude=("r1 ins 1", *BOTH, *NOTED),
        duties=(*breaking("r1"), *breaking("r2"), Duty("r1", "lose", (PART,)), ROLL),
        resting=("r2",),
        probes=("rolled over", "log has gone on", "declaration refused", "declared lost", "made empty"),
    ),
)
