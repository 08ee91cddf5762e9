"""The scenarios: who writes, takes over, leaves, while what goes wrong."""

from __future__ import annotations

from replitree.protocol.program import table_drop
from replitree_verify.shared_tables.recovering import recover
from replitree_verify.shared_tables.replicas import (
    leave,
    leave_table,
    lose,
    mend,
    open_store,
    settle,
    take,
    write,
)
from replitree_verify.shared_tables.restoring import rejoin, restore_table
from replitree_verify.shared_tables.world import OPERATOR, Model, Task, replica_of
from replitree_verify.world.faults import Fault

PART = "all_0_0_0"


def _write(name: str) -> Task:
    return write, (name, PART)


def _take(name: str, source: str) -> Task:
    return take, (name, PART, source)


def _leave(name: str) -> Task:
    return leave, (name, PART)


def _settle(name: str) -> Task:
    return settle, (name,)


_WRITER: dict[str, tuple[Task, ...]] = {"r1": (_write("r1"), _leave("r1"), _settle("r1"))}
_TAKEN_AND_LEFT: dict[str, tuple[Task, ...]] = {
    "r1": (_leave("r1"), _settle("r1")),
    "r2": (_take("r2", "r1"), _leave("r2"), _settle("r2")),
}
_TAKEN: dict[str, tuple[Task, ...]] = {
    "r1": (_leave("r1"), _settle("r1")),
    "r2": (_take("r2", "r1"), _settle("r2")),
}

MODELS = (
    Model(
        "shared_table_crash",
        "a part is written and leaves again, with a crash at any step, also in the middle of a request to the store",
        _WRITER,
        {Fault.CRASH: 1},
        ("r1",),
    ),
    Model(
        "shared_table_taken_expiry",
        "a part is taken over and leaves again, while a session ends, also between reading and committing",
        {"r1": (), "r2": (_take("r2", "r1"), _leave("r2"), _settle("r2"))},
        {Fault.EXPIRY: 1},
        written=PART,
    ),
    Model(
        "shared_table_lost",
        "a replica loses a part's folder, and owns what it takes over in its place; the other one lets go meanwhile",
        {
            "r1": (_leave("r1"),),
            "r2": (_write("r2"), (lose, ("r2", PART)), (mend, ("r2", PART)), _settle("r2")),
        },
        {},
        written=PART,
    ),
    Model(
        "shared_table_drop",
        "a replica is dropped for good while it activates, and while it writes",
        {"r1": (_write("r1"),), "r2": (), OPERATOR: ((table_drop.leave_table, (replica_of("r1"), True)),)},
        {},
    ),
    Model(
        "shared_table_leave",
        "the table is dropped: the replica that wrote a part leaves it, while another one takes the part over and leaves, too",
        {"r1": ((leave_table, ("r1",)),), "r2": (_take("r2", "r1"), (leave_table, ("r2",)))},
        {},
        written=PART,
    ),
    Model(
        "shared_table_open",
        "two active replicas get an object store at once, and take a part over, while the answer to a commit is lost",
        {"r1": ((open_store, ("r1",)),), "r2": ((open_store, ("r2",)), _take("r2", "r1"))},
        {Fault.UNKNOWN: 1},
        written=PART,
        store=b"",
    ),
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
        "shared_borrowed",
        "a part that borrows of a share whose own part is gone is taken over, and leaves both replicas",
        _TAKEN_AND_LEFT,
        {},
        written=PART,
        is_borrowing=True,
    ),
    Model(
        "shared_borrowed_crash",
        "the same while it leaves its writer, with a crash",
        _TAKEN,
        {Fault.CRASH: 1},
        written=PART,
        is_borrowing=True,
    ),
    Model(
        "shared_borrowed_doubt",
        "the same while the answer to a commit is lost",
        _TAKEN,
        {Fault.UNKNOWN: 1},
        written=PART,
        is_borrowing=True,
    ),
    Model(
        "shared_borrowed_expiry",
        "a part that borrows is taken over and leaves again, while a session ends, also between reading and committing",
        {"r1": (), "r2": (_take("r2", "r1"), _leave("r2"), _settle("r2"))},
        {Fault.EXPIRY: 1},
        written=PART,
        is_borrowing=True,
    ),
    Model(
        "shared_borrowed_lost",
        "a replica loses a part's folder, and owns what it takes over in its place, which borrows; the other one lets go",
        {
            "r1": (_leave("r1"),),
            "r2": (_write("r2"), (lose, ("r2", PART)), (mend, ("r2", PART)), _settle("r2")),
        },
        {},
        written=PART,
        is_borrowing=True,
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
    Model(
        "shared_table_recover_had",
        "the same, and the lost replica had the part before, unless it had left already",
        {
            "r1": (_leave("r1"), _settle("r1")),
            "r2": (_take("r2", "r1"), (recover, ("r2",)), _settle("r2")),
        },
        {},
        written=PART,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "PART", "find_model"]
