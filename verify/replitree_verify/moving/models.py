"""The scenarios: who moves what, while what goes on and goes wrong."""

from __future__ import annotations

from replitree.protocol.program import executor, mover
from replitree_verify.moving.threads import find_broken
from replitree_verify.moving.world import PART, TRIES, Model, Task
from replitree_verify.shared_tables.world import replica_of
from replitree_verify.world.faults import Fault

Threads = dict[tuple[str, str], tuple[Task, ...]]


def _move(name: str, tries: int = TRIES) -> Task:
    return Task(mover.move_next, (replica_of(name),), to_store=True, tries=tries)


def _bring(name: str) -> Task:
    return Task(mover.move_next, (replica_of(name),), to_store=False)


def _leave(name: str) -> Task:
    return Task(executor.execute_next, (replica_of(name),))


_BREAKS = Task(find_broken, (PART,))


_EVERYBODY = "r1", "r2"
_TAKEN: Threads = {("r1", "execute"): (_leave("r1"),), ("r2", "move"): (_move("r2"),)}
_TAKEN_ALONE: Threads = {("r1", "execute"): (), ("r2", "move"): (_move("r2"),)}
_BOTH: Threads = {("r1", "move"): (_move("r1"),), ("r2", "move"): (_move("r2"),)}
_ONE: Threads = {("r1", "move"): (_move("r1"),)}
_ONE_LEAVES: Threads = {**_ONE, ("r1", "execute"): (_leave("r1"),)}
_HOME: Threads = {("r1", "move"): (_bring("r1"),), ("r2", "move"): (_bring("r2"),)}
_ONE_HOME: Threads = {("r1", "move"): (_bring("r1"),), ("r2", "execute"): (_leave("r2"),)}
_LAST_HOME: Threads = {("r1", "move"): (_bring("r1"),)}

