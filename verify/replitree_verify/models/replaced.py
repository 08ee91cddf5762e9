"""A second process of one replica takes over while the first is paused, with requests in flight.

Both have the same disk, which is stricter than the running replica: there a lock on the data folder keeps the second one out.
"""

from __future__ import annotations

from replitree_verify.models.pull import INSERT
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model

RIVALS = (("r1", "r1"), ("x1", "r1"))

PROBES = (
    "replica was busy", "replaced process stopped", "insert fenced", "insert of a replaced process failed",
    "activated again", "committed staging kept",
)  # fmt: skip

MODELS = (
    Model(
        "replaced_insert",
        "an insert of a replaced process, with a request in flight",
        RIVALS,
        INSERT,
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        started=("r1",),
        probes=(*PROBES, "late request applied", "unknown: no answer"),
    ),
    Model(
        "replaced_worker",
        "a replaced process that pulls and executes, while the new one inserts",
        RIVALS,
        (Insert("r1", ((1, "a"),)), Insert("x1", ((2, "b"),))),
        {Fault.EXPIRY: 1},
        workers=("r1", "x1"),
        started=("r1",),
        probes=(*PROBES[:5], "pull fenced", "execution fenced"),
    ),
    Model(
        "replaced_after_crash",
        "the dead process's replica is taken by its successor and by a rival at once",
        RIVALS,
        INSERT,
        {Fault.CRASH: 1, Fault.UNKNOWN: 1},
        started=("r1",),
        probes=("crash", "dead owner replaced", "activation refused"),
    ),
)
