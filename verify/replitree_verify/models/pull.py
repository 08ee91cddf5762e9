"""Pull and execute: an insert becomes a part of every replica."""

from __future__ import annotations

from replitree_verify.models.insert import TWO
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model

INSERT = (Insert("r1", ((1, "a"),)),)

MODELS = (
    Model(
        "pull_and_execute",
        "one insert is pulled and executed by its writer (own staging) and by another replica (fetch)",
        TWO,
        INSERT,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        workers=("r1", "r2"),
        started=("r1", "r2"),
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
    Model(
        "pull_gap",
        "two inserts of one replica are pulled by another, whose view moves on between its reads: a gap that is none",
        TWO,
        (Insert("r2", ((1, "a"),)), Insert("r2", ((2, "b"),))),
        {Fault.STALE: 1},
        workers=("r1",),
        started=("r1", "r2"),
        pull_count=2,
        probes=("stale read", "torn read", "gap looked at again", "fetched"),
    ),
    Model(
        "pull_batch",
        "each replica inserts and pulls two entries at once",
        TWO,
        (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "b"),))),
        {},
        workers=("r1", "r2"),
        started=("r1", "r2"),
        pull_count=2,
        probes=("own part published by execute", "fetched"),
    ),
    Model(
        "fetch_partitions",
        "an insert of two partitions is published and fetched; processes die in the middle, fetches fail",
        TWO,
        INSERT,
        {Fault.CRASH: 1, Fault.FETCH: 1},
        workers=("r1", "r2"),
        started=("r1", "r2"),
        partitions=("p", "q"),
        probes=("own part published by execute", "fetched", "fetch failed", "crash", "committed staging kept"),
    ),
    Model(
        "disk_fails",
        "disks refuse to stage and to publish",
        TWO,
        INSERT,
        {Fault.DISK: 2, Fault.CRASH: 1},
        workers=("r1", "r2"),
        started=("r1", "r2"),
        probes=("disk failed", "own part published by execute", "crash", "staging removed"),
    ),
)
