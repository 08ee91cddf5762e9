"""Tables in an object store: parts are written there, taken over, and leave, and the last owner makes garbage of them."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import TWO
from replitree_verify.models.merge import BOTH
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model

INSERT = (Insert("r1", ((1, "a"),)),)
DROP = (Ask("r1", 9, DropEntry("r1", EntryId("d"), "all")),)
PART = "all_0_0_0"
REGISTERED = ("r1 ins 1", "r1")
"""The part is registered at its writer."""

TAKEN = (*REGISTERED, "r2 pull", "r1 ask 9", "r1 pull")
"""The second replica has the insert in its queue, and the part is about to leave the first one."""

BORROW = f"borrow r1 {PART}"
"""The part borrows of a share whose own part is gone."""

BORROWED = (*REGISTERED, BORROW, "r2 pull", "r1 ask 9", "r1 pull")
LEAVES = (*REGISTERED, "r2", "r1 ask 9", "r1 pull")
"""Both replicas have the part, and it is about to leave the first one."""

EMPTY = (*REGISTERED, "r2", "stop r2", "empty r2", "r2 life")
"""Both replicas have the part; the second one has lost its disk, and is active again."""

DAMAGE = tuple(f"damage {what}" for what in ("orphan", "garbage", "unowned", "attempt", "gone"))
GONE = ("damage gone", "damage attempt")
"""A replica that is gone has left a mark and an attempt."""

STILL = ("r1 pull", "r1 work")
NAMES = ("r1", "r2", "r3")
PULLS, WORKS = tuple(f"{name} pull" for name in NAMES), tuple(f"{name} work" for name in NAMES)


def in_store(
    name: str, description: str, faults: dict[Fault, int], replicas: tuple[str, ...] = BOTH, **more: Any
) -> Model:
    """Return a model of a table in an object store; `more` as of `Model`.

    `replicas` pull, execute and have their upkeep; operators have their seats after them.
    """
    given: dict[str, Any] = {
        "seats": tuple((each, each) for each in (*replicas, *more.get("operators", ()))),
        "inserts": INSERT,
        "workers": replicas,
        "started": replicas,
        "stored": True,
        "upkeepers": replicas,
    }
    return Model(name, description, faults=faults, **(given | more))


def _alone(
    name: str,
    description: str,
    faults: dict[Fault, int],
    commands: tuple[Ask, ...] = DROP,
    prelude: tuple[str, ...] = (),
) -> Model:
    """Return a model in which one replica writes a part, and lets go of it."""
    probes = ("parts dropped",) if commands else ()
    return in_store(name, description, faults, ("r1",), commands=commands, prelude=prelude, probes=probes)


def _taken(
    name: str, description: str, faults: dict[Fault, int], prelude: tuple[str, ...] = TAKEN, *resting: str
) -> Model:
    """Return a model in which a replica takes a part over while it leaves its writer."""
    return in_store(name, description, faults, commands=DROP, prelude=prelude, resting=("r2 pull", *resting))


def _recovers(name: str, description: str, faults: dict[Fault, int], *more: str, had: bool = False) -> Model:
    """Return a model in which a lost replica takes over the state and the shares of another one, which drops the part."""
    before = ("r2",) if had else ()
    return in_store(
        name,
        description,
        faults,
        commands=DROP,
        prelude=(*REGISTERED, *before, "stop r2", "lose r2", "r1 ask 9", *more),
        resting=("r1 pull", "r2 pull") if more else (),
        probes=("recovered",),
    )


def _dropped(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model in which an operator drops a replica that is away, and does not come back."""
    return in_store(
        name,
        description,
        faults,
        operators=("op",),
        duties=(Duty("op", "drop", ("r2", True)),),
        resting=(*STILL, "r2 life"),
        **more,
    )


def _each(name: str, description: str, faults: dict[Fault, int], duty: str, *more: str) -> Model:
    """Return a model in which both replicas do the same once, while one takes a part over from the other."""
    return in_store(
        name,
        description,
        faults,
        prelude=(*REGISTERED, "r2 pull", *more),
        resting=(*STILL, "r2 pull"),
        duties=(Duty("r1", duty), Duty("r2", duty)),
    )


def _checked(
    name: str, description: str, faults: dict[Fault, int], *prelude: str, operators: tuple[str, ...] = ("op",)
) -> Model:
    """Return a model in which operators run fsck: of one replica, or of two, of which one lets go of a part."""
    leaves = "r1 ask 9" in prelude
    return in_store(
        name,
        description,
        faults,
        BOTH if leaves else ("r1",),
        operators=operators,
        commands=DROP if leaves else (),
        prelude=prelude,
        resting=("r1 pull", "r2 pull", "r2 work") if leaves else (),
        duties=tuple(Duty(each, "fsck") for each in operators),
    )


