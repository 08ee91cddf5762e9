"""Merges and mutations in an object store: one replica makes a result for all, and parts borrow of each other."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import MutateEntry
from replitree_verify.models.merge import BOTH
from replitree_verify.models.stored import DROP, NAMES, PART, REGISTERED, in_store
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Model, Proposal

PULLED = (*REGISTERED, "r2", "r1 lead1", "r1 pull", "r2 pull")
"""Both replicas have the part, and its merge in their queues."""

BEGUN = (*PULLED, "begin r1 make")
"""The first replica has the work mark, and is about to make the result."""

PUBLISHED = (*PULLED, "publish r1 make")
"""The first replica has published the result, and not registered it yet."""

# The session of a process that has died ends at any moment after that, and with it its work mark.
CRASH, DOUBT, EXPIRY = ({fault: 1} for fault in (Fault.CRASH, Fault.UNKNOWN, Fault.EXPIRY))
PAUSE = (Duty("r1", "pause"),)


def _merge(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model of two replicas that have the same merge in their queues; `more` as of `Model`."""
    given: dict[str, Any] = {
        "upkeepers": ("r2",),
        "merges": (Proposal("r1", (PART,)),),
        "prelude": PULLED,
        "struck": tuple((fault, "r1") for fault in faults),
    }
    return in_store(name, description, faults, **(given | more))


