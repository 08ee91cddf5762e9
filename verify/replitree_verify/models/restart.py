"""Start: a process dies anywhere, its sessions end, and the next process (or the same one) takes up what is there.

In the models `replaced_…` a second process of the replica takes over while the first one is paused, with requests in flight.
"""

from __future__ import annotations

from replitree_verify.models.insert import INSERT, one, two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model

RIVALS = (("r1", "r1"), ("x1", "r1"))
"""Two processes of one replica on one disk; a running replica keeps the second one out by a lock on its data folder."""

TAKEN = (
    "replica was busy", "replaced process stopped", "insert fenced", "insert of a replaced process failed",
    "activated again", "committed staging kept",
)  # fmt: skip

MODELS = (
    one(
        "restart_anywhere",
        "a process dies anywhere, also while it starts, with a request in flight",
        INSERT,
        {Fault.CRASH: 2, Fault.UNKNOWN: 1},
        probes=("crash", "dead owner replaced", "committed staging kept", "staging removed", "late request applied"),
    ),
    one(
        "session_ends",
        "the session of a replica that inserts, pulls and executes ends at any moment",
        INSERT,
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        probes=(
            "activated again",
            "insert fenced",
            "pull fenced",
            "execution fenced",
            "state loaded again",
            "late request applied",
            "doubt settled: committed again",
        ),
    ),
    one(
        "reads_fail",
        "reads can't be had: procedures are closed, and the replica activates again",
        INSERT,
        {Fault.CLOSED: 1, Fault.EXPIRY: 1, Fault.CRASH: 1},
        probes=("insert closed", "activated again", "pull fenced", "crash"),
    ),
    two(
        "session_ends_two",
        "the session of one of two replicas ends; the other fetches from it",
        INSERT,
        {Fault.EXPIRY: 1},
        probes=("activated again", "fetched", "insert fenced"),
    ),
    # `STOP` has its mutant here: a process that takes the end of its session for a replacement.
    one(
        "session_ends_pulling",
        "the session of a replica ends while it pulls, and it pulls further before the first pull is taken in",
        (*INSERT, Insert("r1", ((2, "b"),))),
        {Fault.EXPIRY: 1},
        prelude=("r1 ins 1", "r1 ins 2"),
        probes=("activated again", "pull fenced", "execution fenced"),
    ),
    Model(
        "replaced_insert",
        "an insert of a replaced process, with a request in flight",
        RIVALS,
        INSERT,
        {Fault.EXPIRY: 1, Fault.UNKNOWN: 1},
        started=("r1",),
        probes=(*TAKEN, "late request applied", "unknown: no answer"),
    ),
    Model(
        "replaced_worker",
        "a replaced process that pulls and executes, while the new one inserts",
        RIVALS,
        (Insert("r1", ((1, "a"),)), Insert("x1", ((2, "b"),))),
        {Fault.EXPIRY: 1},
        workers=("r1", "x1"),
        started=("r1",),
        probes=(*TAKEN[:5], "pull fenced", "execution fenced"),
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