def _loses(name: str, description: str, faults: dict[Fault, int], *more: str) -> Model:
    """Return a model in which a replica finds its part broken, and has it again from the other one."""
    return in_store(
        name,
        description,
        faults,
        commands=DROP if "r1 ask 9" in more else (),
        prelude=(*REGISTERED, "r2", *more),
        resting=("r1 pull", "r2 pull") if "r1 ask 9" in more else STILL,
        duties=(Duty("r2", "break", (PART,)), Duty("r2", "watch"), Duty("r2", "heal", (PART,))),
    )


CHECKED: dict[str, Any] = {
    "operators": ("op",),
    "duties": (Duty("r2", "watch"), Duty("op", "fsck")),
}
"""Fsck runs while the second replica looks for its part."""


def _found(name: str, description: str, faults: dict[Fault, int], *leaves: str, **more: Any) -> Model:
    """Return a model in which a replica has lost its disk, and the other one is away, or the part leaves it (`leaves`)."""
    given: dict[str, Any] = {
        "upkeepers": BOTH if leaves else ("r2",),
        "commands": DROP if leaves else (),
        "prelude": (*EMPTY, *(leaves or ("stop r1",))),
        "resting": ("r1 pull", "r2 pull") if leaves else ("r1 life",),
        "duties": (Duty("r2", "watch"),),
        "probes": ("found in the store",),
    }
    return in_store(name, description, faults, **(given | more))


JOINING: dict[str, Any] = {"replicas": BOTH, "prelude": (*REGISTERED, "r2", "wipe")}
"""The other replica has the part, too, and joins the table again."""


