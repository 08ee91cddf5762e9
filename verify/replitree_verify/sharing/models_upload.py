"""The scenarios of uploads: a replica has an attempt, a task puts the objects whenever it likes, and fsck is about."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree_verify.sharing.clients import commit, put, upload
from replitree_verify.sharing.operators import check, check_afterwards
from replitree_verify.sharing.process import new_share
from replitree_verify.sharing.world import FSCK, TABLE, Model, Task
from replitree_verify.world.faults import Fault

_PART = ("r1", "a")
_OLD = new_share("a", "r1", 0)
_UPLOAD: tuple[Task, ...] = ((upload, _PART),)
_PUT: tuple[Task, ...] = ((put, ("r1",)),)
_AFTERWARDS: tuple[Task, ...] = ((check_afterwards, ()),)

UPLOAD_MODELS = (
    Model(
        "upload",
        "a task puts objects while, before, or after the replica makes a part of them, beside fsck",
        {"r1": _UPLOAD, "task": _PUT, FSCK: ((check, ()),)},
        {},
        ("r1",),
    ),
    Model(
        "upload_crash",
        "the replica or the task crashes at any step, and is started again; fsck afterwards",
        {"r1": _UPLOAD, "task": _PUT, FSCK: _AFTERWARDS},
        {Fault.CRASH: 1},
        ("r1",),
    ),
    Model(
        "upload_doubt",
        "the answer to a commit of the replica is lost, which takes place, or comes late, or never; fsck afterwards",
        {"r1": _UPLOAD, "task": _PUT, FSCK: _AFTERWARDS},
        {Fault.UNKNOWN: 1},
        ("r1",),
    ),
    Model(
        "upload_store",
        "what the task puts comes in part, or when everything is over; fsck afterwards",
        {"r1": _UPLOAD, "task": _PUT, FSCK: _AFTERWARDS},
        {Fault.STORE: 1},
        ("r1",),
    ),
    Model(
        "upload_old",
        "an upload that is older than the grace, and goes on beside fsck",
        {"r1": ((commit, (*_PART, _OLD)),), "task": _PUT, FSCK: ((check, ()),)},
        {},
        ("r1",),
        nodes={layout.writing(TABLE, _OLD): b"r1~i1"},
        disks=frozenset({("r1", "", _OLD)}),
    ),
)


__all__ = ["UPLOAD_MODELS"]
