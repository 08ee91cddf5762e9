"""Inserts: alone, where no replica pulls and every moment meets every fault; and pulled, where each becomes a part everywhere.

`MODELS` has the former, `PULLED` the latter.
"""

from __future__ import annotations

from typing import Any

from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model

ONE = (("r1", "r1"),)
TWO = (("r1", "r1"), ("r2", "r2"))


def one(name: str, description: str, inserts: tuple[Insert, ...], faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model of one replica that pulls and executes; `more` as of `Model`."""
    asked: dict[str, Any] = {"workers": ("r1",), "started": ("r1",), **more}
    return Model(name, description, ONE, inserts, faults, **asked)


def two(name: str, description: str, inserts: tuple[Insert, ...], faults: dict[Fault, int], **more: Any) -> Model:
    """Return a model of two replicas that pull and execute, and of the seats of operators; `more` as of `Model`."""
    asked: dict[str, Any] = {"workers": ("r1", "r2"), "started": ("r1", "r2"), **more}
    seats = (*TWO, *((name, name) for name in more.get("operators", ())))
    return Model(name, description, seats, inserts, faults, **asked)


DOUBT = (
    "unknown: applied, answer lost",
    "unknown: no answer",
    "late request applied",
    "doubt settled: in the log",
    "doubt settled: committed again",
    "insert fenced",
)
"""What a model with unknown answers has to see."""

MODELS = (
    Model(
        "insert_one_token",
        "two replicas take one insert with the same token each (a client that tried again elsewhere)",
        TWO,
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "a"),))),
        {Fault.UNKNOWN: 2, Fault.CRASH: 1, Fault.STALE: 1},
        started=("r1", "r2"),
        probes=(
            *DOUBT[:5],
            "duplicate",
            "doubt settled: another had the token",
            "crash",
            "stale read",
            "committed staging kept",
            "dead owner replaced",
        ),
    ),
    Model(
        "insert_two_tokens",
        "two replicas take one insert each, with different tokens",
        TWO,
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "b"),))),
        {Fault.UNKNOWN: 2, Fault.CRASH: 1},
        started=("r1", "r2"),
        probes=(*DOUBT[:5], "crash", "committed staging kept", "staging removed"),
    ),
    Model(
        "insert_two_lanes",
        "one replica takes the same token in both of its lanes (rows and uploads) at once",
        ONE,
        (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "a"),))),
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        started=("r1",),
        probes=(*DOUBT, "duplicate"),
    ),
    Model(
        "insert_groups",
        "two replicas take a group of two requests each; one token is in both groups",
        TWO,
        (Insert("r1", ((1, "a"), (2, "b"))), Insert("r2", ((3, "b"), (4, "c")))),
        {Fault.UNKNOWN: 2, Fault.CRASH: 1},
        started=("r1", "r2"),
        probes=(*DOUBT[:5], "duplicate within a group", "doubt settled: another had the token"),
    ),
    Model(
        "insert_split",
        "a group of two requests can't be staged, and each is inserted alone; one token is in a group of another replica",
        TWO,
        (Insert("r1", ((1, "a"), (2, "b"))), Insert("r2", ((3, "b"),))),
        {Fault.DISK: 2, Fault.UNKNOWN: 1},
        started=("r1", "r2"),
        probes=("group split", "duplicate", "doubt settled: in the log", "doubt settled: committed again"),
    ),
    Model(
        "insert_session",
        "the session ends under an insert, and its replica activates again while the insert goes on",
        ONE,
        (Insert("r1", ((1, "a"),)),),
        {Fault.UNKNOWN: 1, Fault.EXPIRY: 1, Fault.CLOSED: 1},
        started=("r1",),
        probes=(*DOUBT, "activated again", "insert closed", "activation refused", "staging removed"),
    ),
    Model(
        "insert_in_doubt",
        "no answer comes to an insert, nor to any attempt to settle it",
        ONE,
        (Insert("r1", ((1, "a"),)),),
        # One for the commit, the others for every attempt to settle the doubt: then the insert stays in doubt.
        {Fault.UNKNOWN: 5},
        started=("r1",),
        probes=(*DOUBT[:5], "insert in doubt", "activation refused"),
    ),
    Model(
        "insert_in_doubt_again",
        "no answer comes to an insert, nor to any attempt to settle it; the client tries again elsewhere with the same token",
        TWO,
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "a"),))),
        {Fault.UNKNOWN: 5},
        started=("r1", "r2"),
        probes=(*DOUBT[:5], "insert in doubt", "duplicate", "doubt settled: another had the token"),
    ),
)

INSERT = (Insert("r1", ((1, "a"),)),)

PULLED = (
    two(
        "pull_and_execute",
        "one insert is pulled and executed by its writer (own staging) and by another replica (fetch)",
        INSERT,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        probes=(
            "own part published by execute",
            "fetched",
            "fetch failed",
            "pointer moved",
            "queue moved",
            "state loaded again",
            "pull fenced",
            "execution fenced",
            "late request applied",
            "crash",
            "committed staging kept",
        ),
    ),
    two(
        "pull_gap",
        "two inserts of one replica are pulled by another, whose view moves on between its reads: a gap that is none",
        (Insert("r2", ((1, "a"),)), Insert("r2", ((2, "b"),))),
        {Fault.STALE: 1},
        workers=("r1",),
        pull_count=2,
        probes=("stale read", "torn read", "gap looked at again", "fetched"),
    ),
    two(
        "pull_batch",
        "each replica inserts and pulls two entries at once",
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "b"),))),
        {},
        pull_count=2,
        probes=("own part published by execute", "fetched"),
    ),
    two(
        "fetch_partitions",
        "an insert of two partitions is published and fetched; processes die in the middle, fetches fail",
        INSERT,
        {Fault.CRASH: 1, Fault.FETCH: 1},
        partitions=("p", "q"),
        probes=("own part published by execute", "fetched", "fetch failed", "crash", "committed staging kept"),
    ),
    two(
        "disk_fails",
        "disks refuse to stage and to publish",
        INSERT,
        {Fault.DISK: 2, Fault.CRASH: 1},
        probes=("disk failed", "own part published by execute", "crash", "staging removed"),
    ),
)
