"""What is explored of a lone place: two processes that open it, what they ask, and what happens meanwhile.

One of them goes request by request; the other one does each of its steps at any moment between two requests of the first.  At
the beginning a process has the place open, and has stored a blob, which the copy lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import BlobId, Generation, GroupId, Step, TabletId, log_entry
from replitree.tablet.group.member import Raise, Request, Scan, Write
from replitree.tablet.group.quorum import Quorum, end_of
from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

TABLET = TabletId(1)
QUORUM = Quorum(GroupId("g"), 1, 1)
INCARNATION = "s0"
FIRST = log_entry(TABLET, Generation(0), Step(0))

DESCRIPTIONS: Mapping[str, str] = {
    "O1": "a process that has fenced and read has all blobs of earlier generations that are acknowledged, or ever will be",
    "O2": "a place that has forgotten what it told a process does nothing for it as if it were the one that was opened",
}


def blob_of(generation: int) -> BlobId:
    """Return what the process of a generation stores."""
    return log_entry(TABLET, Generation(generation), Step(1))


def fence_of(generation: int) -> Fence:
    """Return what the process of a generation fences with."""
    return Fence(Generation(generation - 1), f"c{generation}")


def fencing(generation: int) -> Request:
    """Raise the fence."""
    return Raise(TABLET, fence_of(generation))


def reading(generation: int) -> Request:
    """Read everything, with a fence."""
    return Scan(FIRST, end_of(FIRST), fence_of(generation))


def looking(_generation: int) -> Request:
    """Read everything, without a fence."""
    return Scan(FIRST, end_of(FIRST))


def storing(generation: int) -> Request:
    """Store a blob."""
    return Write(((blob_of(generation), b"x"),))


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A place to explore.

    Attributes
    ----------
    main, other
        (generation, what is asked, in this order) of the process that goes request by request, and of the other one; the other
        one opens the place and asks the first in one step, and each of the rest in one.
    openings
        How often the place was opened since it was copied, beside the opening of the process that has stored the blob.
    is_limit
        Whether the copy may do that while one process opens the place and the other one was told something; and whether the
        other one may open the copy.
    """

    main: tuple[int, tuple[str, ...]]
    other: tuple[int, tuple[str, ...]] = (0, ())
    openings: int = 0
    is_limit: bool = False


ASKED = {"fence": fencing, "read": reading, "look": looking, "store": storing}

MODELS = (
    Model(
        "lone",
        "two open the place, fence, read and store; the later one goes step by step between requests of the earlier one",
        (2, ("fence", "read", "store", "look")),
        (3, ("fence", "read", "store")),
    ),
    Model(
        "lone_overtaken",
        "the same, and the earlier one goes step by step between requests of the later one",
        (3, ("fence", "read", "store", "look")),
        (2, ("fence", "read", "store")),
    ),
    Model(
        "lone_lost",
        "the same, and an answer gets lost",
        (3, ("fence", "read", "store")),
        (2, ("read", "store")),
        faults={Fault.STORE: 1},
    ),
    Model(
        "lone_swapped",
        "a process opens the place and reads without a fence; a copy that knows the same session takes its place at any moment",
        (2, ("look", "look", "store", "look")),
        faults={Fault.SWAP: 1, Fault.STORE: 1},
    ),
    Model(
        "lone_copied_earlier",
        "the same, and the copy is older than the last opening",
        (2, ("look", "fence", "read", "store")),
        openings=1,
        faults={Fault.SWAP: 1, Fault.STORE: 1},
    ),
    Model(
        "lone_both_swapped",
        "two open the place, fence, read and store, and a copy takes its place",
        (2, ("fence", "read", "store", "look")),
        (3, ("fence", "read", "store")),
        faults={Fault.SWAP: 1},
    ),
)

LIMIT = Model(
    "limit_lone_long_opening",
    "a copy takes the place's place, and another process opens it there, or was just opening it",
    (2, ("fence", "read", "store", "look")),
    (3, ("fence", "read", "store")),
    faults={Fault.SWAP: 1},
    is_limit=True,
)
"""More than a lone place promises to survive."""
