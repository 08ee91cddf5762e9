"""What is to be explored of openings: who opens the group, what happens to members, and how often.

Three members, of which two must have a blob.  A seat opens the group, reads everything with a fence, and stores one
blob: a candidate without the rules of the log, which `replitree_verify.tablets` explores.  Everything begins when the
group was opened once, and nothing is in it.  Member 0 is the one whose directory is exchanged: the others could as well be.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.tablet.group.ids import NOTHING, BlobId, Generation, GroupId, Step, TabletId, first_of, log_entry
from replitree.tablet.group.quorum import Quorum, end_of
from replitree_verify.engine.small_search import Declaration

TABLET = TabletId(1)
GROUP = GroupId("g")
QUORUM = Quorum(GROUP, 3, 2)
INCARNATIONS = ("m0", "m1", "m2")
NEW = "new"
FIRST = first_of(TABLET, log_entry(TABLET, Generation(0), Step(0)).channel, NOTHING)
LAST = end_of(FIRST)

EXCHANGED = 0
"""The member whose directory may be exchanged by a copy."""


@dataclass(frozen=True, slots=True)
class Opener:
    """A process that opens the group.

    Attributes
    ----------
    generation
        Under which it fences and stores.
    ahead
        How far it is when everything begins: not at all; it has read, and is to store; it has stored.
    stores
        Whether it stores its blob; else it ends when it has read.
    readmits
        Whether it lets members in again before it stores.
    """

    generation: int
    ahead: str = ""
    stores: bool = True
    readmits: bool = False

    @property
    def blob(self) -> BlobId:
        """What it stores."""
        return log_entry(TABLET, Generation(self.generation), Step(1))


READ, STORED = "read", "stored"


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A group to explore.

    Attributes
    ----------
    seats
        The processes that open it.
    copies
        Whether the old copy that takes the place of member 0 is made at any moment; it is put back when an opening has ended
        that it does not know.  Else it is from the very beginning.
    is_foreign
        Whether the directory of another group takes its place instead, one that was opened more often.
    absent
        The member that is away when everything begins, to return at any moment or never; -1: none.
    replaces
        Which member an operator makes anew; None: none.
    slow_looks
        Whether other things may happen while a process looks again, between one member and the next; else that takes no time.
    is_limit
        Whether more may go wrong than the group promises to survive (`members`): what it does then is known, and said.
    """

    seats: tuple[Opener, ...]
    copies: bool = False
    is_foreign: bool = False
    absent: int = -1
    replaces: int | None = None
    slow_looks: bool = False
    is_limit: bool = False
