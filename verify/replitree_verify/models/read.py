"""Reads at every level: views that lag, answers that are lost, entries executed in any order, clients that change replicas.

And tags: a version gets a name while its parts leave the table and old parts are deleted.  And consumers of the change feed,
which are made, moved, expired and dropped meanwhile.
"""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import INSERT, TWO, one, two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Model, Proposal, Read

BOTH = ("r1", "r2")
TWO_INSERTS = (*INSERT, Insert("r1", ((2, "b"),)))

MODELS = (
    two(
        "read_linearizable",
        "a linearizable read at a replica whose view of coordination lags, while another replica inserts",
        INSERT,
        {Fault.STALE: 1, Fault.UNKNOWN: 1},
        workers=("r2",),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "stale read", "unknown: applied, answer lost", "late request applied"),
    ),
    two(
        "read_crash",
        "a linearizable read while the replica that reads dies, or the one that it fetches from, and while a fetch fails",
        INSERT,
        {Fault.CRASH: 1, Fault.FETCH: 1},
        prelude=("r1 ins 1", "r1"),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "crash", "fetch failed"),
    ),
    two(
        "read_deposed",
        "the same at a server of a leader that was deposed, which answers a sync by itself",
        INSERT,
        # The deposed leader answers the sync, so the view stays behind although the process has synced.
        {Fault.STALE: 1, Fault.DEPOSED: 1},
        workers=("r2",),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "stale read"),
    ),
    Model(
        "read_session",
        "the session ends under a linearizable read, and the next one begins at a server that lags",
        (*TWO, ("r3", "r3")),
        INSERT,
        {Fault.EXPIRY: 1, Fault.STALE: 1},
        started=("r1", "r2", "r3"),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "session changed under a read", "stale read"),
    ),
    two(
        "read_roll",
        "the log has gone on below a fresh parent, and a replica that has not pulled that reads",
        TWO_INSERTS,
        {Fault.STALE: 1},
        prelude=("r1 ins 1", *BOTH, "r1 roll1", "r1 pull"),
        resting=("r1",),
        duties=(Duty("r1", "roll", (1,)),),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "stale read"),
    ),
    two(
        "read_sequential",
        "a client inserts at one replica, reads there, then reads at the other one, which executes entries in any order",
        TWO_INSERTS,
        {Fault.FETCH: 1},
        prelude=("r1 ins 1", "r1"),
        reads=(Read("r1", 11, "sequential", (1,)), Read("r2", 12, "sequential", (11,))),
        probes=("sequential read", "fetch failed", "executed later"),
    ),
    two(
        "read_eventual",
        "a client reads at another replica what it has inserted; other rows may be there or not",
        TWO_INSERTS,
        {Fault.FETCH: 1},
        prelude=("r1 ins 1", "r1"),
        resting=("r1",),
        reads=(Read("r2", 11, "eventual", (1,)),),
        probes=("eventual read", "fetch failed"),
    ),
    two(
        "read_merge",
        "a client reads what it has inserted while parts are merged, also beyond its position",
        (*TWO_INSERTS, Insert("r1", ((3, "c"),))),
        {},
        merges=(Proposal("r1", ("all_1_1_0", "all_2_2_0")),),
        prelude=("r1 ins 1", "r1 ins 2", "r2", "r1 ins 3", "r1"),
        resting=("r1",),
        reads=(Read("r2", 11, "sequential", (1, 2)), Read("r2", 12, "linearizable")),
        probes=("sequential read", "linearizable read", "merged", "read expired"),
    ),
    two(
        "read_drop",
        "a client reads what it has inserted while a partition is dropped and inserted into again",
        TWO_INSERTS,
        {Fault.STALE: 1},
        commands=(Ask("r1", 3, DropEntry("r1", EntryId("d"), "all")),),
        prelude=("r1 ins 1", *BOTH),
        resting=("r1",),
        reads=(Read("r2", 11, "sequential", (1,)),),
        probes=("sequential read", "parts dropped", "read expired"),
    ),
    two(
        "read_quorum",
        "a linearizable read while an insert waits for its quorum, and is settled or given up",
        (Insert("r1", ((1, "a"),), quorum=2),),
        {},
        prelude=("open r1 ins 1", "r1"),
        reads=(Read("r2", 11, "linearizable"),),
        probes=("linearizable read", "quorum reached", "quorum given up"),
    ),
)

TAGGED = (Insert("r1", ((1, "a"),)),)
DROPPED = (Ask("r1", 9, DropEntry("r1", EntryId("d"), "all")),)