MODELS = (
    Model("move_two", "two replicas move a part into the store at once", _BOTH, {}, is_once=True),
    Model(
        "move_leave",
        "a part is moved by one replica and taken over by another, and leaves the first meanwhile",
        {**_ONE_LEAVES, ("r2", "move"): (_move("r2", 3),)},
        {},
    ),
    Model(
        "move_crash",
        "a part is moved, with a crash at any step, also in the middle of a request",
        _ONE,
        {Fault.CRASH: 1},
    ),
    Model("move_leave_crash", "a part is moved and leaves its replica, with a crash", _ONE_LEAVES, {Fault.CRASH: 1}),
    Model(
        "move_two_crash", "two replicas move a part at once, with a crash", _BOTH, {Fault.CRASH: 1}, breaking=("r1",)
    ),
    Model("move_doubt", "a part is moved, while the answer to a commit is lost", _ONE, {Fault.UNKNOWN: 1}),
    Model(
        "move_leave_doubt",
        "a part is moved, which is tried once, and leaves its replica, while the answer to a commit is lost",
        {**_ONE_LEAVES, ("r1", "move"): (_move("r1", 1),)},
        {Fault.UNKNOWN: 1},
    ),
    Model(
        "take_crash",
        "a part is taken over from the replica that has moved it, with a crash",
        _TAKEN_ALONE,
        {Fault.CRASH: 1},
        shared=("r1",),
        breaking=("r2",),
    ),
    Model(
        "take_doubt",
        "a part is taken over from the replica that has moved it, while an answer is lost",
        _TAKEN_ALONE,
        {Fault.UNKNOWN: 1},
        shared=("r1",),
        breaking=("r2",),
    ),
    Model(
        "take_lag",
        "a part is taken over while it leaves who has moved it, while a thread reads old values",
        _TAKEN,
        {Fault.STALE: 1},
        shared=("r1",),
    ),
    Model(
        "move_store",
        "a part is moved, while an answer of the store is lost, and what was asked comes late",
        _ONE,
        {Fault.STORE: 1},
    ),
    Model(
        "take_unanswered",
        "a part is taken over while it leaves the replica that has moved it, and the store gives no answer once",
        _TAKEN,
        {Fault.STORE: 1},
        shared=("r1",),
        is_once=True,
    ),
    Model(
        "take_unanswered_twice",
        "a part is taken over from the replica that has moved it, and the store gives no answer up to twice",
        {("r1", "execute"): (), ("r2", "move"): (_move("r2", 3),)},
        {Fault.STORE: 2},
        shared=("r1",),
        is_once=True,
    ),
    Model(
        "move_differing",
        "two replicas that have different files of the same rows move their part at once; later it leaves both",
        {("r1", "move"): (_move("r1"), _leave("r1")), ("r2", "move"): (_move("r2"), _leave("r2"))},
        {},
        is_once=True,
        differing=("r2",),
    ),
    Model(
        "home_differing",
        "a replica whose files of the same rows are others than those in the store moves its part there and back",
        {("r1", "move"): (_move("r1"), _bring("r1")), ("r2", "execute"): (_leave("r2"),)},
        {},
        shared=("r2",),
        differing=("r1",),
    ),
    Model(
        "move_expiry",
        "two replicas move a part at once, and a session ends",
        _BOTH,
        {Fault.EXPIRY: 1},
        breaking=("r1",),
    ),
    Model("home_two", "two replicas bring a part from the store to their disks at once", _HOME, {}, shared=_EVERYBODY),
    Model(
        "home_leave",
        "a part is brought by one replica, and leaves both",
        {**_ONE_HOME, ("r1", "execute"): (_leave("r1"),)},
        {},
        shared=_EVERYBODY,
    ),
    Model(
        "home_crash",
        "a part is brought by one replica, and leaves another, with a crash",
        _ONE_HOME,
        {Fault.CRASH: 1},
        shared=_EVERYBODY,
    ),
    Model(
        "home_doubt",
        "a part is brought by one replica, and leaves another, while an answer is lost",
        _ONE_HOME,
        {Fault.UNKNOWN: 1},
        shared=_EVERYBODY,
    ),
    Model(
        "there_and_back",
        "one replica brings a part and moves it again, while another one has it in the store",
        {("r1", "move"): (_bring("r1"), _move("r1")), ("r2", "execute"): ()},
        {Fault.UNKNOWN: 1},
        shared=_EVERYBODY,
    ),
    Model(
        "home_mend",
        "a part is brought, found broken and taken over again, while its share is let go of",
        {("r1", "move"): (_bring("r1"), _BREAKS), ("r2", "execute"): ()},
        {},
        shared=_EVERYBODY,
    ),
    Model(
        "home_anew",
        "a part of the only replica is brought, loses its folder, and is written anew of its share, which is let go of",
        {("r1", "move"): (_bring("r1"), _BREAKS)},
        {},
        shared=("r1",),
    ),
    Model(
        "borrowed_home",
        "two replicas bring a part at once that borrows of another share: they let go of both shares",
        _HOME,
        {},
        shared=_EVERYBODY,
        is_borrowing=True,
    ),
    Model(
        "borrowed_home_crash",
        "a part that borrows is brought by its last owner, with a crash",
        _LAST_HOME,
        {Fault.CRASH: 1},
        shared=("r1",),
        is_borrowing=True,
    ),
    Model(
        "borrowed_home_doubt",
        "a part that borrows is brought by its last owner, while an answer is lost",
        _LAST_HOME,
        {Fault.UNKNOWN: 1},
        shared=("r1",),
        is_borrowing=True,
    ),
    Model(
        "borrowed_there_and_back",
        "one replica brings a part that borrows, and moves it again, into one share, while another one has it as it was",
        {("r1", "move"): (_bring("r1"), _move("r1")), ("r2", "execute"): ()},
        {Fault.UNKNOWN: 1},
        shared=_EVERYBODY,
        is_borrowing=True,
    ),
    Model(
        "borrowed_home_mend",
        "a part that borrows is brought, found broken and taken over again, while its shares are let go of",
        {("r1", "move"): (_bring("r1"), _BREAKS), ("r2", "execute"): ()},
        {},
        shared=_EVERYBODY,
        is_borrowing=True,
    ),
)


def find_model(name: str) -> Model:
    """Return a model by its name."""
    return next(model for model in MODELS if model.name == name)


__all__ = ["MODELS", "find_model"]
