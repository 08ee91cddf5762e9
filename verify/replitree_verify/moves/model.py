"""What is explored of moves: what comes in meanwhile, who carries them on, and what goes wrong.

A sharded table ``d`` has two shards and four buckets: shard 0 owns the buckets 0 and 1, shard 1 the others.  Bucket 1 moves to
shard 1.  Seats ``a`` and ``c`` are replicas of shard 0, ``b`` and ``d`` of shard 1; ``a`` and ``b`` take rows, the others only
count themselves.

A client reads the map, splits its rows, and commits; if the map has changed, it does the same once more.  A command changes
each row of bucket 1, and has a scope in each shard.  Reads are no steps: in every state, every map that there ever was is tried
with every cut that there was beside a change of the map.

Left out, because other models have it: rows that a replica has prepared and gives up, answers to inserts that are lost, reads
that lag, pulling and executing.  What a shard has is what its log says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "D1": "at every moment each settled row is shown exactly once, with every command that came after it",
    "D6": "a row lies at the owner of its bucket, or at the source of its move",
    "D7": "a read asks all shards that have rows of a bucket at its cut, or is refused because one of them was removed",
    "D8": "the change feeds of both shards are the difference of what is shown, and a row that moves is in none of them",
    "BATCH": "rows that no read shows yet are those of the batch that is on its way, and each batch is on its way or over",
    "COPIES": "rows are shown at their target only when as many replicas have them as the move asks for",
    "ENDS": "a mover ends only when there are no moves; where nothing moves there are none, unless every mover has died",
}


@dataclass(frozen=True, slots=True)
class Put:
    """A client inserts one row into each of these buckets; `quorum` as of an insert.

    `overwrites`: they take the place of everything in the table.
    """

    buckets: tuple[int, ...]
    quorum: int = 0
    partition: str = "p"
    overwrites: bool = False


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """Moves to explore.

    Attributes
    ----------
    before
        What is in the table at first; with a quorum, it is open.
    inserts
        What comes in.
    commands
        How many commands come.
    movers
        How many processes carry the moves on.
    turns_back
        Whether an operator turns the moves back, at any moment.
    joins
        The seats that count themselves for what is open.
    gives_up
        The seats that give up the first insert that is open.
    moves_again
        Whether the bucket moves back when it has moved.
    rolls
        The shards whose log goes on below another parent.
    quorum
        How many replicas of the target must have a batch.
    impatient
        How many batches are taken back because their quorum takes too long.
    damages
        How many batches lie at the target as other rows than those that were read at the source.
    removes
        Whether an operator removes shard 0 when it owns nothing: it has owned the bucket that moves alone.
    """

    before: tuple[Put, ...] = (Put((0, 1)),)
    inserts: tuple[Put, ...] = ()
    commands: int = 0
    movers: int = 1
    turns_back: bool = False
    moves_again: bool = False
    joins: tuple[str, ...] = ()
    gives_up: tuple[str, ...] = ()
    rolls: tuple[int, ...] = ()
    quorum: int = 1
    impatient: int = 0
    damages: int = 0
    removes: bool = False


MODELS = (
    Model(
        "moves_calm",
        "a bucket moves, and nothing else happens",
        before=(Put((0, 1)), Put((1,), partition="q")),
        probes=("laid", "shown", "ended"),
    ),
    Model(
        "moves_inserts",
        "a bucket moves while two clients insert into it, and into the buckets beside it",
        inserts=(Put((1,)), Put((0, 1, 2))),
        probes=("shown", "ended", "map changed"),
    ),
    Model(
        "moves_command",
        "the same with one client, and a command comes",
        inserts=(Put((0, 1)),),
        commands=1,
        probes=("shown", "ended", "refused by a command", "command while on its way"),
    ),
    Model(
        "moves_overwritten",
        "a client overwrites the table while a bucket moves, with rows of that bucket and of one beside it",
        inserts=(Put((0, 1), overwrites=True),),
        probes=("laid", "shown", "ended", "map changed", "refused by a command", "overwritten on its way"),
    ),
    Model(
        "moves_overwritten_elsewhere",
        "the same, and no row comes where the bucket was or goes to; another client inserts",
        before=(Put((0, 1)), Put((2,))),
        inserts=(Put((3,), overwrites=True), Put((1,))),
        probes=("laid", "shown", "ended", "map changed", "overwritten on its way"),
    ),
    Model(
        "moves_unknown",
        "two answers to commits of a move are lost, while a row comes in",
        inserts=(Put((1,)),),
        faults={Fault.UNKNOWN: 2},
        probes=("shown", "ended", "applied late"),
    ),
    Model(
        "moves_two_movers",
        "two processes carry a move on, one dies, and an answer is lost",
        movers=2,
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        probes=("shown", "ended", "crashed", "refused"),
    ),
    Model(
        "moves_two_commands",
        "two processes carry a move on while a command comes",
        movers=2,
        commands=1,
        faults={Fault.UNKNOWN: 1},
        probes=("shown", "ended", "refused by a command"),
    ),
    Model(
        "moves_open",
        "an insert is open when the move begins; it settles, or is given up, at any moment",
        before=(Put((0, 1)), Put((1,), quorum=2)),
        joins=("c",),
        gives_up=("a",),
        probes=("shown", "ended", "settled", "failed", "waits for inserts"),
    ),
    Model(
        "moves_open_joint",
        "a client inserts into both shards with a quorum while a bucket moves",
        inserts=(Put((0, 1, 2), quorum=2),),
        joins=("c", "d"),
        probes=("shown", "ended", "settled", "waits for inserts"),
    ),
    Model(
        "moves_quorum",
        "two replicas must have a batch, and the move does not wait for ever",
        joins=("d", "d"),
        quorum=2,
        impatient=1,
        commands=1,
        probes=("shown", "ended", "taken back", "waits for holders"),
    ),
    Model(
        "moves_damaged",
        "a row is damaged on its way to the target, twice, and a command comes",
        before=(Put((0, 1)), Put((1,), partition="q")),
        commands=1,
        damages=2,
        probes=("shown", "ended", "differs"),
    ),
    Model(
        "moves_damaged_unknown",
        "two processes carry a move on, a row is damaged, and an answer is lost",
        movers=2,
        damages=1,
        faults={Fault.UNKNOWN: 1},
        probes=("shown", "ended", "differs", "applied late"),
    ),
    Model(
        "moves_turned_back",
        "an operator turns a move back at any moment, while a row comes in",
        inserts=(Put((1,)),),
        turns_back=True,
        probes=("shown", "ended", "turned back", "taken back"),
    ),
    Model(
        "moves_turned_back_unknown",
        "the same without the row, and an answer is lost",
        turns_back=True,
        faults={Fault.UNKNOWN: 1},
        probes=("shown", "ended", "turned back", "taken back", "applied late"),
    ),
    Model(
        "moves_turned_back_crash",
        "the same, with two movers of which one dies",
        movers=2,
        turns_back=True,
        faults={Fault.CRASH: 1},
        probes=("shown", "ended", "turned back", "taken back", "crashed"),
    ),
    Model(
        "moves_turned_back_open",
        "an operator turns a move back, and an insert with a quorum has come in at its target",
        inserts=(Put((1,), quorum=2),),
        joins=("c", "d"),
        turns_back=True,
        probes=("shown", "ended", "turned back", "settled", "waits for inserts"),
    ),
    Model(
        "moves_again",
        "a bucket moves, and back, and two processes carry it on",
        movers=2,
        moves_again=True,
        probes=("shown", "ended", "refused", "begun again"),
    ),
    Model(
        "moves_removed",
        "a shard is removed when its bucket has moved away, or moves back, and an answer is lost",
        removes=True,
        moves_again=True,
        faults={Fault.UNKNOWN: 1},
        probes=("shown", "ended", "begun again", "removed", "needed", "applied late", "shard gone"),
    ),
    Model(
        "moves_removed_insert",
        "a client inserts a row that it has split by any map, while the shard of its bucket is emptied and removed",
        inserts=(Put((0, 1)),),
        removes=True,
        probes=("shown", "ended", "map changed", "removed"),
    ),
    Model(
        "moves_rolled",
        "the logs of both shards go on below another parent while a bucket moves",
        rolls=(0, 1),
        probes=("shown", "ended", "rolled"),
    ),
)
