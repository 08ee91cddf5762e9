"""The scenarios: what a process still has in its hands while its replica is dropped and another process joins in its name."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.program import executor, inserter, life, upkeep
from replitree_verify.rejoining.operators import drop, remake, remove, restore, write_log
from replitree_verify.rejoining.processes import execute_shared
from replitree_verify.rejoining.world import HELPER, LATER, OPERATOR, OTHER, Model, Task, me_of, replica_of
from replitree_verify.world.faults import Fault

OLD, NEW = "old", "new"
_DROP: tuple[Task, ...] = ((drop, ()),)


def _activate(name: str) -> Task:
    return life.become_active, (replica_of(name), me_of(name))


def _execute(name: str) -> Task:
    return execute_shared, (replica_of(name),)


def _append(name: str) -> Task:
    return inserter.accept_insert, (replica_of(name), ((fx.RequestId(1), fx.BlockId("b")),))


def _let_go(name: str) -> Task:
    return upkeep.let_go_next, (replica_of(name),)


def _remade(name: str, does: str, *tasks: Task, is_marked: bool = False) -> Model:
    """Return a model of a table that is dropped, and made anew under its name, while a process still does something."""
    seats: dict[str, tuple[Task, ...]] = {OLD: tasks, LATER: (_activate(LATER),), OPERATOR: ((remake, ()),)}
    return Model(
        name,
        f"{does}; its table is dropped, and another one of its name is created",
        seats,
        is_joined=True,
        is_marked=is_marked,
    )


MODELS = (
    Model(
        "rejoin_register",
        "a process registers a part that it has taken over; its replica is dropped, and another process joins",
        {OLD: (_execute(OLD),), NEW: (_activate(NEW),), OPERATOR: _DROP},
        is_joined=True,
    ),
    Model(
        "rejoin_leave",
        "a process lets go of a share",
        {OLD: (_let_go(OLD),), NEW: (_activate(NEW),), OPERATOR: _DROP},
        is_joined=True,
        is_marked=True,
    ),
    Model(
        "rejoin_append",
        "a process inserts rows; the other one is activated twice",
        {OLD: (_append(OLD),), NEW: (_activate(NEW), _activate(NEW)), OPERATOR: _DROP},
        is_joined=True,
    ),
    Model(
        "rejoin_count",
        "a process registers a part and, in the same commit, counts its replica for the insert, which is open",
        {OLD: (_execute(OLD),), NEW: (_activate(NEW),), OPERATOR: _DROP},
        is_joined=True,
        counted=(OTHER.name,),
    ),
    Model(
        "rejoin_count_later",
        "the same, and another replica was faster: the process registers the part, and then counts its replica",
        {OLD: (_execute(OLD),), NEW: (_activate(NEW),), OPERATOR: _DROP},
        is_joined=True,
        counted=(OTHER.name, "r3"),
    ),
    Model(
        "rejoin_first",
        "two processes add a replica of a new name, one after the other; the first one registers a part",
        {OLD: (_activate(OLD), _execute(OLD)), NEW: (_activate(NEW),), OPERATOR: _DROP},
    ),
    Model(
        "rejoin_again",
        "the same, and the name was dropped before, after two epochs",
        {OLD: (_activate(OLD), _execute(OLD)), NEW: (_activate(NEW),), OPERATOR: _DROP},
        had=2,
    ),
    Model(
        "rejoin_doubt",
        "a process registers a part, while the answer to a commit is lost, which takes place, or comes late",
        {OLD: (_execute(OLD),), NEW: (_activate(NEW),), OPERATOR: _DROP},
        is_joined=True,
        faults={Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
    ),
    _remade("remade_register", "a process registers a part", _execute(OLD)),
    _remade("remade_leave", "a process lets go of a share", _let_go(OLD), is_marked=True),
    _remade("remade_append", "a process inserts rows", _append(OLD)),
    _remade(
        "remade_activate",
        "a process takes another epoch, and registers a part",
        _activate(OLD),
        _execute(OLD),
    ),
    Model(
        "remade_helped",
        "a process helps to drop a table, which is made anew, and gets an insert, meanwhile",
        {OPERATOR: ((remake, ()), (write_log, ())), HELPER: ((remove, ()),)},
        has_log=True,
        faults={},
    ),
    Model(
        "remade_doubt",
        "who drops a table and makes it anew gets no answer to a commit, and tries again; the commit comes late",
        {OPERATOR: ((remake, ()), (remake, ()))},
        faults={Fault.UNKNOWN: 1},
    ),
    Model(
        "remade_restored",
        "a process registers a part on a local disk, while the table, which coordination has lost, is restored from another's",
        {OLD: ((executor.execute_next, (replica_of(OLD),)),), LATER: (_activate(LATER),), OPERATOR: ((restore, ()),)},
        is_joined=True,
        is_lost=True,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "NEW", "OLD", "find_model"]
