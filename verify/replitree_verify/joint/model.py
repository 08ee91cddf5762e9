"""What is explored of joint inserts: what clients insert, and what goes wrong.

A sharded table ``d`` has two shards, ``d~0`` and ``d~1``.  Seat ``a`` is a replica of the first, seat ``b`` of the second; they
take inserts.  Seats ``c`` and ``d`` are the second replicas of the two: they only count themselves, for inserts with a quorum.
A client reads the map, splits its rows, lets the participant prepare its share, and sends the rest to the coordinator, which
commits.  If the map has changed, or the participant is gone, it does the same once more.  The participant may abandon what it
has prepared at any moment.

No replica pulls or executes: what a shard has is what its log says, and the rows that an entry names lie in the folder that the
entry's writer has staged.  Left out, because other models have it: reads that lag behind, pulling and executing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core.effects import BlockId, LogIndex, StagingId
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.sharded.joint_batch import JointBatch
from replitree.protocol.upkeep.clean_blocks import Block
from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "J1": "a joint insert has one entry in the log of each of its shards, or none anywhere",
    "J2": "the entries of a joint insert all settle, or all fail, at once; where nothing moves, what is complete is settled",
    "J3": "the rows that an entry names are on the disk of its writer, synced before the entry came, and are not removed",
    "J4": "what an insert is promised holds in each shard: acknowledged, it is in the log; refused, it never will be",
    "J5": "an entry of a participant comes only while the participant has a session",
    "D4": "a token is applied once over all shards and maps",
    "S1": "a batch that has not failed is applied once, and batches ascend, until the stream is forgotten or taken over",
    "S2": "a stream is read as naming the last of its batches that has not failed, since it was forgotten",
    "D6": "rows come in under the map by which they were split",
    "OBJECTS": "objects are those of a noted attempt or garbage, and garbage is deleted",
    "TOKENS": "a token goes with its insert, when that fails, or when it was found too old; one that was taken anew stays",
}


@dataclass(frozen=True, slots=True)
class Joint:
    """A client inserts rows under a token, which also names the rows; the replica of the other shard takes part.

    `quorum`: as of an insert.  `batch`: the rows are a batch of the model's only stream, and the token names the rows only.
    `also`: tokens of other clients whose rows go with them.
    """

    coordinator: str
    token: str
    quorum: int = 0
    batch: JointBatch | None = None
    also: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens."""
        return (self.token, *self.also)


STREAM = fx.StreamId("s")


def batch_of(number: int, query: str = "q", *, takes_over: bool = False) -> JointBatch:
    """Return a batch of the stream."""
    return JointBatch(StreamBatch(STREAM, query, number), takes_over)


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """Two shards to explore.

    Attributes
    ----------
    inserts
        What clients insert.
    retakes
        The seats that activate anew, under another epoch.
    maps
        How often the map changes.
    forgets
        Whether the tokens may be forgotten at any moment, once.
    attempts
        How often a client prepares and commits, at most.
    joins, gives_up
        The seats that count themselves for what is open, and those that give up the first insert that is open.
    rolls
        The seats that let the log of their shard go on below another parent.
    abandons
        Whether participants abandon, and coordinators give up what they have kept for another try.
    cleans, known
        The seats that forget every token, and what each remembers of an earlier turn.
    asks_again
        Whether a client whose coordinator has died asks the next process.
    tidies
        The seats that let go of objects and delete them; none: the rows lie on disks.
    is_one_process
        Whether one process is the replica of both shards: it dies as a whole, and activates each of them by itself.
    forgets_stream
        The seats that forget the stream, once each.
    """

    inserts: tuple[Joint, ...]
    retakes: tuple[str, ...] = ()
    maps: int = 0
    forgets: bool = False
    attempts: int = 2
    joins: tuple[str, ...] = ()
    gives_up: tuple[str, ...] = ()
    rolls: tuple[str, ...] = ()
    abandons: bool = True
    cleans: tuple[str, ...] = ()
    known: tuple[tuple[BlockId, Block], ...] = ()
    asks_again: bool = False
    tidies: tuple[str, ...] = ()
    is_one_process: bool = False
    forgets_stream: tuple[str, ...] = ()