TAGS = (
    one(
        "tag_drop",
        "the present version gets a tag while a drop removes its parts and old parts are deleted; a crash anywhere",
        TAGGED,
        {Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "tag", ("x",)), Duty("r1", "clear")),
        prelude=("r1 ins 1", "r1"),
        probes=("parts dropped", "old parts deleted", "old parts kept", "crash"),
    ),
    one(
        "tag_past",
        "an earlier version gets a tag while its parts are deleted; an answer is lost, and the process dies",
        TAGGED,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "tag", ("x", 1)), Duty("r1", "clear")),
        prelude=("r1 ins 1", "r1", "r1 ask 9", "r1"),
        probes=("old parts deleted", "old parts kept", "late request applied", "crash"),
    ),
    two(
        "tag_stale",
        "a replica whose view lags deletes old parts after another one has made a tag",
        TAGGED,
        {Fault.STALE: 1, Fault.CRASH: 1},
        begins_behind=True,
        commands=DROPPED,
        duties=(Duty("r1", "tag", ("x",)), Duty("r2", "clear")),
        prelude=("r1 ins 1", "r1", "r2", "r1 tag1"),
        probes=("parts dropped", "old parts kept", "crash", "stale read"),
    ),
    one(
        "tag_second",
        "a replica that knows the tags meets a second one, whose parts leave the table",
        (Insert("r1", ((1, "a"),)), Insert("r1", ((2, "b"),))),
        {},
        commands=(Ask("r1", 8, DropEntry("r1", EntryId("c"), "all", 0, 0)), *DROPPED),
        duties=(Duty("r1", "tag", ("w", 1)), Duty("r1", "tag", ("x",)), Duty("r1", "clear")),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 tag1", "r1 ask 8", "r1", "r1 clear3"),
        probes=("parts dropped", "old parts deleted", "old parts kept"),
    ),
    one(
        "tag_deleted",
        "a tag is deleted while a replica deletes old parts; an answer is lost, and the process dies",
        TAGGED,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "tag", ("x",)), Duty("r1", "untag", ("x",)), Duty("r1", "clear")),
        prelude=("r1 ins 1", "r1", "r1 tag1", "r1 ask 9", "r1", "r1 clear3"),
        probes=("old parts deleted", "late request applied", "crash"),
    ),
)

TWO_TAGGED = (*TAGGED, Insert("r1", ((2, "b"),)))
CLEAR = Duty("r1", "clear")

CONSUMERS = (
    one(
        "consumer_made",
        "a consumer that begins at the first entry is made while its old parts are deleted; an answer is lost, a crash",
        TAGGED,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "consume", ("c", 0)), CLEAR),
        prelude=("r1 ins 1", "r1", "r1 ask 9", "r1"),
        probes=("old parts deleted", "old parts kept", "late request applied", "crash"),
    ),
    one(
        "consumer_moved",
        "two readers move one consumer, one of them further than the other, while old parts are deleted; an answer is lost",
        TAGGED,
        {Fault.UNKNOWN: 1},
        commands=DROPPED,
        duties=(
            Duty("r1", "consume", ("c", 0)),
            Duty("r1", "advance", ("c", 1)),
            Duty("r1", "advance", ("c", 2)),
            CLEAR,
        ),
        prelude=("r1 ins 1", "r1", "r1 consume1", "r1 ask 9", "r1"),
        probes=("old parts deleted", "old parts kept", "late request applied"),
    ),
    one(
        "consumer_expired",
        "the hold of a consumer is found to be over and is marked, while its reader moves it and old parts are deleted",
        TAGGED,
        {Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "consume", ("c", 0)), Duty("r1", "expire", ("c",)), Duty("r1", "advance", ("c", 1)), CLEAR),
        prelude=("r1 ins 1", "r1", "r1 consume1", "r1 ask 9", "r1"),
        probes=("hold judged", "old parts deleted", "old parts kept", "crash"),
    ),
    one(
        "consumer_second",
        "a replica that knows an expired consumer meets a second one, whose parts leave the table",
        TWO_TAGGED,
        {},
        commands=(Ask("r1", 8, DropEntry("r1", EntryId("c"), "all", 0, 0)), *DROPPED),
        duties=(
            *(Duty("r1", "consume", ("w", 2)), Duty("r1", "expire", ("w",)), Duty("r1", "consume", ("x", None))),
            CLEAR,
        ),
        prelude=("r1 ins 1", "r1 ins 2", "r1", "r1 consume1", "r1 expire2", "r1 ask 8", "r1", "r1 clear4"),
        probes=("parts dropped", "old parts kept"),
    ),
    one(
        "consumer_dropped",
        "a consumer is dropped and made again under its name, while its reader moves it and old parts are deleted",
        TAGGED,
        {},
        commands=DROPPED,
        duties=(
            *(Duty("r1", "consume", ("c", 0)), Duty("r1", "unconsume", ("c",)), Duty("r1", "advance", ("c", 1))),
            *(Duty("r1", "consume", ("c", 2)), CLEAR),
        ),
        prelude=("r1 ins 1", "r1", "r1 consume1", "r1 ask 9", "r1", "r1 clear5"),
        probes=("old parts deleted",),
    ),
    two(
        "consumer_stale",
        "a replica whose view lags deletes old parts after another one has made a consumer",
        TAGGED,
        {Fault.STALE: 1, Fault.CRASH: 1},
        begins_behind=True,
        commands=DROPPED,
        duties=(Duty("r1", "consume", ("c", 0)), Duty("r2", "clear")),
        prelude=("r1 ins 1", "r1", "r2", "r1 consume1"),
        probes=("parts dropped", "old parts kept", "crash", "stale read"),
    ),
    one(
        "consumer_snapshot",
        "a consumer begins with a snapshot, whose parts are merged while it has not read it, and moves",
        TWO_TAGGED,
        {Fault.CRASH: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        duties=(Duty("r1", "consume", ("c", 2, "snapshot")), Duty("r1", "advance", ("c", 2)), CLEAR),
        prelude=("r1 ins 1", "r1 ins 2", "r1"),
        probes=("merged", "old parts deleted", "old parts kept", "crash"),
    ),
)
