"""What is explored of the tags and consumers of a sharded table: which clients change one name, and what goes wrong.

The table ``d`` has two shards.  Each client that gives the name has an id of its own, and takes a cut of its own.  The replica
of a shard keeps what it has there by one commit.  A client that hears that its change is in doubt repeats it with the same id.
A cut lies at its own number in the log of each shard.  A shard that owns nothing may be removed: it has had no rows since the
map was written.  Left out: the parts, and the replica's own doubts, which the models of
tags and consumers of any table have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "KEPT": "what readers find is kept in each of its shards, at the index that it names; a consumer also in new shards;"
    " nothing that readers find needs a shard that was removed",
    "BACK": "a consumer goes back in no shard, and a hold that has ended stays so",
    "TRUE": "what a client is told is true: its tag was there, or never will be; the consumer stood where it was moved to",
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
    of_consumers
        Whether the name is that of a consumer.
    moves
        The cuts to which clients move it.
    adds
        How many clients add a shard.
    ends
        How many shards may end its hold.
    removes
        How many clients remove the second shard, which owns nothing then.
    """

    makes: tuple[str, ...]
    deletes: int = 0
    attempts: int = 1
    of_consumers: bool = False
    moves: tuple[int, ...] = ()
    adds: int = 0
    ends: int = 0
    removes: int = 0


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
    Model(
        "tags_removed",
        "a shard that owns nothing is removed while a tag is made, and the answer of a commit is lost",
        makes=("x",),
        removes=1,
        attempts=2,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "removed", "needed", "in doubt", "applied late", "made after the removal"),
    ),
    Model(
        "tags_removed_deleted",
        "a shard is removed while a tag that needs it is made and deleted",
        makes=("x",),
        removes=1,
        deletes=1,
        probes=("made", "deleted", "removed", "needed", "made after the removal"),
    ),
    Model(
        "cut_consumers_moved",
        "two clients move a consumer, and the answer of a commit is lost",
        makes=("x",),
        moves=(20, 30),
        attempts=2,
        of_consumers=True,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "moved", "not moved back", "none", "in doubt", "applied late"),
    ),
    Model(
        "cut_consumers_shard",
        "a shard comes while a consumer is made and moved, and the answer of a commit is lost",
        makes=("x",),
        moves=(20,),
        adds=1,
        attempts=2,
        of_consumers=True,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "moved", "added", "not added", "held in a new shard"),
    ),
    Model(
        "cut_consumers_dropped",
        "a shard comes while a consumer is made and dropped",
        makes=("x",),
        adds=1,
        deletes=1,
        of_consumers=True,
        probes=("made", "deleted", "added", "not added", "held in a new shard"),
    ),
    Model(
        "cut_consumers_end",
        "a shard ends the hold of a consumer while it is moved, dropped and made anew",
        makes=("x",),
        moves=(20,),
        deletes=1,
        ends=1,
        of_consumers=True,
        probes=("made", "torn", "moved", "deleted", "hold over"),
    ),
    Model(
        "cut_consumers_removed",
        "a shard that owns nothing is removed while a consumer is made and moved, and the answer of a commit is lost",
        makes=("x",),
        moves=(20,),
        removes=1,
        attempts=2,
        of_consumers=True,
        faults={Fault.UNKNOWN: 1},
        probes=("made", "moved", "removed", "needed", "in doubt", "applied late"),
    ),
    Model(
        "cut_consumers_removed_end",
        "a shard is removed while it ends the hold of a consumer",
        makes=("x",),
        removes=1,
        ends=1,
        of_consumers=True,
        probes=("made", "removed", "needed", "removed after its hold"),
    ),
)
