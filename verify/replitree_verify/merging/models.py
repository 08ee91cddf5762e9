"""The scenarios: who makes the result, while what goes wrong."""

from __future__ import annotations

from replitree_verify.merging.chains import CHAIN, leave_all, mutate, rewrite
from replitree_verify.merging.processes import restart
from replitree_verify.merging.world import Model
from replitree_verify.shared_tables.replicas import leave, settle, take
from replitree_verify.world.faults import Fault

MODELS = (
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
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
