"""Tables in an object store whose parts move: from the disks into the store, and back, while everything else goes on."""

from __future__ import annotations

from typing import Any

from replitree_verify.models.merge import BOTH
from replitree_verify.models.stored import DROP, PART, in_store
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Duty, Model, Mover
from replitree_verify.world.moves import Place

TO_STORE = (Place.STORE,)
HOME = (Place.DISK,)
THERE_AND_BACK = (Place.DISK, Place.STORE)
ALONE = ("r1 ins 1", "r1 pull", "r1 work")
"""The only replica has the part."""

WRITTEN = (*ALONE, "r2 pull", "r2 work")
"""Both replicas have the part."""

LEAVES = (*WRITTEN, "r1 ask 9")
"""The part is about to leave."""

BORROWS = f"borrow r1 {PART}"
"""The part of the first replica has objects of another share, too."""

STILL = ("r1 pull", "r1 work", "r2 pull", "r2 work")
"""The threads that have nothing more to do."""

PUT = (*WRITTEN, "r1 move")
"""The first replica has the part in the store, the second one on its disk."""


def _alone(name: str, description: str, faults: dict[Fault, int], places: tuple[Place, ...], **more: Any) -> Model:
    """Return a model of one replica that moves its part; `more` as of `Model`."""
    given: dict[str, Any] = {"movers": (Mover("r1", places),), "prelude": ALONE}
    return in_store(name, description, faults, ("r1",), **(given | more))


def _both(
    name: str,
    description: str,
    faults: dict[Fault, int],
    places: tuple[Place, ...],
    seats: tuple[str, ...],
    **more: Any,
) -> Model:
    """Return a model of two replicas that have a part, of which those of `seats` move it; `more` as of `Model`."""
    given: dict[str, Any] = {
        "movers": tuple(Mover(seat, places) for seat in seats),
        "prelude": WRITTEN,
        "resting": STILL,
    }
    return in_store(name, description, faults, **(given | more))


