"""The leader election: who stands is found again, who was deposed notices, and no replica stands twice."""

from __future__ import annotations

from replitree_verify.models.insert import TWO
from replitree_verify.models.merge import BOTH, EVERYWHERE, THREE_PARTS, TWO_PARTS
from replitree_verify.models.restart import RIVALS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Model, Proposal

MODELS = (
    Model(
        "election",
        "two replicas stand for leader; an answer is lost, a session ends",
        TWO,
        (),
        {Fault.UNKNOWN: 1, Fault.EXPIRY: 1},
        started=BOTH,
        candidates=BOTH,
        probes=("leads", "found itself leading", "deposed", "unknown: no answer", "late request applied"),
    ),
    Model(
        "election_crash",
        "two replicas stand for leader; a process dies, its session ends later or not at all",
        TWO,
        (),
        {Fault.CRASH: 1, Fault.EXPIRY: 1},
        started=BOTH,
        candidates=BOTH,
        probes=("leads", "found itself leading", "deposed", "crash"),
    ),
    Model(
        "election_merges",
        "the leader proposes a merge while its session ends, and so does the next one, which intersects",
        TWO,
        THREE_PARTS,
        {Fault.EXPIRY: 1},
        workers=BOTH,
        started=BOTH,
        candidates=BOTH,
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")), Proposal("r2", ("all_1_1_0", "all_2_2_0"))),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", *EVERYWHERE, "r1 elect", "r2 elect"),
        resting=("r1 work", "r1 make", "r2 work", "r2 make"),
        probes=("deposed", "found itself leading", "proposal fenced"),
    ),
    Model(
        "leader_replaced",
        "a process that leads is replaced by another one of its replica while it proposes a merge",
        RIVALS,
        TWO_PARTS,
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        workers=("r1",),
        started=("r1",),
        candidates=("r1", "x1"),
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 elect"),
        resting=("r1 pull", "r1 work", "r1 make"),
        probes=("proposal fenced", "replaced process stopped", "late request applied"),
    ),
)
