"""The scenarios: who makes the result, while what goes wrong."""

from __future__ import annotations

from replitree.protocol.program import executor, upkeep
from replitree_verify.merging.chains import CHAIN, leave_all, mutate, rewrite
from replitree_verify.merging.processes import restart, running
from replitree_verify.merging.world import Model
from replitree_verify.shared_tables.replicas import leave, settle, take
from replitree_verify.shared_tables.world import Task, replica_of
from replitree_verify.world.faults import Fault


def _of(*names: str) -> dict[str, tuple[Task, ...]]:
    """Return what replicas do: merge, let go of what was left; and beside that give up marks that were left."""
    merging: dict[str, tuple[Task, ...]] = {name: ((running, (name,)), (settle, (name,))) for name in names}
    return merging | {f"{name} gives up": ((upkeep.let_go_next, (replica_of(name),)),) for name in names}


TWO = _of("r1", "r2")
RESTARTED = {**TWO, "r1": ((running, ("r1",)), (restart, ("r1",)))}
"""Where the note of an attempt may come late, the next start gives it up."""

CRASHED: dict[str, tuple[Task, ...]] = {
    "r1": ((executor.make_next, (replica_of("r1"),)), (settle, ("r1",))),
    "r2": ((running, ("r2",)), (settle, ("r2",))),
}

MODELS = (
    Model(
        "shared_merge_once",
        "two replicas have the same merge in their queues: one makes it, the other takes it over",
        TWO,
        {},
    ),
    Model(
        "shared_merge_crash",
        "who makes it is killed at any step, and comes back at once; its old session, with its mark, ends later",
        {"r1": CRASHED["r1"]},
        {Fault.CRASH: 1},
        ("r1",),
    ),
    Model(
        "shared_merge_killed",
        "who makes it is killed at any step, and comes back when the other one has made it",
        CRASHED,
        {Fault.CRASH: 1},
        away=("r1",),
        struck=("r1",),
    ),
    Model(
        "shared_merge_expiry",
        "the same while the session of the one that makes it ends, and it goes on: both make it",
        TWO,
        {},
        expiries=1,
    ),
    Model(
        "shared_merge_doubt",
        "the same while the answer to a commit of one is lost, which takes place, or comes late, or never",
        RESTARTED,
        {Fault.UNKNOWN: 1},
        struck=("r1",),
    ),
    Model(
        "shared_merge_store",
        "the same while answers of the object store are lost: who can't put its result lets another one make it",
        TWO,
        {Fault.STORE: 1},
    ),
    Model(
        "shared_merge_paused",
        "merges are paused on a replica while it makes one: the other one makes it",
        TWO,
        {},
        pausing=("r1",),
    ),
    Model(
        "shared_merge_paused_doubt",
        "the same while the answer to a commit is lost: a mark may come late",
        RESTARTED,
        {Fault.UNKNOWN: 1},
        pausing=("r1",),
        struck=("r1",),
    ),
    Model(
        "shared_merge_differs",
        "both make it, because a session has ended, and what they make differs",
        TWO,
        {},
        expiries=1,
        contents=(("r2", "c2"),),
    ),
    Model(
        "shared_merge_gone",
        "who has made the result is away for good: it is made again, once",
        TWO | {"r3": ()},
        {},
        ("r1", "r2", "r3"),
        holder="r3",
    ),
    Model(
        "shared_merge_switched",
        "two replicas have begun the same merge, each for itself, when the table changes and results go into the store",
        TWO,
        {},
        switched=("r1", "r2"),
    ),
    Model(
        "shared_merge_switched_one",
        "the same where one of them has heard of the change before, and makes it for both",
        TWO,
        {},
        switched=("r1",),
    ),
    Model(
        "shared_merge_switched_crash",
        "the same with a crash of the other one, which makes it for itself",
        CRASHED,
        {Fault.CRASH: 1},
        struck=("r1",),
        switched=("r1",),
    ),
    Model(
        "borrow_chain",
        "two mutations leave a part as it is; who comes later has the last one only, and parts leave in any order",
        {
            "r1": ((mutate, ("r1",)), (leave_all, ("r1",)), (settle, ("r1",))),
            "r2": ((take, ("r2", CHAIN[2], "r1")), (leave_all, ("r2",)), (settle, ("r2",))),
        },
        {},
        written=CHAIN[0],
    ),
    Model(
        "borrow_chain_crash",
        "the same on one replica, with a crash",
        {"r1": ((mutate, ("r1",)), (leave_all, ("r1",)), (settle, ("r1",)))},
        {Fault.CRASH: 1},
        ("r1",),
        written=CHAIN[0],
    ),
    Model(
        "borrow_files",
        "a mutation writes a file of a part anew and borrows the others; who comes later takes it over, and all leave",
        {
            "r1": ((rewrite, ("r1", CHAIN[:2])), (leave_all, ("r1", CHAIN[:2])), (settle, ("r1",))),
            "r2": ((take, ("r2", CHAIN[1], "r1")), (leave_all, ("r2", CHAIN[1:2])), (settle, ("r2",))),
        },
        {},
        written=CHAIN[0],
    ),
    Model(
        "borrow_files_twice",
        "two such mutations on one replica: the last part borrows of both before it, and they leave in any order",
        {"r1": ((rewrite, ("r1", CHAIN)), (leave_all, ("r1",)), (settle, ("r1",)))},
        {},
        ("r1",),
        written=CHAIN[0],
    ),
    Model(
        "borrow_files_crash",
        "one such mutation on one replica, with a crash at any step, also in the middle of a request to the store",
        {"r1": ((rewrite, ("r1", CHAIN[:2])), (leave_all, ("r1", CHAIN[:2])), (settle, ("r1",)))},
        {Fault.CRASH: 1},
        ("r1",),
        written=CHAIN[0],
    ),
    Model(
        "borrow_files_doubt",
        "the same while the answer to a commit is lost",
        {
            "r1": (
                (rewrite, ("r1", CHAIN[:2])),
                (rewrite, ("r1", CHAIN[:2])),
                (leave, ("r1", CHAIN[0])),
                (leave, ("r1", CHAIN[1])),
                (restart, ("r1",)),  # the next epoch gives up a note of an attempt that came late
            )
        },
        {Fault.UNKNOWN: 1},
        ("r1",),
        written=CHAIN[0],
    ),
    Model(
        "borrow_files_store",
        "the same while answers of the object store are lost, and what was asked comes late",
        {"r1": ((rewrite, ("r1", CHAIN[:2])), (leave_all, ("r1", CHAIN[:2])), (settle, ("r1",)))},
        {Fault.STORE: 1},
        ("r1",),
        written=CHAIN[0],
    ),
    Model(
        "shared_merge_three",
        "three replicas have the same merge in their queues",
        _of("r1", "r2", "r3"),
        {},
        ("r1", "r2", "r3"),
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
