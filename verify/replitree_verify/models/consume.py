"""Consumers of the change feed: made, moved, expired and dropped while parts leave the table and old parts are deleted."""

from __future__ import annotations

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import DropEntry
from replitree_verify.models.insert import one, two
from replitree_verify.world.faults import Fault
from replitree_verify.world.model import Ask, Duty, Insert, Proposal

ONE_INSERT = (Insert("r1", ((1, "a"),)),)
TWO_INSERTS = (*ONE_INSERT, Insert("r1", ((2, "b"),)))
DROPPED = (Ask("r1", 9, DropEntry("r1", EntryId("d"), "all")),)
CLEAR = Duty("r1", "clear")

MODELS = (
    one(
        "consumer_made",
        "a consumer that begins at the first entry is made while its old parts are deleted; an answer is lost, a crash",
        ONE_INSERT,
        {Fault.UNKNOWN: 1, Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "consume", ("c", 0)), CLEAR),
        prelude=("r1 ins 1", "r1", "r1 ask 9", "r1"),
        probes=("old parts deleted", "old parts kept", "late request applied", "crash"),
    ),
    one(
        "consumer_moved",
        "two readers move one consumer, one of them further than the other, while old parts are deleted; an answer is lost",
        ONE_INSERT,
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
        ONE_INSERT,
        {Fault.CRASH: 1},
        commands=DROPPED,
        duties=(Duty("r1", "consume", ("c", 0)), Duty("r1", "expire", ("c",)), Duty("r1", "advance", ("c", 1)), CLEAR),
        prelude=("r1 ins 1", "r1", "r1 consume1", "r1 ask 9", "r1"),
        probes=("hold judged", "old parts deleted", "old parts kept", "crash"),
    ),
    one(
        "consumer_second",
        "a replica that knows an expired consumer meets a second one, whose parts leave the table",
        TWO_INSERTS,
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
        ONE_INSERT,
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
        ONE_INSERT,
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
        TWO_INSERTS,
        {Fault.CRASH: 1},
        merges=(Proposal("r1", ("all_0_0_0", "all_1_1_0")),),
        duties=(Duty("r1", "consume", ("c", 2, "snapshot")), Duty("r1", "advance", ("c", 2)), CLEAR),
        prelude=("r1 ins 1", "r1 ins 2", "r1"),
        probes=("merged", "old parts deleted", "old parts kept", "crash"),
    ),
)
