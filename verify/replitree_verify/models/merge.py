"""Merges: of one part the first counts, and every replica has the same result.  The leader proposes them.

Elections: a replica that stands is found again, a leader that was deposed notices, and no replica stands twice.
"""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import TWO, two
from replitree_verify.models.restart import RIVALS
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Insert, Model, Proposal

BOTH = ("r1", "r2")
THREE_PARTS = tuple(Insert("r1", ((n, token),)) for n, token in ((1, "a"), (2, "b"), (3, "c")))
TWO_PARTS = THREE_PARTS[:2]
EVERYWHERE = ("r1", "r2")

MODELS = (
    two(
        "merge_merge",
        "two leaders propose merges that intersect",
        THREE_PARTS,
        {Fault.STALE: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")), Proposal("r2", ("all_1_1_0", "all_2_2_0"))),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", *EVERYWHERE),
        probes=("merged",),
    ),
    # Here parts that overlap break I7 and not I1: what differs is dropped later, and replicas may differ while one has to join.
    Model(
        "merge_late",
        "a merge comes after another one has merged a source of it, and a drop comes last; a replica has still to join",
        (*TWO, ("r3", "r3")),
        THREE_PARTS,
        {},
        workers=BOTH,
        started=BOTH,
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")), Proposal("r2", ("all_1_1_0", "all_2_2_0"))),
        commands=(Ask("r2", 9, DropEntry("r2", EntryId("d"), "all")),),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", *EVERYWHERE, "r1 lead1", "r1", "r2 lead2", "r2 ask 9"),
        resting=("r2", "r3 life"),
        absent=("r3",),
        probes=("parts dropped",),
    ),
    two(
        "merge_one",
        "a merge of a single part, for the sake of what the policy does inside it",
        TWO_PARTS[:1],
        {Fault.CRASH: 1},
        merges=(Proposal("r1", ("all_0_0_0",)),),
        prelude=("r1 ins 1", *EVERYWHERE),
        probes=("merged", "crash"),
    ),
    two(
        "merge_crash",
        "a replica dies anywhere in a merge, with an answer lost",
        TWO_PARTS,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r1 lead1"),
        probes=("merged", "crash", "state loaded again", "another published first"),
    ),
    two(
        "merge_differs",
        "a replica's merge gives other bytes than the first publisher's",
        TWO_PARTS,
        {Fault.DIFFERS: 1, Fault.CRASH: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r1 lead1"),
        probes=("merged", "result fetched", "crash"),
    ),
    two(
        "merge_made_again",
        "a replica that makes other bytes at every try merges again after an unknown answer; another one merges too",
        TWO_PARTS,
        {Fault.DIFFERS: 1, Fault.UNKNOWN: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r1 lead1", "r1 pull", "r2 pull"),
        probes=("merged", "result found", "result fetched", "other content thrown away", "late request applied"),
    ),
    two(
        "merge_insert",
        "a replica that is behind finds parts merged away, and takes what covers them",
        TWO_PARTS,
        {Fault.FETCH: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 lead1", "r1 pull", "r2 pull"),
        probes=("merged", "later form taken", "fetched"),
    ),
    two(
        "merge_behind",
        "a replica has pulled the inserts and not the merge, after which no replica has their parts any more",
        TWO_PARTS,
        {Fault.UNKNOWN: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1", "r1 ins 2", "r2 pull", "r1", "r1 lead1", "r1"),
        probes=("later form taken", "state loaded again"),
    ),
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
    two(
        "election_merges",
        "the leader proposes a merge while its session ends, and so does the next one, which intersects",
        THREE_PARTS,
        {Fault.EXPIRY: 1},
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
