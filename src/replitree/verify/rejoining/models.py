"""The scenarios: what a process still has in its hands while its replica is dropped and another process joins in its name."""

from __future__ import annotations

from replitree.verify.rejoining.tasks import (
    activate_again,
    append,
    come,
    count,
    drop,
    join,
    join_and_register,
    leave,
    register,
)
from replitree.verify.rejoining.world import OPERATOR, Model, Task

OLD, NEW = "old", "new"
_DROP: tuple[Task, ...] = ((drop, (1,)),)


def _come(name: str, *more: Task) -> tuple[Task, ...]:
    return (come, (name,)), *more


MODELS = (
    Model(
        "rejoin_register",
        "a process registers a part that it has taken over; its replica is dropped, and another process joins",
        {OLD: ((register, (OLD,)),), NEW: _come(NEW), OPERATOR: _DROP},
        is_joined=True,
        is_held=True,
    ),
    Model(
        "rejoin_leave",
        "a process lets go of a share",
        {OLD: ((leave, (OLD,)),), NEW: _come(NEW), OPERATOR: _DROP},
        is_joined=True,
        is_marked=True,
    ),
    Model(
        "rejoin_append",
        "a process inserts rows; the other one is activated twice",
        {OLD: ((append, (OLD,)),), NEW: _come(NEW, (activate_again, (NEW,))), OPERATOR: _DROP},
        is_joined=True,
    ),
    Model(
        "rejoin_count",
        "a process counts its replica for an open insert",
        {OLD: ((count, (OLD,)),), NEW: _come(NEW), OPERATOR: _DROP},
        is_joined=True,
        is_held=True,
    ),
    Model(
        "rejoin_first",
        "two processes add a replica that nobody was before, one after the other; the first one registers a part",
        {OLD: ((join_and_register, (OLD,)),), NEW: ((join, (NEW,)),), OPERATOR: _DROP},
        is_held=True,
    ),
    Model(
        "rejoin_again",
        "the same, and the name was dropped before, after two epochs",
        {OLD: ((join_and_register, (OLD,)),), NEW: ((join, (NEW,)),), OPERATOR: _DROP},
        had=2,
        is_held=True,
    ),
    Model(
        "rejoin_doubt",
        "a process registers a part, while the answer to a commit is lost, which takes place, or comes late",
        {OLD: ((register, (OLD,)),), NEW: _come(NEW), OPERATOR: _DROP},
        is_joined=True,
        is_held=True,
        unknown=1,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "NEW", "OLD", "find_model"]