def _taken(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model in which a replica takes the share over of the replica that has moved the part."""
    given: dict[str, Any] = {"prelude": PUT, "resting": (*STILL, "r1 move")}
    return _both(name, description, faults, TO_STORE, BOTH, **(given | more))


def _taken_leaving(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return such a model in which the part leaves the replica that has moved it meanwhile."""
    # r1 still executes the drop; it has moved its part in the prelude.
    resting = (*STILL[2:], "r1 move")
    return _taken(name, description, faults, commands=DROP, prelude=(*PUT, "r1 ask 9"), resting=resting, **more)


def _borrowing(
    name: str, description: str, faults: dict[Fault, int], seats: tuple[str, ...], *then: str, **more: Any
) -> Model:
    """Return a model in which a part that borrows of another share is brought to the disks of `seats`."""
    prelude = (*ALONE, BORROWS, *WRITTEN[3:], *then)
    return _both(name, description, faults, HOME, seats, **({"prelude": prelude} | more))


def _leaving(name: str, description: str, faults: dict[Fault, int]) -> Model:
    """Return a model in which one replica brings the part to its disk, and the other one drops it."""
    return _both(name, description, faults, HOME, ("r1",), commands=DROP, prelude=LEAVES, resting=STILL[:2])


MODELS = (
    _both("moved_both", "two replicas move a part into the store at once", {}, TO_STORE, BOTH),
    _both(
        "moved_leaving",
        "a part is moved by one replica and taken over by another, and leaves the first one meanwhile",
        {},
        TO_STORE,
        BOTH,
        movers=(Mover("r1", TO_STORE), Mover("r2", TO_STORE, tries=3)),
        commands=DROP,
        prelude=LEAVES,
        resting=STILL[2:],
    ),
    _alone(
        "moved_crash",
        "a part is moved, with a crash at any step, also in the middle of a request",
        {Fault.CRASH: 1},
        TO_STORE,
    ),
    _alone(
        "moved_leaving_crash",
        "a part is moved and leaves its replica, with a crash",
        {Fault.CRASH: 1},
        TO_STORE,
        commands=DROP,
        prelude=(*ALONE, "r1 ask 9"),
    ),
    _both(
        "moved_both_crash",
        "two replicas move a part at once, with a crash",
        {Fault.CRASH: 1},
        TO_STORE,
        BOTH,
        struck=((Fault.CRASH, "r1"),),
    ),
    _alone("moved_doubt", "a part is moved, while the answer to a commit is lost", {Fault.UNKNOWN: 1}, TO_STORE),
    _alone(
        "moved_leaving_doubt",
        "a part that is being put leaves its replica, while the answer to a commit is lost",
        {Fault.UNKNOWN: 1},
        TO_STORE,
        movers=(Mover("r1", TO_STORE, tries=1),),
        commands=DROP,
        prelude=(*ALONE, "r1 ask 9", "put r1 move", "r1 pull"),
    ),
    _alone(
        "moved_store",
        "a part is moved, while an answer of the store is lost, and what was asked comes late",
        {Fault.STORE: 1},
        TO_STORE,
    ),
    _both(
        "moved_closed", "two replicas move a part at once, while a read can't be had", {Fault.CLOSED: 1}, TO_STORE, BOTH
    ),
    _both(
        "moved_expiry",
        "two replicas move a part at once, and a session ends",
        {Fault.EXPIRY: 1},
        TO_STORE,
        BOTH,
        struck=((Fault.EXPIRY, "r1"),),
    ),
    _both(
        "moved_differing",
        "two replicas that have different files of the same rows move their part at once; it leaves one of them",
        {},
        TO_STORE,
        BOTH,
        commands=DROP,
        prelude=(*WRITTEN, f"rewrite r2 {PART}", "r1 ask 9"),
        resting=STILL[2:],
    ),
    _taken("taken_crash", "a part is taken over from the replica that has moved it, with a crash", {Fault.CRASH: 1}),
    _taken("taken_doubt", "the same while an answer is lost", {Fault.UNKNOWN: 1}),
    _taken_leaving(
        "taken_lag", "the same, while the part leaves that replica and a process reads old values", {Fault.STALE: 1}
    ),
    _taken_leaving("taken_store", "the same while the store gives no answer once", {Fault.STORE: 1}),
    _taken(
        "taken_store_twice",
        "a part is taken over, and the store gives no answer up to twice",
        {Fault.STORE: 2},
        movers=(Mover("r1", TO_STORE), Mover("r2", TO_STORE, tries=3)),
    ),
    _both("home_both", "two replicas bring a part from the store to their disks at once", {}, HOME, BOTH),
    _both(
        "home_leaving",
        "a part is brought by one replica, and leaves both",
        {},
        HOME,
        ("r1",),
        commands=DROP,
        prelude=LEAVES,
        resting=(),
    ),
    _leaving("home_crash", "a part is brought by one replica, and leaves another, with a crash", {Fault.CRASH: 1}),
    _leaving("home_doubt", "the same while an answer is lost", {Fault.UNKNOWN: 1}),
    _leaving("home_store", "the same while an answer of the store is lost", {Fault.STORE: 1}),
    _both(
        "home_there_and_back",
        "one replica brings a part and moves it again, while another one has it in the store",
        {Fault.UNKNOWN: 1},
        THERE_AND_BACK,
        ("r1",),
    ),
    _both(
        "home_differing",
        "a replica whose files of the same rows are others than those in the store moves its part there and back",
        {},
        (Place.STORE, Place.DISK),
        ("r1",),
        movers=(Mover("r1", (Place.STORE, Place.DISK)), Mover("r2", TO_STORE)),
        commands=DROP,
        prelude=(*WRITTEN, f"rewrite r1 {PART}", "r2 move", "r1 ask 9"),
        resting=(*STILL[:2], "r2 move"),
    ),
    _both(
        "home_mended",
        "a part was brought, is found broken and taken over again, while its share is let go of",
        {},
        HOME,
        ("r1",),
        prelude=(*WRITTEN, "r1 move"),
        duties=(Duty("r1", "break", (PART,)), Duty("r1", "watch")),
    ),
    _alone(
        "home_anew",
        "a part of the only replica was brought, loses its folder, and is written anew of its share, which is let go of and has"
        " no manifest that can be read",
        {},
        HOME,
        # The mender looks in the store first: only without a manifest does it write the part anew.
        prelude=(*ALONE, f"tear r1 {PART}", "r1 move"),
        duties=(Duty("r1", "break", (PART,)), Duty("r1", "watch"), Duty("r1", "heal", (PART,))),
    ),
    _borrowing("home_borrowed", "two replicas bring a part at once that borrows: they let go of both shares", {}, BOTH),
    _alone(
        "home_borrowed_crash",
        "a part that borrows is brought by its last owner, with a crash",
        {Fault.CRASH: 1},
        HOME,
        prelude=(*ALONE, BORROWS),
    ),
    _alone(
        "home_borrowed_doubt",
        "the same while an answer is lost",
        {Fault.UNKNOWN: 1},
        HOME,
        prelude=(*ALONE, BORROWS),
    ),
    _borrowing(
        "home_borrowed_and_back",
        "one replica brings a part that borrows, and moves it again, into one share, while another one has it as it was",
        {Fault.UNKNOWN: 1},
        ("r1",),
        movers=(Mover("r1", THERE_AND_BACK),),
    ),
    _borrowing(
        "home_borrowed_mended",
        "a part that borrows was brought, is found broken and taken over again, while its shares are let go of",
        {},
        ("r1",),
        "r1 move",
        duties=(Duty("r1", "break", (PART,)), Duty("r1", "watch")),
    ),
)
