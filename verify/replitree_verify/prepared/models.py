"""The scenarios: a task puts the result of a merge for a replica, while another replica has the merge in its queue, too."""

from __future__ import annotations

from replitree.protocol.program import upkeep
from replitree_verify.merging.processes import restart, running
from replitree_verify.merging.world import Model
from replitree_verify.prepared.clients import prepare, put
from replitree_verify.shared_tables.replicas import settle
from replitree_verify.shared_tables.world import Task, replica_of
from replitree_verify.world.faults import Fault

_ONE: dict[str, tuple[Task, ...]] = {
    "r1": ((prepare, ("r1",)), (settle, ("r1",))),
    "task": ((put, ("r1",)),),
    "r1 gives up": ((upkeep.let_go_next, (replica_of("r1"),)),),
}
_RESTARTED = {**_ONE, "r1": ((prepare, ("r1",)), (restart, ("r1",)))}
"""Where the note of an attempt may come late, the next start gives it up."""

_TWO: dict[str, tuple[Task, ...]] = {
    "r1": _ONE["r1"],
    "r2": ((running, ("r2",)), (settle, ("r2",))),
    "task": _ONE["task"],
    "r1 gives up": _ONE["r1 gives up"],
    "r2 gives up": ((upkeep.let_go_next, (replica_of("r2"),)),),
}

MODELS = (
    Model(
        "merge_prepared",
        "a task puts the result for one replica, or comes too late; the other one may make it",
        _TWO,
        {},
    ),
    Model(
        "merge_prepared_crash",
        "who takes what was put is killed at any step, and comes back at once; its old session, with its mark, ends later",
        _ONE,
        {Fault.CRASH: 1},
        ("r1",),
    ),
    Model(
        "merge_prepared_doubt",
        "the same while the answer to a commit of the one that takes it is lost: it takes place, or comes late, or never",
        _RESTARTED,
        {Fault.UNKNOWN: 1},
        ("r1",),
    ),
    Model(
        "merge_prepared_expiry",
        "what was put is there in time, and the session of a replica with the work mark ends: both may have a result",
        {name: tasks for name, tasks in _TWO.items() if name != "task"}
        | {"r1": ((prepare, ("r1", True)), (settle, ("r1",)))},
        {},
        expiries=1,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
