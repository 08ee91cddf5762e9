"""What is in a model of merges in an object store: one of a table there, and sessions, and replicas that may not merge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Commit, LogIndex, StagedPart
from replitree.protocol.core.entries import GetEntry, MergeEntry, encode_entry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.parts import merged_part, parse_part
from replitree.protocol.state.pull import Queued
from replitree_verify.shared_tables import world as shared
from replitree_verify.shared_tables.world import CONTENT, STAGING, TABLE

SOURCE = parse_part("all_0_0_0")
RESULT = merged_part((SOURCE,))
WRITTEN = GetEntry("r1", STAGING, (StagedPart("all", 1, 1, CONTENT),), (BlockId("b"),))
ITEM = Queued(LogIndex(1), MergeEntry("r1", (SOURCE.name,), 1), Change((SOURCE,), (RESULT,)))
LOG = encode_entry(WRITTEN), encode_entry(ITEM.entry)
"""The log that every replica has pulled: the source is written, and merged."""
MARK, DONE = layout.merged(TABLE, RESULT.name), layout.result(TABLE, RESULT.name)
"""The merge that every replica has in its queue: its work mark, and the node of its result."""

LIVES = 8
"""Sessions that one seat may have, one after another, at the most."""


@dataclass(frozen=True, slots=True)
class Model(shared.Model):
    """A world to search.

    Attributes
    ----------
    expiries
        How often the session of a process may end while it goes on.
    """

    expiries: int = 0


@dataclass(frozen=True, slots=True)
class World(shared.World):
    """One moment.

    Attributes
    ----------
    lives
        How many sessions each seat has had before the present one.
    dying
        Sessions whose processes were killed: they end when their time is over.
    expiries
        How many sessions may still end by themselves.
    waits
        The node whose coming or going each seat waits for before it tries the merge again, and whether the node was there.
    """

    lives: tuple[int, ...] = ()
    dying: frozenset[int] = frozenset()
    expiries: int = 0
    waits: tuple[tuple[str, bool] | None, ...] = ()

    @property
    @override
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        seats = tuple(seat.key for seat in self.seats)
        mine = self.lives, self.dying, self.expiries, self.waits
        return hash(self.tree), self.objects, seats, self.late, self.budget, self.stray, mine

    def session(self, number: int) -> int:
        """Return the present session of a seat."""
        return number * LIVES + self.lives[number] + 1

    def with_new_session(self, number: int) -> World:
        """Return the world in which a seat has its next session."""
        lives = list(self.lives)
        lives[number] += 1
        assert lives[number] < LIVES
        return replace(self, lives=tuple(lives))

    def with_waits(self, number: int, waits: tuple[str, bool] | None) -> World:
        """Return the world in which a seat waits for another node, or for none."""
        return replace(self, waits=(*self.waits[:number], waits, *self.waits[number + 1 :]))

    def is_waiting(self, number: int) -> bool:
        """Whether the node that a seat waits for is as it was."""
        waits = self.waits[number]
        return waits is not None and self.tree.exists(waits[0]) == waits[1]

    def without(self, session: int) -> World:
        """Return the world in which a session has ended: its nodes are gone, and what it has on its way is refused."""
        late = tuple(each for each in self.late if not isinstance(each, Late) or each.session != session)
        return replace(self, tree=self.tree.expire(session), late=late, dying=self.dying - {session})


@dataclass(frozen=True, slots=True)
class Late:
    """A commit that is on its way; it counts only as long as its session lives."""

    session: int
    commit: Commit


__all__ = ["DONE", "ITEM", "LIVES", "LOG", "MARK", "RESULT", "SOURCE", "Late", "Model", "World"]
