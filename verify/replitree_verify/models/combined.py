"""Everything at once, as large as the budget allows.

The models `together…` have three replicas, an insert with a quorum of two, another insert, a merge of both, a linearizable
and a sequential read, and one fault each.  In `together_merge_faults` everything is in one model: the merge, a crash, an end of
a session and a lagging view at one replica, the one that executes and reads, whose client reads sequentially and then
linearizably.  No process gives the open insert up there; `together_faults` has that, with all three faults and without the
merge, and in `together_crash_lag`, without the end of the session.

In all of these the replica that reads settles by itself what clients hear of meanwhile, so that it can't be behind that.  In
`together_fresh` the other insert comes, and is acknowledged, while the rest goes on: with the merge, both reads, a crash and a
lagging view; again no process gives up.
"""

from __future__ import annotations

from typing import Any

from replitree_verify.models.clean import THREE
from replitree_verify.models.insert import two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Insert, Model, Proposal, Read

SAME = (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "a"),)))
OTHER = (Insert("r1", ((1, "a"),)), Insert("r2", ((2, "b"),)))
BOTH = ("r1", "r2")
PLAIN, QUORUM = Insert("r1", ((3, "b"),)), Insert("r1", ((1, "a"),), quorum=2)
STRICT, SEQUENTIAL = Read("r2", 12, "linearizable"), Read("r2", 11, "sequential", (3,))
STRICT_AFTER = Read("r2", 12, "linearizable", (11,))
MERGE = (Proposal("r1", ("all_0_0_0", "all_1_1_0")),)
READ = ("linearizable read", "sequential read")
ENDS = ("quorum reached", "quorum given up")
ALL_AT_R2 = ((Fault.CRASH, "r2"), (Fault.EXPIRY, "r2"), (Fault.STALE, "r2"))


def _together(name: str, what: str, faults: dict[Fault, int], *probes: str, **more: Any) -> Model:
    """Return a model of three replicas in which r1 has taken both inserts, and r2 has still to execute the open one."""
    # r2 has executed insert 3, and settles the open one by itself: it can not be behind what clients hear of meanwhile.
    taken = ("r1 ins 3", *BOTH, "open r1 ins 1", "r1", "r2 pull")
    reads = (SEQUENTIAL, STRICT)
    asked: dict[str, Any] = {"merges": MERGE, "reads": reads, "resting": ("r1",), "prelude": taken, **more}
    # With its client at rest no process gives the open insert up, so it only ever ends settled.
    ends = ENDS if "r1 ins 1" not in asked["resting"] else ENDS[:1]
    return Model(
        name,
        f"an insert that needs two of three replicas, another one, {what}",
        THREE,
        (PLAIN, QUORUM),
        faults,
        workers=BOTH,
        started=("r1", "r2", "r3"),
        probes=(*ends, *probes),
        ample=True,
        **asked,
    )


MODELS = (
    two(
        "combined",
        "two replicas insert with one token, pull and execute; a crash anywhere",
        SAME,
        {Fault.CRASH: 1},
        probes=("crash", "duplicate", "fetched", "own part published by execute", "committed staging kept"),
    ),
    two(
        "combined_tokens",
        "two replicas insert with different tokens, pull and execute; a crash anywhere",
        OTHER,
        {Fault.CRASH: 1},
    ),
    two(
        "combined_doubt",
        "two replicas insert with one token, pull and execute; an answer is lost",
        SAME,
        {Fault.UNKNOWN: 1},
    ),
    _together("together", "a merge, a linearizable and a sequential read", {}, *READ, "merged", "read expired"),
    _together(
        "together_lag",
        "a linearizable and a sequential read, and a view that lags",
        {Fault.STALE: 1},
        *(*READ, "stale read"),
        merges=(),
    ),
    _together(
        "together_merge_lag",
        "a merge, and a view that lags",
        {Fault.STALE: 1},
        *("merged", "stale read"),
        reads=(),
    ),
    _together(
        "together_crash",
        "a linearizable read, and a crash",
        {Fault.CRASH: 1},
        *("linearizable read", "crash"),
        merges=(),
        reads=(STRICT,),
    ),
    _together(
        "together_client_lag",
        "a merge, a sequential and then a linearizable read; the view of the replica that reads lags",
        {Fault.STALE: 1},
        *(*READ, "merged", "stale read"),
        reads=(SEQUENTIAL, STRICT_AFTER),
        struck=((Fault.STALE, "r2"),),
    ),
    _together(
        "together_client_crash",
        "a merge, a sequential and then a linearizable read; the replica that reads dies",
        {Fault.CRASH: 1},
        *(*READ, "merged", "crash"),
        reads=(SEQUENTIAL, STRICT_AFTER),
        struck=((Fault.CRASH, "r2"),),
    ),
    _together(
        "together_crash_lag",
        "a merge, a sequential and then a linearizable read; the replica that reads dies, and its view lags",
        {Fault.CRASH: 1, Fault.STALE: 1},
        *(*READ, "merged", "crash", "stale read"),
        reads=(SEQUENTIAL, STRICT_AFTER),
        struck=((Fault.CRASH, "r2"), (Fault.STALE, "r2")),
    ),
    _together(
        "together_faults",
        "a sequential and then a linearizable read; the replica that reads dies, its session ends, and its view lags",
        {Fault.CRASH: 1, Fault.EXPIRY: 1, Fault.STALE: 1},
        *(*READ, "crash", "stale read", "session changed under a read"),
        merges=(),
        reads=(SEQUENTIAL, STRICT_AFTER),
        struck=ALL_AT_R2,
    ),
    _together(
        "together_merge_faults",
        "a merge, a sequential and then a linearizable read; no client awaits the insert; all faults at the replica that reads",
        {Fault.CRASH: 1, Fault.EXPIRY: 1, Fault.STALE: 1},
        *(*READ, "merged", "crash", "stale read", "session changed under a read"),
        reads=(SEQUENTIAL, STRICT_AFTER),
        # Without the client that gives up: with it, all faults and the merge are more states than the budget allows.
        resting=("r1", "r1 ins 1"),
        struck=ALL_AT_R2,
    ),
    _together(
        "together_fresh",
        "acknowledged meanwhile, a merge, a sequential and then a linearizable read; who reads dies, and its view lags",
        {Fault.CRASH: 1, Fault.STALE: 1},
        *(*READ, "merged", "crash", "stale read"),
        merges=(Proposal("r2", ("all_0_0_0", "all_1_1_0")),),
        # Insert 3 is no part of it: it comes, and is acknowledged, while the rest goes on.
        prelude=("open r1 ins 1", "r1", "r2 pull"),
        reads=(Read("r2", 11, "sequential"), STRICT_AFTER),
        resting=("r1", "r1 ins 1"),
        struck=((Fault.CRASH, "r2"), (Fault.STALE, "r2")),
    ),
)
