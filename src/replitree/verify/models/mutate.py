"""Mutations: every row that was there before goes through, none that comes later; kills decide part by part."""

from __future__ import annotations

from replitree.protocol.effects import EntryId
from replitree.protocol.entries import MutateEntry
from replitree.verify.model import Ask, Fault, Insert, Kill, Model, Proposal
from replitree.verify.models.insert import ONE, TWO
from replitree.verify.models.merge import BOTH, EVERYWHERE, TWO_PARTS

MUTATION = Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x"))
MERGE = (Proposal("r1", ("all_0_0_0", "all_1_1_0")),)
ONE_PART = (Insert("r1", ((1, "a"),)),)

MODELS = (
    Model(
        "mutate_insert",
        "a mutation races with an insert",
        TWO,
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        prelude=("r1 ins 1", *EVERYWHERE, "r1 ins 2", "r2 ask 9"),
        probes=("mutated", "fetched"),
    ),
    Model(
        "mutate_twice",
        "two replicas are given the same mutation (a client that tried again elsewhere); answers are lost, one dies",
        TWO,
        (),
        {Fault.UNKNOWN: 2, Fault.CRASH: 1},
        started=BOTH,
        commands=(Ask("r1", 8, MutateEntry("r1", EntryId("m"), "*", "x")), MUTATION),
        probes=(
            "command known already",
            "unknown: applied, answer lost",
            "unknown: no answer",
            "late request applied",
            "crash",
        ),
    ),
    Model(
        "mutate_merge",
        "a mutation and a merge of the same parts, in both orders",
        TWO,
        TWO_PARTS,
        {},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE),
        probes=("mutated", "merged"),
    ),
    Model(
        "mutate_merging",
        "a mutation comes while the merge of its parts is held up by a full disk",
        ONE,
        TWO_PARTS,
        {Fault.DISK: 2, Fault.CRASH: 1},
        workers=("r1",),
        started=("r1",),
        commands=(Ask("r1", 9, MutateEntry("r1", EntryId("m"), "*", "x")),),
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 lead1", "r1 ask 9", "r1 pull"),
        probes=("merged", "mutated", "disk failed", "made later", "crash"),
    ),
    Model(
        "mutate_kill",
        "a mutation is killed at one replica while both mutate; answers are lost",
        TWO,
        ONE_PART,
        {Fault.UNKNOWN: 1},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        kills=(Kill("r1", "m"),),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9"),
        probes=("mutated", "mutation killed", "let be", "another published first", "result fetched"),
    ),
    Model(
        "mutate_crash",
        "a replica dies anywhere in a mutation of two parts; results differ",
        TWO,
        TWO_PARTS,
        {Fault.CRASH: 1, Fault.DIFFERS: 1},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r2 ask 9", "r1 pull", "r2 pull"),
        probes=("mutated", "crash", "result fetched"),
    ),
    Model(
        "mutate_later",
        "a replica restarts that has executed an insert before the mutation that comes before it in the log",
        TWO,
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9", "r1 ins 2", "r1 pull", "r2 pull"),
        probes=("mutated", "fetched", "crash"),
    ),
    Model(
        "mutate_then_merge",
        "a part that went through a mutation is merged with one that came later; a crash anywhere",
        TWO,
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {Fault.CRASH: 1},
        workers=BOTH,
        started=BOTH,
        commands=(MUTATION,),
        merges=(Proposal("r1", ("all_0_0_0_1", "all_2_2_0")),),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9", *EVERYWHERE, "r1 ins 2", *EVERYWHERE, "r1 lead1"),
        probes=("merged", "crash"),
    ),
)
