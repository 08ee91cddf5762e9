"""The scenarios: who writes, takes over, leaves, while what goes wrong."""

from __future__ import annotations

from replitree_verify.shared_tables.replicas import leave, settle
from replitree_verify.shared_tables.restoring import rejoin, restore_table
from replitree_verify.shared_tables.world import Model, Task
from replitree_verify.world.faults import Fault

PART = "all_0_0_0"


def _leave(name: str) -> Task:
    return leave, (name, PART)


def _settle(name: str) -> Task:
    return settle, (name,)


MODELS = (
    Model(
        "shared_table_restore",
        "coordination has lost the table, and it is made anew from one disk; the other replica joins, the first one leaves",
        {
            "r1": ((restore_table, ("r1",)), _leave("r1"), _settle("r1")),
            "r2": ((rejoin, ()), _leave("r2"), _settle("r2")),
        },
        {},
        wiped=PART,
    ),
    Model(
        "shared_table_restore_crash",
        "the same on one disk while the restore is cut off anywhere and begun again, and what it had on its way comes late",
        {"r1": ((restore_table, ("r1",)), _leave("r1"), _settle("r1")), "r2": ()},
        {Fault.CRASH: 1},
        wiped=PART,
    ),
    Model(
        "shared_table_restore_crash_joined",
        "the same while the other replica joins, and both keep the part",
        {"r1": ((restore_table, ("r1",)), _settle("r1")), "r2": ((rejoin, ()), _settle("r2"))},
        {Fault.CRASH: 1},
        wiped=PART,
    ),
    Model(
        "shared_table_restore_doubt",
        "the same while the answer to a commit is lost",
        {"r1": ((restore_table, ("r1",)), _leave("r1"), _settle("r1")), "r2": ()},
        {Fault.UNKNOWN: 1},
        wiped=PART,
    ),
    Model(
        "shared_borrowed_restore",
        "coordination has lost the table, and a part that borrows is on the disks",
        {
            "r1": ((restore_table, ("r1",)), _leave("r1"), _settle("r1")),
            "r2": ((rejoin, ()), _settle("r2")),
        },
        {},
        wiped=PART,
        is_borrowing=True,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "PART", "find_model"]