def _restored(name: str, description: str, faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model in which coordination has lost the table, and it is made anew from r1's disk, whose part leaves then."""
    given: dict[str, Any] = {
        "replicas": ("r1",),
        "operators": ("op",),
        "commands": DROP,
        "duties": (Duty("op", "restore", ("r1",)),),
        "prelude": (*REGISTERED, "wipe"),
        "probes": ("restored", "parts dropped"),
    }
    return in_store(name, description, faults, **(given | more))


def _upload(name: str, description: str, faults: dict[Fault, int], *more: Duty) -> Model:
    """Return a model of a replica that makes a part of what a task puts; `more`: duties of an operator."""
    operators = ("task", *dict.fromkeys(duty.seat for duty in more))
    return in_store(
        name,
        description,
        faults,
        ("r1",),
        inserts=(Insert("r1", ((1, "a"),), uploaded=True),),
        operators=operators,
        duties=(Duty("task", "put"), *more),
        probes=("upload taken", "upload discarded"),
    )


MODELS = (
    _alone("stored_crash", "a part is written into the store and leaves again, with a crash", {Fault.CRASH: 1}),
    _alone("stored_doubt", "a part is written, while the answer to a commit is lost", {Fault.UNKNOWN: 1}, ()),
    _alone(
        "stored_left_doubt",
        "a part leaves, while the answer to a commit is lost",
        {Fault.UNKNOWN: 1},
        DROP,
        REGISTERED,
    ),
    _alone("stored_expiry", "a part is written, while the session ends", {Fault.EXPIRY: 1}, ()),
    _alone("stored_left_expiry", "a part leaves, while the session ends", {Fault.EXPIRY: 1}, DROP, REGISTERED),
    _alone("stored_store", "a part is written and leaves, while an answer of the store is lost", {Fault.STORE: 1}),
    _taken("stored_taken", "a part is taken over while it leaves its writer; a fetch may fail", {Fault.FETCH: 1}),
    _taken("stored_lag", "the same while a process reads old values", {Fault.STALE: 1}),
    _taken("stored_taken_crash", "the same with a crash", {Fault.CRASH: 1}),
    _taken("stored_taken_doubt", "the same while the answer to a commit is lost", {Fault.UNKNOWN: 1}),
    _taken("stored_taken_expiry", "the same while a session ends", {Fault.EXPIRY: 1}),
    _taken("stored_taken_store", "the same while an answer of the store is lost", {Fault.STORE: 1}),
    _recovers("stored_recover", "a lost replica recovers while the part leaves its source", {}),
    _recovers("stored_recover_lag", "the same while a process reads old values", {Fault.STALE: 1}, "r1 pull"),
    _recovers("stored_recover_crash", "the same with a crash", {Fault.CRASH: 1}, "r1 pull"),
    _recovers("stored_recover_doubt", "the same while the answer to a commit is lost", {Fault.UNKNOWN: 1}, "r1 pull"),
    _recovers("stored_recover_expiry", "the same while a session ends", {Fault.EXPIRY: 1}, "r1 pull"),
    _recovers("stored_recover_had", "the same of a replica that had the part", {}, "r1 pull", had=True),
    _loses("stored_lost_crash", "a part is broken and fetched again, with a crash", {Fault.CRASH: 1}),
    _loses("stored_lost_doubt", "the same while the answer to a commit is lost", {Fault.UNKNOWN: 1}),
    _taken("stored_borrowed", "a part that borrows is taken over while it leaves its writer", {}, BORROWED),
    _taken("stored_borrowed_crash", "the same with a crash", {Fault.CRASH: 1}, BORROWED),
    _taken("stored_borrowed_doubt", "the same while the answer to a commit is lost", {Fault.UNKNOWN: 1}, BORROWED),
    _taken("stored_borrowed_expiry", "the same while a session ends", {Fault.EXPIRY: 1}, BORROWED),
    in_store(
        "stored_three",
        "three replicas let go of a part at once",
        {},
        NAMES,
        commands=DROP,
        prelude=(*REGISTERED, "r2", "r3", "r1 ask 9", *PULLS, *WORKS),
        resting=(*PULLS, *WORKS),
    ),
    in_store(
        "stored_twice",
        "a process dies while it puts a part into the store, and the next one writes another part",
        {Fault.CRASH: 1},
        inserts=(*INSERT, Insert("r1", ((2, "b"),))),
        prelude=("put r1 ins 1",),
        resting=("r2",),
        struck=((Fault.CRASH, "r1"),),
    ),
    in_store(
        "stored_borrowing_doubt",
        "a part that borrows of another one is written, while the answer to a commit is lost",
        {Fault.UNKNOWN: 1},
        inserts=(*INSERT, Insert("r1", ((2, "b"),))),
        prelude=(*REGISTERED, "put r1 ins 2", f"lend r1 {PART}"),
        resting=("r2",),
    ),
    _loses(
        "stored_lost_moved",
        "a part is broken; the other replica sends it with other shares than it had, one of them borrowed",
        {},
        BORROW,
    ),
    _loses("stored_lost_left", "the same while it leaves the other replica", {}, BORROW, "r1 ask 9", "r1 pull"),
    _dropped(
        "stored_drop_crash",
        "an operator drops a replica that is away, with its shares, and is cut off",
        {Fault.CRASH: 1},
        prelude=(*REGISTERED, "r2", "stop r2"),
    ),
    _dropped(
        "stored_drop_attempt",
        "the same of a replica that died while it wrote a part",
        {Fault.CRASH: 1},
        inserts=(Insert("r2", ((1, "a"),)),),
        prelude=("put r2 ins 1", "stop r2"),
    ),
    _each("stored_leave", "the table is dropped: both replicas release their shares and leave", {}, "leave"),
    _each(
        "stored_open",
        "two active replicas agree on the object store of their table, while the answer to a commit is lost",
        {Fault.UNKNOWN: 1},
        "open",
        "close",
    ),
    _checked("stored_fsck_write", "fsck beside a write", {}),
    _checked("stored_fsck_crash", "fsck and a write, one of which dies", {Fault.CRASH: 1}, "put r1 ins 1"),
    _checked("stored_fsck_doubt", "the same while the answer to a commit is lost", {Fault.UNKNOWN: 1}, "r1 ins 1"),
    _checked("stored_fsck_store", "the same while an answer of the store is lost", {Fault.STORE: 1}, "put r1 ins 1"),
    _checked(
        "stored_fsck_stale", "the same with old values, which a sync may not mend", {Fault.STALE: 1, Fault.DEPOSED: 2}
    ),
    _checked("stored_fsck_leave", "fsck while a part leaves one of its two owners", {}, *LEAVES),
    _checked("stored_fsck_silent", "the same while replicas do not answer", {Fault.SILENT: 2}, *LEAVES),
    _checked("stored_fsck_mark", "the same with a mark of an earlier replica of a name", {}, *LEAVES, "damage r1"),
    _checked("stored_fsck_borrowed", "the same of a part that borrows", {}, *REGISTERED, BORROW, *LEAVES[2:]),
    _checked("stored_fsck_damage", "fsck ends all damage that there can be", {}, *REGISTERED, *DAMAGE),
    _checked(
        "stored_fsck_cut", "fsck is cut off, or not answered", {Fault.CRASH: 1, Fault.UNKNOWN: 1}, *REGISTERED, *GONE
    ),
    _checked("stored_fsck_two", "two fscks at once", {}, *REGISTERED, *GONE, operators=("op", "ap")),
    in_store(
        "stored_fsck_again",
        "fsck, and a replica that has lost its disk before it let go of its share, and recovers the part from another one",
        {},
        operators=("op",),
        commands=DROP,
        prelude=(*REGISTERED, "r2", "r1 ask 9", "r2 pull", "r2 work", "stop r2", "empty r2", "lose r2"),
        resting=(*STILL, "r2 pull", "r2 work"),
        duties=(Duty("op", "fsck"),),
        probes=("recovered",),
    ),
    _found(
        "stored_found_leave",
        "a replica has lost its disk and finds its part again, while the part leaves the other one, and fsck runs",
        {},
        "r1 ask 9",
        "r1 pull",
        **CHECKED,
    ),
    # No part leaves here, which would be more than 500,000 states: `stored_found_replaced` has that.
    _found(
        "stored_found_second",
        "its session ends meanwhile, and a second process takes the replica and looks for the part as well",
        {Fault.EXPIRY: 1},
        seats=(*TWO, ("x2", "r2")),
        upkeepers=("r2", "x2"),
        duties=(Duty("r2", "watch"), Duty("x2", "watch")),
        struck=((Fault.EXPIRY, "r2"),),
    ),
    _found(
        "stored_found_replaced",
        "its session ends meanwhile, and a second process takes the replica and lets go of the part",
        {Fault.EXPIRY: 1},
        seats=(*TWO, ("x2", "r2")),
        workers=(*BOTH, "x2"),
        upkeepers=("x2",),
        commands=DROP,
        prelude=(*EMPTY, "r1 ask 9", "r2 pull", "stop r1"),
        resting=("r1 life", "r2 pull", "r2 work", "x2 pull"),
        struck=((Fault.EXPIRY, "r2"),),
    ),
    _found(
        "stored_found_crash",
        "it finds its part again, and the part leaves both replicas, with a crash",
        {Fault.CRASH: 1},
        "r1 ask 9",
        "r1 pull",
        "r1 work",
        "r2 pull",
        struck=((Fault.CRASH, "r2"),),
    ),
    _found(
        "stored_found_doubt",
        "it finds its part again, while the answer to a commit is lost, and fsck runs",
        {Fault.UNKNOWN: 1},
        **CHECKED,
    ),
    _found(
        "stored_found_store",
        "it finds its part again, while the store gives no answer up to twice, and the other replica lets go of the part",
        {Fault.STORE: 2},
        "r1 ask 9",
        "r1 pull",
        "r1 work",
    ),
    _found(
        "stored_found_old",
        "there is a share with a mark of an earlier replica of this name, too, which fsck lets go of",
        {},
        **(CHECKED | {"prelude": (*EMPTY, "stop r1", "damage earlier")}),
    ),
    _restored(
        "stored_restore",
        "coordination has lost the table, and it is made anew from r1's disk; the other replica joins, and the part leaves",
        {},
        **JOINING,
        probes=("restored", "recovered", "parts dropped"),
    ),
    _restored(
        "stored_restore_joined_crash",
        "the same where a process dies anywhere, the restore among them, and both replicas keep the part",
        {Fault.CRASH: 1},
        **JOINING,
        commands=(),
        probes=("restored", "recovered", "crash"),
    ),
    _restored(
        "stored_restore_crash",
        "on one disk the restore, or the replica, dies anywhere, and goes on; what it had on its way comes late",
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("restored", "earlier run fenced", "parts dropped", "late request applied"),
    ),
    _restored(
        "stored_borrowed_restore",
        "the part that is restored borrows, with a crash",
        {Fault.CRASH: 1},
        prelude=(*REGISTERED, BORROW, "wipe"),
    ),
    _upload(
        "upload",
        "a task puts objects while, before, or after the replica makes a part of them, beside fsck",
        {},
        Duty("op", "fsck"),
    ),
    _upload("upload_crash", "the replica or the task dies at any step, and the next process goes on", {Fault.CRASH: 2}),
    _upload(
        "upload_doubt",
        "the answer to a commit of the replica is lost, which takes place, or comes late, or never",
        {Fault.UNKNOWN: 1},
    ),
    _upload(
        "upload_store",
        "what the task puts comes in part, or when everything is over; fsck afterwards",
        {Fault.STORE: 1},
        Duty("op", "fsck afterwards"),
    ),
)