MODELS = (
    Model(
        "joint_insert",
        "rows go into two shards, and the answer of a commit is lost",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1},
        probes=("inserted", "abandoned", "committed before", "participant gone", "applied late"),
    ),
    Model(
        "joint_crash",
        "the same, and a process dies at any moment",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        attempts=1,
        probes=("inserted", "swept", "participant gone", "applied late"),
    ),
    Model(
        "joint_repeated",
        "a client sends the same token to both replicas, and the answer of a commit is lost",
        inserts=(Joint("a", "x"), Joint("b", "x")),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        probes=("inserted", "duplicate", "applied late"),
    ),
    Model(
        "joint_repeated_crash",
        "the same, and a process dies instead",
        inserts=(Joint("a", "x"), Joint("b", "x")),
        faults={Fault.CRASH: 1},
        attempts=1,
        probes=("inserted", "duplicate", "swept"),
    ),
    Model(
        "joint_two",
        "two clients insert through either replica, and each has the other one for its participant",
        inserts=(Joint("a", "x"), Joint("b", "y")),
        attempts=1,
        probes=("inserted", "participant gone"),
    ),
    Model(
        "joint_two_crash",
        "two clients insert through one replica, and a process dies",
        inserts=(Joint("a", "x"), Joint("a", "y")),
        faults={Fault.CRASH: 1},
        attempts=1,
        probes=("inserted", "swept", "participant gone"),
    ),
    Model(
        "joint_map",
        "the map changes while rows that were split by it come in, and come in again",
        inserts=(Joint("a", "x"), Joint("b", "x")),
        maps=1,
        probes=("map changed", "duplicate", "inserted"),
    ),
    Model(
        "joint_retaken",
        "both replicas activate anew while rows come in",
        inserts=(Joint("a", "x"),),
        retakes=("a", "b"),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        probes=("inserted", "participant gone", "applied late"),
    ),
    Model(
        "joint_forgotten",
        "tokens are forgotten, and another insert takes the same one, while a commit is in doubt",
        inserts=(Joint("a", "x"), Joint("b", "x")),
        forgets=True,
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        probes=("forgotten", "inserted", "applied late"),
    ),
    Model(
        "joint_rolled",
        "the logs of both shards go on below another parent while rows come in",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1},
        rolls=("a", "b"),
        attempts=3,
        abandons=False,
        probes=("inserted", "participant gone", "applied late"),
    ),
    Model(
        "joint_quorum_calm",
        "both shards wait for their quorum, and nothing goes wrong",
        inserts=(Joint("a", "x", quorum=2),),
        attempts=1,
        joins=("c", "d"),
        abandons=False,
        probes=("settled",),
    ),
    Model(
        "joint_quorum",
        "both shards wait for their quorum, which is given up at any moment",
        inserts=(Joint("a", "x", quorum=2),),
        attempts=1,
        joins=("c", "d"),
        gives_up=("a", "d"),
        abandons=False,
        probes=("settled", "failed"),
    ),
    Model(
        "joint_quorum_unknown",
        "the same, and the answer of a commit is lost",
        inserts=(Joint("a", "x", quorum=2),),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        joins=("c", "d"),
        gives_up=("a",),
        abandons=False,
        probes=("settled", "failed", "applied late"),
    ),
    Model(
        "joint_quorum_crash",
        "the same, and a process dies instead",
        inserts=(Joint("a", "x", quorum=2),),
        faults={Fault.CRASH: 1},
        attempts=1,
        joins=("c", "d"),
        gives_up=("c",),
        abandons=False,
        probes=("settled", "failed"),
    ),
    Model(
        "joint_quorum_rolled",
        "both shards wait for their quorum while a log goes on below another parent",
        inserts=(Joint("a", "x", quorum=2),),
        attempts=2,
        joins=("c", "d"),
        gives_up=("a",),
        rolls=("d",),
        abandons=False,
        probes=("settled", "failed", "participant gone"),
    ),
    Model(
        "joint_quorum_repeated",
        "an insert with a quorum is given up while its token is sent to the other replica",
        inserts=(Joint("a", "x", quorum=2), Joint("b", "x", quorum=2)),
        attempts=1,
        joins=("c",),
        gives_up=("a",),
        abandons=False,
        probes=("failed", "duplicate"),
    ),
    Model(
        "joint_asked_again",
        "the process of the coordinator dies, and its client asks the next one with the same rows",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        attempts=1,
        abandons=False,
        asks_again=True,
        probes=("duplicate", "own gone", "applied late"),
    ),
    Model(
        "joint_cleaned",
        "tokens are forgotten by two replicas while one is given up, and taken anew",
        inserts=(Joint("a", "x", quorum=2), Joint("b", "x")),
        attempts=1,
        gives_up=("c",),
        cleans=("a", "c"),
        abandons=False,
        probes=("failed", "inserted"),
    ),
    Model(
        "joint_cleaned_known",
        "a replica that forgets tokens remembers one of an insert that has failed, and another one has it",
        inserts=(Joint("a", "x", quorum=2), Joint("b", "x")),
        attempts=1,
        gives_up=("c",),
        cleans=("a",),
        known=((BlockId("x"), Block(1, StagingId("a0-0.1"), LogIndex(0))),),
        abandons=False,
        probes=("failed", "inserted"),
    ),
    Model(
        "joint_batch",
        "a batch of a stream is sent to both replicas by two drivers of its query",
        inserts=(Joint("a", "x", batch=batch_of(1)), Joint("b", "x", batch=batch_of(1))),
        attempts=1,
        abandons=False,
        probes=("inserted", "duplicate"),
    ),
    Model(
        "joint_batch_late",
        "a batch is sent again after the next one was inserted",
        inserts=(Joint("a", "x", batch=batch_of(1)), Joint("b", "y", batch=batch_of(2))),
        attempts=1,
        abandons=False,
        probes=("inserted", "duplicate"),
    ),
    Model(
        "joint_batch_replaced",
        "another query sends a batch of the same number, and does not take the stream over",
        inserts=(Joint("a", "x", batch=batch_of(1)), Joint("b", "y", batch=batch_of(1, "p"))),
        attempts=1,
        abandons=False,
        probes=("inserted", "replaced"),
    ),
    Model(
        "joint_batch_taken_over",
        "another query takes the stream over while the first one sends a batch",
        inserts=(Joint("a", "x", batch=batch_of(2)), Joint("b", "y", batch=batch_of(1, "p", takes_over=True))),
        attempts=1,
        abandons=False,
        probes=("inserted",),
    ),
    Model(
        "joint_batch_unknown",
        "a batch is sent to both replicas, the answer of a commit is lost, and tokens are forgotten meanwhile",
        inserts=(Joint("a", "x", batch=batch_of(1)), Joint("b", "x", batch=batch_of(1))),
        faults={Fault.UNKNOWN: 1},
        forgets=True,
        attempts=1,
        abandons=False,
        probes=("inserted", "duplicate", "forgotten", "applied late"),
    ),
    Model(
        "joint_batch_asked_again",
        "the process of the coordinator dies, and its client asks the next one with the same batch",
        inserts=(Joint("a", "x", batch=batch_of(1)),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        attempts=1,
        abandons=False,
        asks_again=True,
        probes=("duplicate", "own gone", "applied late"),
    ),
    Model(
        "joint_stored",
        "rows go into two shards in an object store, and the answer of a commit is lost",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        tidies=("a", "b"),
        probes=("inserted", "abandoned", "committed before", "participant gone", "applied late", "deleted"),
    ),
    Model(
        "joint_stored_crash",
        "the same, and a process dies instead",
        inserts=(Joint("a", "x"),),
        faults={Fault.CRASH: 1},
        attempts=1,
        tidies=("a", "b"),
        probes=("inserted", "swept", "deleted"),
    ),
    Model(
        "joint_stored_retaken",
        "a replica activates anew while its rows are put into the store, and joint inserts are committed",
        inserts=(Joint("a", "x"),),
        retakes=("b",),
        attempts=1,
        tidies=("b",),
        probes=("inserted", "participant gone", "deleted"),
    ),
    Model(
        "joint_stored_silent",
        "the store does not answer a replica that puts, and a process dies",
        inserts=(Joint("a", "x"),),
        faults={Fault.STORE: 1, Fault.CRASH: 1},
        attempts=1,
        abandons=False,
        tidies=("a", "b"),
        probes=("inserted", "swept", "deleted"),
    ),
    Model(
        "joint_beside",
        "one process has the replicas of both shards, the answer of a commit is lost, and it dies",
        inserts=(Joint("a", "x"),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        attempts=1,
        abandons=False,
        is_one_process=True,
        probes=("inserted", "swept", "applied late"),
    ),
    Model(
        "joint_beside_retaken",
        "one process has the replicas of both shards, and activates each of them anew while rows come in again",
        inserts=(Joint("a", "x"), Joint("a", "x")),
        retakes=("a", "b"),
        attempts=1,
        abandons=False,
        is_one_process=True,
        probes=("inserted", "duplicate", "participant gone"),
    ),
    Model(
        "joint_grouped",
        "rows of two clients come in together, and one of the two sends its token to the other replica as well",
        inserts=(Joint("a", "x", also=("y",)), Joint("b", "y")),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        probes=("inserted", "duplicate", "tokens taken", "applied late"),
    ),
    Model(
        "joint_grouped_forgotten",
        "the same, tokens are forgotten, and one process has the replicas of both shards",
        inserts=(Joint("a", "x", also=("y",)), Joint("a", "y")),
        faults={Fault.UNKNOWN: 1},
        forgets=True,
        attempts=1,
        abandons=False,
        is_one_process=True,
        probes=("inserted", "duplicate", "tokens taken", "forgotten", "applied late"),
    ),
    Model(
        "joint_batch_forgotten",
        "the stream is forgotten while two drivers send the next batches",
        inserts=(
            Joint("a", "x", batch=batch_of(1)),
            Joint("b", "y", batch=batch_of(2)),
            Joint("a", "z", batch=batch_of(3)),
        ),
        attempts=1,
        abandons=False,
        forgets_stream=("b",),
        probes=("inserted", "duplicate", "stream forgotten"),
    ),
    Model(
        "joint_batch_quorum",
        "a batch waits for its quorum, which is given up at any moment, while the same batch is sent to the other replica",
        inserts=(Joint("a", "x", 2, batch=batch_of(1)), Joint("b", "x", batch=batch_of(1))),
        attempts=1,
        joins=("c", "d"),
        gives_up=("a",),
        abandons=False,
        probes=("inserted", "duplicate", "settled", "failed", "set back"),
    ),
    Model(
        "joint_batch_quorum_next",
        "two batches with a quorum, which is given up at any moment",
        inserts=(Joint("a", "x", 2, batch=batch_of(1)), Joint("b", "y", 2, batch=batch_of(2))),
        attempts=1,
        gives_up=("a", "b"),
        abandons=False,
        probes=("inserted", "failed", "set back"),
    ),
    Model(
        "joint_batch_quorum_cleaned",
        "a batch with a quorum is sent to both replicas, and the tokens are cleaned before and after it has settled",
        inserts=(Joint("a", "x", 2, batch=batch_of(1)), Joint("b", "x", batch=batch_of(1))),
        attempts=1,
        joins=("c", "d"),
        cleans=("a",),
        abandons=False,
        probes=("inserted", "duplicate", "settled"),
    ),
    Model(
        "joint_batch_quorum_unknown",
        "a batch waits for its quorum, the answer of a commit is lost, and the client asks again",
        inserts=(Joint("a", "x", 2, batch=batch_of(1)), Joint("b", "x", batch=batch_of(1))),
        faults={Fault.UNKNOWN: 1},
        attempts=1,
        gives_up=("d",),
        abandons=False,
        probes=("inserted", "duplicate", "failed", "set back", "applied late"),
    ),
    Model(
        "joint_batch_quorum_asked_again",
        "the process of a coordinator dies while the quorum of a batch is open, and its client asks the next one",
        inserts=(Joint("a", "x", 2, batch=batch_of(1)),),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        attempts=1,
        gives_up=("d",),
        abandons=False,
        asks_again=True,
        probes=("duplicate", "own gone", "failed", "set back"),
    ),
)