def _prepared(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model in which a task puts the result of a merge for r1, which proposes the merge; `more` as of `Model`."""
    given: dict[str, Any] = {
        "replicas": ("r1",),
        "upkeepers": ("r1",),
        "operators": ("task",),
        "merges": (),
        "prelude": REGISTERED,
        "duties": (Duty("r1", "prepare", ((PART,),)), Duty("task", "put")),
        "probes": ("upload taken", "upload discarded"),
    }
    return _merge(name, description, faults, **(given | more))


NAMED = (*REGISTERED, "r2", "tell r1 prepare1")
"""The first replica is about to tell a client where the result of a merge may be put."""


ONE_MUTATION = (Ask("r1", 5, MutateEntry("r1", EntryId("x"), "*", "x")),)
CHAINED = (
    *(*REGISTERED, "r1 ask 5", "r1 pull", "r1 ask 6", "r1 pull"),
    *("r1 make", "r1 ask 9", "r1 pull", "r1 work"),
)
"""Two mutations were made of a part, one of the other, and all are about to leave."""


def _mutate(name: str, description: str, faults: dict[Fault, int], *commands: str, **more: Any) -> Model:
    """Return a model in which mutations make parts that borrow of those before them, and all leave in the end."""
    asked = tuple(
        Ask("r1", number, MutateEntry("r1", EntryId(command), "*", command))
        for number, command in enumerate(commands, 5)
    )
    titles = tuple(title for ask in asked for title in (f"r1 ask {ask.request}", "r1 pull"))
    given: dict[str, Any] = {
        "replicas": ("r1",),
        "commands": (*asked, *DROP),
        "prelude": (*REGISTERED, *titles, "r1 ask 9"),
    }
    return in_store(name, description, faults, **(given | more))


MODELS = (
    _merge(
        "stored_merge",
        "two replicas have the same merge in their queues: one makes it for both",
        {},
        probes=("merged", "result fetched"),
    ),
    _merge("stored_merge_crash", "the same with a crash of one of them", CRASH, probes=("crash", "result found")),
    _merge(
        "stored_merge_expiry",
        "the session of the one that makes it ends, and it goes on",
        EXPIRY,
        prelude=BEGUN,
        upkeepers=(),
        probes=("activated again", "result found"),
    ),
    _merge(
        "stored_merge_doubt",
        "the same while the answer to a commit is lost",
        DOUBT,
        probes=("late request applied", "result found"),
    ),
    _merge("stored_merge_store", "the same while an answer of the store is lost", {Fault.STORE: 1}, probes=("merged",)),
    _merge(
        "stored_merge_lag",
        "the same while a process reads old values",
        {Fault.STALE: 1},
        upkeepers=BOTH,
        probes=("stale read",),
    ),
    _merge(
        "stored_merge_paused",
        "merges are paused on a replica, while it makes the result: the other one makes it",
        {},
        upkeepers=("r1",),
        duties=PAUSE,
        probes=("making cancelled", "result fetched"),
    ),
    _merge(
        "stored_merge_paused_doubt",
        "the same while the answer to a commit is lost: the work mark may come late",
        DOUBT,
        upkeepers=("r1",),
        prelude=(*PULLED, "hold r1 make"),
        resting=("r1 pull", "r2 pull"),
        duties=PAUSE,
        probes=("making cancelled", "result fetched", "late request applied"),
    ),
    _merge(
        "stored_merge_left",
        "a replica has begun to make the result, and is away for good: the other one makes it",
        {},
        prelude=(*BEGUN, "stop r1"),
        resting=("r1 life",),
        probes=("merged",),
    ),
    _merge(
        "stored_merge_published",
        "a replica has died after it published the result; merges are paused there once it is back",
        {},
        prelude=(*PUBLISHED, "stop r1"),
        duties=PAUSE,
        probes=("result found", "result fetched"),
    ),
    _merge(
        "stored_merge_differs",
        "both make it because a session ends, and what they make differs",
        {**EXPIRY, Fault.DIFFERS: 1},
        prelude=PUBLISHED,
        upkeepers=(),
        struck=((Fault.EXPIRY, "r1"), (Fault.DIFFERS, "r2")),
        probes=("activated again", "result fetched"),
    ),
    _merge(
        "stored_merge_dropped_doubt",
        "the part is dropped while it is merged on the only replica, and the answer to a commit is lost",
        DOUBT,
        replicas=("r1",),
        upkeepers=("r1",),
        commands=DROP,
        prelude=(*REGISTERED, "r1 lead1", "r1 pull", "begin r1 make", "r1 ask 9", "r1 pull", "r1 work"),
        resting=("r1 pull",),
        probes=("making cancelled", "late request applied"),
    ),
    _merge(
        "stored_merge_gone",
        "a replica that has made the result is away for good: it is made again, once",
        {},
        replicas=NAMES,
        prelude=(*REGISTERED, "r2", "r3", "r1 lead1", "r3", "stop r3", "r1 pull", "r2 pull"),
        resting=("r3 life",),
        probes=("fetch failed", "merged"),
    ),
    _merge(
        "stored_merge_own",
        "both began when results went to disks: each makes its own",
        {},
        own_makers=BOTH,
        probes=("merged",),
    ),
    _merge(
        "stored_merge_own_crash",
        "only one of them did, and dies",
        CRASH,
        own_makers=("r1",),
        probes=("crash", "result found"),
    ),
    _merge(
        "stored_merge_three",
        "three replicas have the same merge in their queues",
        {},
        replicas=NAMES,
        prelude=(*REGISTERED, "r2", "r3", "r1 lead1", "r1 pull", "r2 pull", "r3 pull"),
        probes=("result fetched",),
    ),
    _prepared(
        "merge_prepared",
        "a task puts the result of a merge for one replica, or comes too late; the other one proposes the merge, too",
        {},
        replicas=BOTH,
        merges=(Proposal("r2", (PART,)),),
        prelude=(*NAMED, "r2 lead1", "r2 pull"),
    ),
    _prepared(
        "merge_prepared_crash",
        "the replica that takes what was put dies at any step, and its old session, with its mark, ends later",
        CRASH,
    ),
    _prepared(
        "merge_prepared_doubt",
        "the same while the answer to a commit is lost: it takes place, or comes late, or never",
        DOUBT,
    ),
    _prepared(
        "merge_prepared_expiry",
        "what was put is there, and the session of the replica with the work mark ends: both may have a result",
        EXPIRY,
        replicas=BOTH,
        prelude=(*NAMED, "task put2", "r1 prepare1", "r1 pull", "r2 pull"),
        # The upkeep of r2, too, would make more than 400,000 states.
        probes=("activated again", "another published first", "result fetched"),
    ),
    _mutate(
        "stored_mutate",
        "a mutation writes a file anew, and two more leave the part as it is",
        {},
        "x",
        "y@7",
        "z@7",
        probes=("mutated", "let be", "parts dropped"),
    ),
    _mutate(
        "stored_mutate_twice",
        "two mutations write a file anew, each, and borrow the others",
        {},
        "x",
        "y",
        probes=("mutated", "parts dropped"),
    ),
    _mutate("stored_mutate_crash", "one such mutation, with a crash", CRASH, "x", probes=("crash", "mutated")),
    _mutate(
        "stored_mutate_doubt",
        "a mutation writes a file anew, and the part stays, while the answer to a commit is lost",
        DOUBT,
        commands=ONE_MUTATION,
        prelude=(*REGISTERED, "r1 ask 5", "r1 pull"),
        probes=("late request applied", "result found"),
    ),
    _mutate(
        "stored_mutate_store",
        "the same while an answer of the store is lost",
        {Fault.STORE: 1},
        "x",
        probes=("mutated",),
    ),
    _mutate(
        "stored_mutate_two",
        "the same on two replicas, of which one makes it for both",
        {},
        commands=ONE_MUTATION,
        replicas=BOTH,
        prelude=(*REGISTERED, "r2", "r1 ask 5", "r1 pull", "r2 pull"),
        probes=("result fetched",),
    ),
    _mutate(
        "stored_mutate_left",
        "parts that borrow leave before those that they borrow of, with a crash",
        CRASH,
        "x",
        "y",
        prelude=(*CHAINED, "leave r1 all_0_0_0_1", "leave r1 all_0_0_0_2"),
        probes=("crash",),
    ),
)
