"""The course of moves: they begin, may turn back, and end; each is one change of the map.

``begin`` gives the buckets to their new owners.  From that commit on every insert of their rows goes to the target: those that
were split by the map before are refused.  So the source gets no row of theirs any more, and what it has only becomes less.

``turn_back`` gives them to their old owners again.  What came to the target meanwhile moves back, as any other rows move.

``end`` takes the moves out of the map.  Its caller has seen that no source has rows of its moves; none can come any more, also
not from an insert that was open when the moves began (`batch.list_opened`).

All write the map and the node ``moves`` at the versions that were read, in one commit.  So none of them needs a new epoch after
an unknown outcome: a commit that comes late finds other versions, and `find_moves` tells what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.sharded import places
from replitree.protocol.sharded.moves.progress import Batch, MovesProgress, decode_progress, encode_progress, moves
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map, encode_map, turned_back, without_moves

READS_MAX = 8
"""How often the two nodes are read until they belong together."""


@dataclass(frozen=True, slots=True)
class MovesFound:
    """What there is of moves.

    Attributes
    ----------
    place, incarnation
        The path of the sharded table, and which of the tables that have had its name it is.
    map, map_version
        The map.
    progress, version
        How far its moves are, and the version of that node; None: the map has no moves.
    changed_ms
        When that node was written last, in milliseconds since 1970 by coordination's clock: for people.
    """

    place: str
    incarnation: str
    map: ShardMap
    map_version: fx.Version
    progress: MovesProgress | None = None
    version: fx.Version | None = None
    changed_ms: int = field(default=0, compare=False)

    @property
    def batch(self) -> Batch | None:
        """What is on its way."""
        return None if self.progress is None or self.progress.batch is UNSET else self.progress.batch

    @property
    def sources(self) -> tuple[TablePlace, ...]:
        """The shards from which rows move."""
        return tuple(self.shard(each) for each in sorted({move.source for move in self.map.moves}))

    def shard(self, shard: Shard) -> TablePlace:
        """Return the place of a shard."""
        above, _, name = self.place.rpartition("/")
        return places.shard_place(above.rpartition("/")[0], name, shard, self.incarnation)

    def noted(self, progress: MovesProgress) -> fx.Set:
        """Return what writes how far the moves are; a commit with it does nothing if another one has been before it."""
        assert self.version is not None
        return fx.Set(moves(self.place), encode_progress(progress), self.version)

    def turned(self, shard_map: ShardMap) -> fx.Set:
        """Return what changes the map; as `noted`."""
        return fx.Set(layout.shard_map(self.place), encode_map(shard_map), self.map_version)


class Turned(Enum):
    """What became of a change of the map.

    DONE
        It took place.
    REFUSED
        It never does: another process has changed the moves meanwhile, or the table is being dropped.
    UNSETTLED
        It is not known; `find_moves` tells.
    """

    DONE = "done"
    REFUSED = "refused"
    UNSETTLED = "unsettled"


def find_moves(place: str) -> fx.Procedure[MovesFound | None]:
    """Return what there is of moves now; None: there is no such table, or its moves change all the time.

    Parameters
    ----------
    place
        The path of the sharded table.
    """
    path, own = layout.shard_map(place), moves(place)
    yield fx.Sync(path)
    for _ in range(READS_MAX):
        # Two reads are no snapshot: the map that is there before and after belongs to what is between.
        before, made, progress, after = (yield fx.GetMany((path, place, own, path))).nodes
        if before is None or made is None:
            return None
        shard_map = decode_map(before.value, path)
        if before == after and (progress is None) == (not shard_map.moves):
            found = MovesFound(place, made.value.decode(), shard_map, before.version)
            return (
                found
                if progress is None
                else replace(
                    found,
                    progress=decode_progress(progress.value, own),
                    version=progress.version,
                    changed_ms=progress.changed_ms,
                )
            )
    return None


def begin(found: MovesFound, wanted: ShardMap, with_it: tuple[fx.Operation, ...] = ()) -> fx.Procedure[Turned]:
    """Begin moves.

    Parameters
    ----------
    found
        The sharded table, without moves.
    wanted
        The map with its moves, as of `shard_map.moving`.
    with_it
        What else the commit does, such as the placement of new shards.
    """
    assert wanted.moves
    assert found.progress is None
    begun = fx.Create(moves(found.place), encode_progress(MovesProgress()))
    return _turned((yield fx.Commit(found.turned(wanted), begun, *with_it)))


def turn_back(found: MovesFound, takes_back: tuple[fx.Operation, ...]) -> fx.Procedure[Turned]:
    """Let moves turn back.

    `takes_back`: what removes the batch that is on its way (`batch.taken_back`), in the same commit.
    """
    assert (found.batch is None) == (not takes_back)
    return _turned((yield fx.Commit(found.turned(turned_back(found.map)), found.noted(MovesProgress()), *takes_back)))


def end(found: MovesFound) -> fx.Procedure[Turned]:
    """End moves whose sources have none of their rows any more; nothing may be on its way."""
    assert found.batch is None
    assert found.version is not None
    ended = fx.Delete(moves(found.place), found.version)
    return _turned((yield fx.Commit(found.turned(without_moves(found.map)), ended)))


def _turned(committed: fx.Committed) -> Turned:
    match committed:
        case fx.Applied():
            return Turned.DONE
        case fx.Refused():
            return Turned.REFUSED
    return Turned.UNSETTLED
