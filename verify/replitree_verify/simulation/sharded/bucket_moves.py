"""Moves of buckets in a simulated sharded table: an operator begins them and turns them back, and movers carry them on.

A mover runs the production procedure (`protocol.sharded.moves.carry`).  It reads the source at a linearizable cut, and lets a
replica of the target prepare a request of its own: the judge knows which rows of which clients it stands for.  What deletes
rows at the source is a mutation here that marks them; the judge counts marked rows as gone (`shard_observer.Judge`).

Requests and answers take a while, and may be lost; movers die, and others follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from replitree.protocol.sharded.moves.batch import Laying, RowsRemoval, RowsSum
from replitree.protocol.sharded.moves.carry import (
    AwaitHolders,
    AwaitInserts,
    DescribeRemoval,
    GiveUpBatch,
    NothingLeft,
    NotPrepared,
    PrepareBatch,
    carry_moves,
    turn_moves_back,
)
from replitree.protocol.sharded.moves.course import MovesFound, begin, find_moves
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.shard_map import Bucket, Move, Shard, handed_over, moving
from replitree_verify.process.read_requests import Shown
from replitree_verify.simulation.options import MS, SECOND
from replitree_verify.simulation.sharded.errand import Errand
from replitree_verify.simulation.sharded.joint_clients import Town
from replitree_verify.simulation.sharded.shard_observer import REMOVAL, Piece, SentRows
from replitree_verify.simulation.sharded.shard_process import ShardProcess

LOOK = 100 * MS
"""Pause between two looks at what is waited for."""

PATIENCE = 20 * SECOND
"""How long a batch may lack replicas before it is taken back."""

TURNS_BACK = 0.3
"""Share of the operator's errands that turn moves back, if there are some."""


def operate(place: str, chance: Random, shards: int, buckets: int) -> fx.Procedure[str]:
    """Begin moves, or turn back those that there are; return what was done."""
    found = yield from find_moves(place)
    if found is None:
        return "found nothing"
    if found.progress is not None:
        if chance.random() < TURNS_BACK:
            return f"turned back: {(yield from turn_moves_back(place)).value}"
        return "moves already"
    chosen = [Bucket(each) for each in sorted(chance.sample(range(buckets), chance.choice((1, 2, buckets // 2))))]
    wanted = moving(found.map, handed_over(found.map, chosen, Shard(chance.randrange(shards))))
    return f"begun: {(yield from begin(found, wanted)).value}" if wanted.moves else "nothing to move"


class SimulatedMover(Errand):
    """Carries moves on until there are none, unless it dies or a read can't be had.

    Parameters
    ----------
    town
        What clients know.
    name
        Of the mover.
    quorum
        How many replicas must have a batch.
    on_end
        Is called when it has come to its end.
    """

    def __init__(self, town: Town, name: str, quorum: int, on_end: Callable[[Any], None]) -> None:
        self._town, self._quorum = town, quorum
        self._step, self._laid, self._since = 0, "", 0
        self._left: list[Move] = []
        super().__init__(town.cluster, name, carry_moves(town.place, commands(town.place)), on_end)

    @override
    def _performs(self, effect: Any) -> bool:
        judge, cluster = self._town.judge, self._town.cluster
        match effect:
            case PrepareBatch(found):
                self._left = list(found.map.moves)
                self._read_next(found)
            case GiveUpBatch(laying):
                staging = laying.prepared.staging
                self._town.send_to(laying.prepared.replica.name, lambda process: process.give_up(staging))
                self._later(0, None)
            case DescribeRemoval(found, source, target):
                buckets = sorted({each for move in _between(found, source, target) for each in move.buckets})
                # The condition is about buckets; here it names every request that was ever made of their rows.
                requests = sorted(each for each, its in judge.pieces.items() if any(b in buckets for _, b in its))
                number, node = self._town.new_request(), cluster.tree.get(places.columns(self._town.place))
                assert node is not None
                command = f"{REMOVAL}{'.'.join(map(str, buckets))}n{number}@{','.join(map(str, requests))}"
                removal = RowsRemoval(fx.EntryId(f"{REMOVAL}-{number}"), command, node.version + 1)
                self._later(0, removal)
            case AwaitHolders(laid):
                if self._laid != laid.batch.insert:
                    self._laid, self._since = laid.batch.insert, cluster.now
                self._later(LOOK, cluster.now - self._since < PATIENCE)
            case AwaitInserts():
                self._later(LOOK, None)
            case _:
                return False
        return True

    def _later(self, pause: int, outcome: Any) -> None:
        """Go on after a while."""
        self._step += 1
        step = self._step
        self._cluster.after(pause, lambda: self._go_on(outcome) if self._is_alive and step == self._step else None)

    def _unless_answered(self) -> int:
        """Begin a step that fails when no answer comes in time; return its number."""
        self._step += 1
        step = self._step

        def give_up() -> None:
            if step == self._step:
                self._later(SECOND, NotPrepared("no answer"))

        self._cluster.after(2 * self._cluster.options.session_timeout, give_up)
        return step

    def _read_next(self, found: MovesFound) -> None:
        """Read the source of the next move at a linearizable cut."""
        if not self._left:
            self._later(0, NothingLeft())
            return
        town, move, step = self._town, self._left.pop(0), self._unless_answered()

        def hear_clock(zxid: Zxid | None) -> None:
            if step != self._step or zxid is None:
                return
            number = town.new_request()
            hear = town.back(lambda told: self._hear_rows(step, found, move, zxid, told))
            town.waiting[number], town.judge.cuts[number] = hear, zxid
            town.send(move.source, lambda process: process.show(number, zxid, None, has_clock=True, hear=hear))

        hear = town.back(hear_clock)
        town.send(move.source, lambda process: process.tell_the_clock(hear))

    def _hear_rows(self, step: int, found: MovesFound, move: Move, zxid: Zxid, told: Any) -> None:
        """Let the target prepare what the source has of a move."""
        if step != self._step or not isinstance(told, Shown):
            return
        town, wanted = self._town, frozenset(int(each) for each in move.buckets)
        pieces = tuple(
            piece for piece in town.judge.pieces_shown(move.source, told.requests, zxid) if piece[1] in wanted
        )
        if not pieces:
            self._read_next(found)
            return
        step, request = self._unless_answered(), town.new_request()
        town.judge.sent[request] = SentRows((f"batch {request}",), move.target, found.map_version)
        town.judge.pieces[request] = pieces
        hear = town.back(lambda told: self._hear_prepared(step, move, pieces, told))

        def ask(process: ShardProcess) -> None:
            process.prepare(request, coordinates=False, hear=hear)

        town.send(move.target, ask)

    def _hear_prepared(self, step: int, move: Move, pieces: tuple[Piece, ...], told: Any) -> None:
        if step != self._step or not isinstance(told, Participant):
            return
        batch = Batch(
            move.source,
            move.target,
            tuple(part.partition for part in told.parts),
            told.replica.name,
            told.staging,
            int(told.log_from),
            self._quorum,
            len(pieces),
        )
        rows = RowsSum(len(pieces), "")
        self._town.judge.probes["batch prepared"] += 1
        self._later(0, Laying(batch, told, rows, rows))


def _between(found: MovesFound, source: Shard, target: Shard) -> list[Move]:
    return [each for each in found.map.moves if (each.source, each.target) == (source, target)]
