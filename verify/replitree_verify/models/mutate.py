"""Mutations and rewrites.

Mutations: every row that was there before goes through, none that comes later; kills decide part by part.

Rewrites: a client has made parts of others that it has read, and they count only while these are what they were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import EVERY_PARTITION, DropEntry, MutateEntry, Unchanged
from replitree_verify.models.insert import TWO, one, two
from replitree_verify.models.merge import BOTH, EVERYWHERE, THREE_PARTS, TWO_PARTS
from replitree_verify.models.stored import REGISTERED, in_store
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Insert, Kill, Model, Proposal, Read, Rewrite

MUTATION = Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x"))
SCOPED = Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x@2"))
"""It has a condition, which covers the rows of request 2: so it gets a scope."""

MERGE = (Proposal("r1", ("all_0_0_0", "all_1_1_0")),)
ONE_PART = (Insert("r1", ((1, "a"),)),)
DROPPED = two(
    "mutate_dropped_doubt",
    "another replica has mutated two parts; the answer to the commit that registers them is lost, and a drop is pulled",
    TWO_PARTS,
    {Fault.UNKNOWN: 1},
    commands=(MUTATION, Ask("r1", 8, DropEntry("r1", EntryId("d"), "all"))),
    prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r2 ask 9", "r1", "r2 pull", "hold r2 make", "r1 ask 8"),
    resting=("r1", "r1 life"),
    probes=("parts dropped", "late request applied"),
)
KILLED = two(
    "mutate_kill_doubt",
    "a mutation is killed where it is about to be executed; an answer is lost, and the process dies",
    TWO_PARTS,
    {Fault.UNKNOWN: 1, Fault.CRASH: 1},
    commands=(MUTATION,),
    kills=(Kill("r1", "m"),),
    prelude=(
        *("r1 ins 1", *EVERYWHERE, "r1 ins 2", "r1", "r2 ask 9", "r1 pull", "r2 pull", "hold r1 kill"),
        "hold r1 make",
    ),
    resting=("r1 work", "r1 pull", "r2", "r2 life"),
    struck=((Fault.CRASH, "r1"),),
    probes=("mutation killed", "late request applied", "crash"),
)

MODELS = (
    two(
        "mutate_insert",
        "a mutation races with an insert",
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {},
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
    two(
        "mutate_merge",
        "a mutation and a merge of the same parts, in both orders",
        TWO_PARTS,
        {},
        commands=(MUTATION,),
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE),
        probes=("mutated", "merged"),
    ),
    one(
        "mutate_merging",
        "a mutation comes while the merge of its parts is held up by a full disk",
        TWO_PARTS,
        {Fault.DISK: 2, Fault.CRASH: 1},
        commands=(Ask("r1", 9, MutateEntry("r1", EntryId("m"), "*", "x")),),
        merges=MERGE,
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 lead1", "r1 ask 9", "r1 pull"),
        probes=("merged", "mutated", "disk failed", "made later", "crash"),
    ),
    two(
        "mutate_kill",
        "a mutation is killed at one replica while both mutate; answers are lost",
        ONE_PART,
        {Fault.UNKNOWN: 1},
        commands=(MUTATION,),
        kills=(Kill("r1", "m"),),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9"),
        probes=("mutated", "mutation killed", "let be", "another published first", "result fetched"),
    ),
    two(
        "mutate_kill_together",
        "a mutation of two parts is killed at one replica while another one makes and registers them together",
        TWO_PARTS,
        {Fault.UNKNOWN: 1},
        commands=(MUTATION,),
        kills=(Kill("r1", "m"),),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r2 ask 9", "r1 pull", "r2 pull"),
        resting=("r1",),
        probes=("mutated", "mutation killed"),
    ),
    KILLED,
    replace(
        KILLED,
        name="mutate_kill_one_doubt",
        description="the same where another replica has mutated one of two parts",
        prelude=(*KILLED.prelude[:-1], "r2 make"),
        probes=(*KILLED.probes, "let be"),
    ),
    DROPPED,
    replace(
        DROPPED,
        name="mutate_fetched_doubt",
        description="the same where the replica fetches the mutated part",
        inserts=ONE_PART,
        fetchers=("r2",),
        prelude=(DROPPED.prelude[0], *DROPPED.prelude[2:]),
        probes=(*DROPPED.probes, "result fetched"),
    ),
    two(
        "mutate_crash",
        "a replica dies anywhere in a mutation of two parts; results differ",
        TWO_PARTS,
        {Fault.CRASH: 1, Fault.DIFFERS: 1},
        commands=(MUTATION,),
        prelude=("r1 ins 1", "r1 ins 2", *EVERYWHERE, "r2 ask 9", "r1 pull", "r2 pull"),
        probes=("mutated", "crash", "result fetched"),
    ),
    two(
        "mutate_later",
        "a replica restarts that has executed an insert before the mutation that comes before it in the log",
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {Fault.CRASH: 1},
        commands=(MUTATION,),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9", "r1 ins 2", "r1 pull", "r2 pull"),
        probes=("mutated", "fetched", "crash"),
    ),
    two(
        "mutate_then_merge",
        "a part that went through a mutation is merged with one that came later; a crash anywhere",
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {Fault.CRASH: 1},
        commands=(MUTATION,),
        merges=(Proposal("r1", ("all_0_0_0_1", "all_2_2_0")),),
        prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9", *EVERYWHERE, "r1 ins 2", *EVERYWHERE, "r1 lead1"),
        probes=("merged", "crash"),
    ),
    two(
        "scope_behind",
        "a replica that has not seen every insert finds the scope of a mutation",
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {},
        workers=("r2",),
        commands=(SCOPED,),
        prelude=("r1 ins 1",),
        probes=("mutated",),
    ),
    two(
        "scope_merge",
        "a replica finds the scope of a mutation while another one inserts, and while the leader merges the parts",
        (*ONE_PART, Insert("r1", ((2, "b"),))),
        {},
        workers=("r2",),
        commands=(SCOPED,),
        merges=(Proposal("r2", ("all_0_0_0", "all_1_1_0")),),
        prelude=("r1 ins 1",),
        probes=("mutated", "merged"),
    ),
    two(
        "scope_changed",
        "the rows that a mutation covers come from a mutation that its proposer has not seen",
        ONE_PART,
        {},
        workers=("r2",),
        commands=(
            Ask("r1", 8, MutateEntry("r1", EntryId("l"), "*", "y")),
            Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x@~y")),
        ),
        prelude=("r1 ins 1", "r2"),
        probes=("mutated",),
    ),
)


# --- rewrites ---------------------------------------------------------------------------------------------------------------

CHANGED = (("all_0_0_0", "all:1~w"),)
"""The rows of the first part are changed."""

REWRITE = Rewrite("r2", 9, EntryId("w"), CHANGED)
MOVING = Rewrite("r1", 9, EntryId("w"), (("all_0_0_0", "all:1~w"), ("all_1_1_0", "all:")), (("all", "all:2~w+9"),))
"""The rows of one part are changed, those of another one move to a new part, which has a new row, too."""
MOVED = Rewrite("r1", 9, EntryId("w"), (("all_0_0_0", "all:"),), (("all", "all:1~w"),))
AWAY = Rewrite("r1", 9, EntryId("w"), (("p_0_0_0", "p:"),), (("q", "q:1~w"),))
"""A row moves to a new part, in `AWAY` of another partition."""

DROP_P = Ask("r1", 8, DropEntry("r1", EntryId("d"), "p"))

READ = ("r1 ins 1", *EVERYWHERE)
READ_TWO = ("r1 ins 1", "r1 ins 2", *EVERYWHERE)
CRASH, DOUBT = ({fault: 1} for fault in (Fault.CRASH, Fault.UNKNOWN))


def _stored(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model of a rewrite of a part in an object store; `more` as of `Model`."""
    given: dict[str, Any] = {
        "replicas": ("r1",),
        "rewrites": (Rewrite("r1", 9, EntryId("w"), CHANGED, (("all", "all:9"),)),),
        "prelude": REGISTERED,
        "struck": tuple((fault, "r1") for fault in faults),
    }
    return in_store(name, description, faults, **(given | more))


