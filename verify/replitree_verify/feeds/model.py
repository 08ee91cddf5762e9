"""What is explored of the change feed: what the log gets, what replicas do with it, and what goes wrong.

One table with one partition.  Its log is given: clients append entries, each at any moment.  Replicas pull and execute, delete
old parts, and fetch those that only the feed needs.  In every state a reader asks every replica for every range of the feed.

Left out, because other models have it: how an entry gets into the log, who commits a pull, the race of a consumer with the
deletion of old parts (`models/read.py`), and what becomes of a mutation that is killed (`models/mutate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "F1": "what a reader gets for an entry is the difference of what reads show before and after it",
    "F2": "what a reader gets for an entry is the same at every replica and at any time, its timestamp too; these ascend",
    "F3": "the rows of an insert come at one entry, not while it is open, and not if it failed",
    "F4": "entries that change no visible row give nothing",
    "F5": "what a replica can't give whole is an error: every part that it names is on its disk, and no entry is left out",
    "F7": "what a consumer has not read can be read at the replica that made it, until its hold is over",
    "FROM": "the index from which a replica says that its feed begins is the lowest from which it gives everything",
    "FAILED": "what a pull adds to the journal in memory is what the disk says",
    "PACKED": "what the time of the feed keeps is given, whatever was packed, and a reader's lease keeps folders of its parts",
    "COMPLETE": "at the end a replica that knows the entries gives what any other one gives",
}


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A table with a feed to explore.

    Attributes
    ----------
    clients
        What each client appends, one after the other.  `insert a`: rows of the letter a; `open a`, `settle a`, `fail a`: the
        same with a quorum; `update`, `delete`: a mutation of all rows; `merge`: of the first two neighbours; `drop`; `rewrite`:
        of the first part, which loses a row and gets another; `lost a`: the part of an insert is declared lost.
    seats
        The replicas that are there from the beginning; r1 writes.
    joins
        Replicas that join later, as clones of another one.
    recovers
        Replicas that are given up and take over the state of another one.
    counts
        How often at most something happens at any moment.  `kill`: the mutation is killed; `clean`: the log is cleaned, also of
        what a replica has not pulled; `pass`: the time of the feed passes for everything that was written; `switch`: the feed
        is turned off or on; `back`: coordination's clock goes back; `advance`, `expire`, `release`: a consumer moves, its hold
        is over, it is dropped.
    consumer
        The replica that makes a consumer, at any index that can be read there.
    packs
        Whether replicas pack old parts, with a reader that has a lease; `Fault.CRASH` ends a process in the middle of that,
        or of deletions, with or without its machine.
    """

    clients: tuple[tuple[str, ...], ...]
    seats: tuple[str, ...] = ("r1", "r2")
    joins: tuple[str, ...] = ()
    recovers: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    consumer: str = ""
    packs: bool = False


MODELS = (
    Model(
        "feed_merged",
        "inserts are merged: a replica that comes late finds the merged part only, and the time of the feed passes",
        (("insert a", "insert b"), ("merge",)),
        counts={"pass": 1},
        probes=("fetched for the feed", "fetched merged", "old parts deleted", "entries forgotten"),
    ),
    Model(
        "feed_killed",
        "a mutation is killed while replicas execute it",
        (("insert a",), ("insert b",), ("update",)),
        counts={"kill": 1},
        probes=("killed", "update"),
    ),
    Model(
        "feed_deleted",
        "rows are deleted and changed in parts that are merged",
        (("insert a", "insert b", "delete"), ("merge",)),
        probes=("merged", "delete"),
    ),
    Model(
        "feed_open",
        "an insert is open, changes, and settles, while another one comes",
        (("open a", "settle a"), ("update",), ("insert b",)),
        probes=("settle", "update", "inserted"),
    ),
    Model(
        "feed_open_dropped",
        "an open insert is dropped before it settles",
        (("open a", "settle a"), ("drop",), ("insert b",)),
        probes=("settle", "removed", "drop"),
    ),
    Model(
        "feed_failed",
        "an open insert changes, and fails",
        (("open a", "fail a"), ("update",), ("insert b", "merge")),
        probes=("fail", "update", "removed"),
    ),
    Model(
        "feed_clone",
        "a replica joins as a clone of another one, while an insert is open and the log is cleaned",
        (("open a", "settle a"), ("insert b", "update")),
        seats=("r1",),
        joins=("r2",),
        counts={"clean": 1},
        probes=("joins from", "clean", "fetched for the feed"),
    ),
    Model(
        "feed_hole",
        "a replica recovers after the log was cleaned of entries that it had not pulled: its feed has a hole",
        (("insert a", "insert b"),),
        recovers=("r2",),
        counts={"recover": 1, "clean": 1},
        faults={Fault.CRASH: 1},
        probes=("recovers from", "clean", "died after a pull", "caught up", "set back"),
    ),
    Model(
        "feed_torn",
        "the end of a version log is lost with its machine, and the log is cleaned",
        (("open a", "insert b", "settle a"),),
        counts={"clean": 1},
        faults={Fault.ROT: 1},
        probes=("version log torn", "caught up", "clean"),
    ),
    Model(
        "feed_consumed",
        "a consumer reads a feed whose time passes; it moves, and its hold ends",
        (("insert a", "insert b", "update"), ("merge",)),
        seats=("r1",),
        consumer="r1",
        counts={"pass": 1, "advance": 1, "expire": 1},
        probes=("old parts deleted", "entries forgotten", "advance", "expire"),
    ),
    Model(
        "feed_consumed_torn",
        "a consumer is made at a replica that has lost the end of its version log, after the time of the feed has passed",
        (("insert a", "insert b", "drop"),),
        seats=("r1",),
        consumer="r1",
        counts={"pass": 1},
        faults={Fault.ROT: 1},
        probes=("version log torn", "consumed", "old parts deleted"),
    ),
    Model(
        "feed_switched",
        "the feed is turned off and on again, while a consumer may hold it",
        (("insert a", "insert b"), ("delete",)),
        seats=("r1",),
        consumer="r1",
        counts={"switch": 2},
        probes=("old parts deleted", "switch"),
    ),
    Model(
        "feed_rewritten",
        "a rewrite replaces a part, and is merged with an insert",
        (("insert a", "rewrite"), ("insert b",), ("merge",)),
        probes=("rewritten", "merge"),
    ),
    Model(
        "feed_lost",
        "a part is declared lost, which was merged or changed since",
        (("insert a", "insert b", "lost a"), ("merge",), ("update",)),
        probes=("lost", "merged", "update", "gap"),
    ),
    Model(
        "feed_lost_open",
        "a part is declared lost, which changed while its insert was open",
        (("open a", "settle a", "lost a"), ("update",)),
        probes=("lost", "settle", "update", "gap"),
    ),
    Model(
        "feed_clock",
        "coordination's clock goes back, and replicas pull in other batches than each other",
        (("insert a", "insert b", "insert c"),),
        counts={"back": 1},
        probes=("back", "fetched"),
    ),
    Model(
        "feed_packed",
        "old parts are packed while a reader has a lease, the time of the feed passes, and processes and machines end",
        (("insert a", "insert b", "merge"),),
        seats=("r1",),
        consumer="r1",
        counts={"pass": 1},
        faults={Fault.CRASH: 1},
        packs=True,
        probes=("packed", "killed while it packs", "killed while it deletes", "a reader has packed parts", "consumed"),
    ),
)
