"""What is explored of the tags of a sharded table: which clients make and delete a tag of one name, and what goes wrong.

The table ``d`` has two shards.  Each client that makes the tag has an id of its own, and takes a cut of its own.  The replica
of a shard keeps the parts by one commit.  A client that hears that its change is in doubt repeats it with the same id.
Left out: the parts, and the replica's own doubts, which the models of tags of any table have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "KEPT": "a tag that readers find is kept in each of its shards, at the index that it names",
    "TRUE": "what a client is told is true: its tag was there, or never will be, or the tag that it has deleted is gone",
    "LEFT": "where nothing moves, a shard keeps nothing for a tag that is not there, unless a client has not ended well",
}


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A name to explore.

    Attributes
    ----------
    makes
        The ids of the clients that make the tag.
    deletes
        How many clients delete it, at any moment.
    attempts
        How often a client asks, at most.
    """

    makes: tuple[str, ...]
    deletes: int = 0
    attempts: int = 1


MODELS = (
    Model(
        "tags_made",
        "a tag is made while it is deleted, and the answer of a commit is lost",
        makes=("x",),
        deletes=1,
        attempts=2,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "deleted", "none", "in doubt", "applied late"),
    ),
    Model(
        "tags_crash",
        "a client dies while it makes a tag, and another one gives the name or deletes it",
        makes=("x", "y"),
        deletes=1,
        faults={Fault.CRASH: 1},
        probes=("made", "other", "torn", "deleted", "none", "crashed", "kept for another one"),
    ),
    Model(
        "tags_two",
        "two clients give the name at once, and the answer of a commit is lost",
        makes=("x", "y"),
        attempts=2,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "other", "torn", "in doubt", "applied late", "kept for another one"),
    ),
    Model(
        "tags_anew",
        "a tag is made, deleted and made anew, and the answer of a commit is lost",
        makes=("x", "y"),
        deletes=1,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "other", "torn", "deleted", "none", "in doubt", "applied late"),
    ),
)
