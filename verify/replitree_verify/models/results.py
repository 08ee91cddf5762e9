"""Results that have left the table: they are forgotten when no replica can make them any more, and not before.

A merge (of one part, for the sake of what the policy does inside it) is followed by a merge of its result, after which r1
forgets what the first one came to.  A replica that makes it then with other bytes has nothing to compare with.
"""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import MutateEntry
from replitree_verify.models.clean import THREE
from replitree_verify.models.insert import TWO
from replitree_verify.models.merge import BOTH
from replitree_verify.models.mutate import ONE_PART
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Kill, Model, Proposal

MERGES = (Proposal("r1", ("all_0_0_0",)), Proposal("r1", ("all_0_0_1",)))
MERGED = ("r1 lead1", "r1", "r1 lead2", "r1")
FORGET = Duty("r1", "results")
MUTATION = Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x"))

MODELS = (
    Model(
        "results_queued",
        "a result is forgotten while another replica has its merge in the queue, and makes other bytes",
        TWO,
        ONE_PART,
        {Fault.DIFFERS: 1},
        workers=BOTH,
        started=BOTH,
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "r1 lead1", "r1", "r2 pull", "r1 lead2", "r1"),
        resting=("r1", "r1 life"),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged", "result fetched"),
    ),
    Model(
        "results_away",
        "a result is forgotten while a replica that has not pulled its merge is away and comes back",
        TWO,
        ONE_PART,
        {Fault.DIFFERS: 1},
        workers=BOTH,
        started=BOTH,
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", *MERGED),
        resting=("r1",),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged"),
    ),
    Model(
        "results_lost",
        "a result is forgotten while a lost replica is away that has not pulled its merge; it comes back and recovers",
        TWO,
        ONE_PART,
        {Fault.DIFFERS: 1},
        workers=BOTH,
        started=BOTH,
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", "lose r2", *MERGED),
        resting=("r1",),
        duties=(FORGET,),
        probes=("result forgotten", "recovered"),
    ),
    Model(
        "results_killed",
        "a mutation is killed, so its result is claimed before another replica has pulled it, which forgets results",
        TWO,
        ONE_PART,
        {},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        kills=(Kill("r2", "m"),),
        prelude=("r1 ins 1", *BOTH, "r2 ask 9", "r2 pull"),
        duties=(FORGET,),
        probes=("mutation killed", "mutated", "let be"),
    ),
    Model(
        "results_join",
        "a result is forgotten while a replica joins, whom another one that has its merge in the queue sends the sources",
        THREE,
        ONE_PART,
        {Fault.DIFFERS: 1},
        workers=("r1", "r2", "r3"),
        started=BOTH,
        absent=("r3",),
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, *MERGED, "r2 pull"),
        resting=("r1", "r2 pull"),
        duties=(FORGET,),
        probes=("result forgotten", "merged", "replica added", "forgetting results refused by replicas"),
    ),
    Model(
        "results_crash",
        "two results are forgotten while another replica has their merges in the queue and makes other bytes; it dies",
        TWO,
        ONE_PART,
        {Fault.DIFFERS: 1, Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "r1 lead1", "r1", "r2 pull", "r1 lead2", "r1"),
        resting=("r1", "r1 life"),
        duties=(FORGET, FORGET),
        probes=("result forgotten", "merged", "result fetched", "crash"),
    ),
    Model(
        "results_doubt",
        "a result is forgotten, an answer is lost, a request comes late; a replica was away and makes other bytes",
        TWO,
        ONE_PART,
        {Fault.DIFFERS: 1, Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        merges=MERGES,
        prelude=("r1 ins 1", *BOTH, "stop r2", *MERGED),
        resting=("r1",),
        duties=(FORGET,),
        probes=("result forgotten", "merged", "late request applied"),
    ),
)