def _read(
    name: str, description: str, inserts: tuple[Insert, ...], rewrites: tuple[Rewrite, ...], **more: Any
) -> Model:
    """Return a model of an eventual read at r2, which has yet to pull what r1 has executed: rewrites, commands, merges.

    `more` as of `Model`; the prelude ends with r1's rewrites, and `after` that what else it has done, by default its commands.
    """
    commands, merges = more.get("commands", ()), more.get("merges", ())
    asked = (*more.pop("after", ()), *(f"r1 ask {ask.request}" for ask in commands), *(("r1 lead1",) if merges else ()))
    begun = more.pop("prelude", (*(f"r1 ins {each.requests[0][0]}" for each in inserts if not each.drops), *EVERYWHERE))
    steps = (*(f"r1 rew {each.request}" for each in rewrites), *asked)
    # The requests' threads go on until their clients have their answers.
    done = tuple(name for step in steps for name in (step, "r1", step))
    reads = (Read("r2", 11, "eventual"),)
    probes = ("eventual read", *more.pop("probes", ()))
    return two(
        name, description, inserts, {}, rewrites=rewrites, reads=reads, prelude=(*begun, *done), probes=probes, **more
    )


REWRITES = (
    two(
        "rewrite_merge",
        "a rewrite and a merge of the same part, in both orders",
        TWO_PARTS,
        {},
        rewrites=(REWRITE,),
        merges=MERGE,
        prelude=READ_TWO,
        probes=("rewritten", "rewrite refused", "merged"),
    ),
    two(
        "rewrite_mutate",
        "a rewrite and a mutation of the same part, in both orders",
        ONE_PART,
        {},
        workers=("r2",),
        rewrites=(Rewrite("r2", 9, EntryId("w"), CHANGED, (("all", "all:9"),)),),
        commands=(Ask("r1", 8, MutateEntry("r1", EntryId("m"), "*", "x")),),
        prelude=("r1 ins 1", "r2"),
        probes=("rewritten", "rewrite refused", "mutated"),
    ),
    two(
        "rewrite_insert",
        "a rewrite that relies on the whole table races with an insert",
        TWO_PARTS,
        {},
        rewrites=(Rewrite("r2", 9, EntryId("w"), CHANGED, unchanged=Unchanged((EVERY_PARTITION,), 1)),),
        prelude=READ,
        probes=("rewritten", "rewrite refused"),
    ),
    two(
        "rewrite_unseen",
        "a rewrite relies on a table in which an insert was open when it was read",
        (*ONE_PART, Insert("r1", ((2, "b"),), quorum=2)),
        {},
        rewrites=(Rewrite("r1", 9, EntryId("w"), CHANGED, unchanged=Unchanged((EVERY_PARTITION,), 2, (1,))),),
        prelude=(*READ, "open r1 ins 2", "r1"),
        probes=("rewritten", "rewrite refused", "quorum reached", "failed for good"),
    ),
    two(
        "rewrite_open",
        "a part whose insert is open is rewritten, and its quorum is given up or reached",
        (Insert("r1", ((1, "a"),), quorum=2),),
        {},
        rewrites=(Rewrite("r1", 9, EntryId("w"), (("all_0_0_0", "all:"),), (("all", "all:1~w"),)),),
        prelude=("open r1 ins 1", "r1"),
        probes=("rewritten", "rewrite refused", "quorum reached", "failed for good"),
    ),
    two(
        "rewrite_twice",
        "two rewrites have a source in common, and each has one that the other has not",
        THREE_PARTS,
        {},
        rewrites=(
            MOVING,
            Rewrite("r2", 8, EntryId("v"), (("all_1_1_0", "all:2~v"), ("all_2_2_0", "all:")), (("all", "all:3~v"),)),
        ),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", *EVERYWHERE),
        probes=("rewritten", "rewrite refused"),
    ),
    two(
        "rewrite_again",
        "two replicas are given the same rewrite (a client that tried again elsewhere), and an answer is lost",
        (),
        DOUBT,
        rewrites=tuple(Rewrite(seat, 9 - n, EntryId("w"), (), (("all", "all:9"),)) for n, seat in enumerate(BOTH)),
        struck=((Fault.UNKNOWN, "r1"),),
        probes=("command known already", "unknown: applied, answer lost", "unknown: no answer", "late request applied"),
    ),
    two(
        "rewrite_drop",
        "a rewrite is followed by a drop of everything, and one replica has still to pull both",
        TWO_PARTS,
        {},
        rewrites=(MOVING,),
        commands=(Ask("r2", 8, DropEntry("r2", EntryId("d"), "all")),),
        prelude=(*READ_TWO, "r1 rew 9"),
        probes=("rewritten", "parts dropped"),
    ),
    two(
        "rewrite_crash",
        "a replica dies anywhere in a rewrite of two parts",
        TWO_PARTS,
        CRASH,
        rewrites=(MOVING,),
        prelude=READ_TWO,
        probes=("rewritten", "committed staging kept", "staging removed", "crash"),
    ),
    two(
        "rewrite_doubt",
        "the same while the answer to a commit is lost",
        TWO_PARTS,
        DOUBT,
        rewrites=(MOVING,),
        prelude=READ_TWO,
        struck=((Fault.UNKNOWN, "r1"),),
        probes=("rewritten", "late request applied"),
    ),
    one(
        "rewrite_doubtful",
        "a rewrite on the only replica, while the answers to two commits are lost",
        ONE_PART,
        {Fault.UNKNOWN: 2},
        rewrites=(Rewrite("r1", 9, EntryId("w"), CHANGED),),
        prelude=("r1 ins 1", "r1"),
        resting=("r1 work",),
        probes=("rewritten", "late request applied"),
    ),
    two(
        "rewrite_behind",
        "a replica has pulled a rewrite and not the merge of what it brought, after which no replica has its parts any more",
        TWO_PARTS,
        CRASH,
        rewrites=(MOVING,),
        merges=(Proposal("r1", ("all_1_1_0_2", "all_2_2_0")),),
        prelude=(*READ_TWO, "r1 rew 9", "r2 pull", "r1", "r1 lead1", "r1"),
        struck=((Fault.CRASH, "r2"),),
        probes=("later form taken", "crash"),
    ),
    _read(
        "rewrite_read",
        "a replica may fetch a merged part with a row that a rewrite has moved, before it executes that, and is read",
        TWO_PARTS,
        (MOVED,),
        merges=(Proposal("r1", ("all_1_1_0", "all_2_2_0")),),
        probes=("result fetched",),
    ),
    _read(
        "rewrite_read_source",
        "the same where the merged part reaches over the place that the row has left",
        TWO_PARTS,
        (MOVING,),
        merges=(Proposal("r1", ("all_0_0_0_2", "all_1_1_0_2")),),
        probes=("result fetched",),
    ),
    _read(
        "rewrite_read_two",
        "the same where the merged part is of two rewrites and of an insert that the replica has not executed either",
        TWO_PARTS,
        (MOVED, Rewrite("r1", 7, EntryId("v"), (("all_1_1_0", "all:"),), (("all", "all:2~v"),))),
        merges=(Proposal("r1", ("all_1_1_0_3", "all_2_2_0", "all_3_3_0")),),
        prelude=("r1 ins 1", *EVERYWHERE, "r1 ins 2", "r1", "r2 pull"),
        probes=("later form taken",),
    ),
    _read(
        "rewrite_read_mutate",
        "the same where every part is mutated in between",
        TWO_PARTS,
        (MOVED,),
        commands=(Ask("r1", 8, MutateEntry("r1", EntryId("m"), "*", "x")),),
        merges=(Proposal("r1", ("all_1_1_0_3", "all_2_2_0_3")),),
        probes=("mutated", "result fetched"),
    ),
    _read(
        "rewrite_read_removed",
        "a replica may fetch a merged part with a row that a rewrite has moved, and the partition that it has left is dropped",
        ONE_PART,
        (AWAY,),
        partitions=("p", "q"),
        commands=(DROP_P,),
        merges=(Proposal("r1", ("q_0_0_0", "q_1_1_0")),),
        probes=("result fetched",),
    ),
    _read(
        "rewrite_read_drop",
        "a row is moved to another partition, and a replica has yet to execute that and the drop of the first partition",
        ONE_PART,
        (AWAY,),
        partitions=("p",),
        commands=(DROP_P,),
    ),
    _read(
        "rewrite_read_detach",
        "the same where the first partition is detached",
        (Insert("r1", ((1, "a"), (2, "b"))),),
        (Rewrite("r1", 9, EntryId("w"), (("p_0_0_0", "p:2~w"),), (("q", "q:1~w"),)),),
        partitions=("p",),
        commands=(Ask("r1", 8, DropEntry("r1", EntryId("d"), "p", detach=True)),),
        probes=("parts kept aside",),
    ),
    _read(
        "rewrite_read_overwrite",
        "the same where a later insert replaces the first partition",
        (*ONE_PART, Insert("r1", ((2, "b"),), drops=("p",))),
        (AWAY,),
        partitions=("p",),
        after=("r1 ins 2",),
    ),
    _read(
        "overwrite_read",
        "a replica may fetch a merged part with rows of an overwriting insert, before it executes that, and is read",
        (*ONE_PART, Insert("r1", ((2, "b"),), drops=("all",)), Insert("r1", ((3, "c"),))),
        (),
        merges=(Proposal("r1", ("all_1_1_0", "all_2_2_0")),),
        prelude=READ,
        after=("r1 ins 2", "r1 ins 3"),
        probes=("later form taken",),
    ),
    _read(
        "overwrite_read_twice",
        "the same where another overwriting insert comes between, and is not executed either",
        (
            *(*ONE_PART, Insert("r1", ((2, "b"),), drops=("all",))),
            *(Insert("r1", ((3, "c"),), drops=("all",)), Insert("r1", ((4, "d"),))),
        ),
        (),
        merges=(Proposal("r1", ("all_2_2_0", "all_3_3_0")),),
        prelude=READ,
        after=("r1 ins 2", "r1 ins 3", "r1 ins 4"),
        probes=("later form taken",),
    ),
    _read(
        "rewrite_read_hole",
        "the same where a range with the source is dropped, and its neighbours are merged over the hole",
        THREE_PARTS,
        (Rewrite("r1", 9, EntryId("w"), (("all_1_1_0", "all:"),), (("q", "q:2~w"),)),),
        commands=(Ask("r1", 8, DropEntry("r1", EntryId("d"), "all", block_min=1, block_max=1)),),
        merges=(Proposal("r1", ("all_0_0_0", "all_2_2_0")),),
        prelude=("r1 ins 1", "r1 ins 2", "r1 ins 3", *EVERYWHERE),
    ),
    _read(
        "rewrite_read_chain",
        "a row is moved twice, to two other partitions, and the one in between is dropped",
        ONE_PART,
        (AWAY, Rewrite("r1", 7, EntryId("v"), (("q_1_1_0", "q:"),), (("r", "r:1~w~v"),))),
        partitions=("p",),
        commands=(Ask("r1", 8, DropEntry("r1", EntryId("d"), "q")),),
    ),
    _stored("stored_rewrite", "a part in an object store is rewritten", {}, probes=("rewritten",)),
    _stored("stored_rewrite_crash", "the same with a crash", CRASH, probes=("rewritten", "crash")),
    _stored("stored_rewrite_doubt", "the same while the answer to a commit is lost", DOUBT, probes=("rewritten",)),
    _stored(
        "stored_rewrite_refused",
        "a part in an object store is rewritten and mutated, and what came too late is deleted from the store",
        {},
        commands=(Ask("r1", 8, MutateEntry("r1", EntryId("m"), "*", "x")),),
        probes=("rewritten", "rewrite refused"),
    ),
    _stored(
        "stored_rewrite_two",
        "a part in an object store is rewritten for two replicas",
        {},
        seats=TWO,
        workers=BOTH,
        started=BOTH,
        upkeepers=BOTH,
        prelude=(*REGISTERED, "r2", "r1 rew 9"),
        probes=("rewritten",),
    ),
)
