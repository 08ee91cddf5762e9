"""What is explored of a sharded table's life: which clients create, drop and finish it, and what goes wrong.

The table ``d`` has one or two shards.  Each creation has an incarnation of its own.  One that is not small takes several
commits: one for each shard, one before them and one after them.  Its process may die, and another one may finish it.

A table may also be restored from the disks of its servers: each has some of the shards, and knows for which transactions it
had all that there was.  What a restore does about parts is in the models of tables that are not sharded.

A replica may join the first shard, and leaves it when the shard is marked as dropped.  A client drops the table
again as long as replicas are left, or the outcome is not known.  Left out: what is in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "WHOLE": "a table that is there has all its shards, whole, and none of them is being dropped",
    "NAME": "a name is that of a sharded table, or of one that is not, never of both",
    "OWNED": "a shard belongs to the sharded table that has the name",
    "TRUE": "what a client is told is true: of a table that is created, not created, or dropped",
    "ONE": "a table that was restored is there only if all its shards stand at one cut, or an operator accepts it",
    "HALF": "where nothing moves, a table is half made or half dropped only if a process has died, or has said so",
}


@dataclass(frozen=True, slots=True)
class Create:
    """A client creates the table; small: in one commit."""

    incarnation: str
    is_small: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A server restores the table from its disk: which shards it has, where these stand, and whether a torn table will do.

    `is_second`: it does so only after a process has died.
    """

    shards: tuple[int, ...]
    first: int = 1
    last: int = 1
    torn: bool = False
    is_second: bool = False


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A name to explore.

    Attributes
    ----------
    creates
        The clients that create the table.
    disks
        The servers from whose disks it is restored.
    finishes
        How many other processes finish the creation of one that is half made.
    drops
        How many clients drop it, at any moment.
    plains
        How many clients create a table that is not sharded under the name.
    joins
        Whether a replica joins the first shard.
    attempts
        How often a client drops, at most.
    shards
        How many the table has.
    """

    creates: tuple[Create, ...] = ()
    disks: tuple[Disk, ...] = ()
    finishes: int = 0
    drops: int = 0
    plains: int = 0
    joins: bool = False
    attempts: int = 2
    shards: int = 2


MODELS = (
    Model(
        "sharded_created",
        "a table is created in several commits, and the answer of one is lost, while another one wants its name",
        creates=(Create("i"),),
        plains=1,
        faults={Fault.UNKNOWN: 1},
        probes=("created", "taken", "unsettled", "applied late", "name refused"),
    ),
    Model(
        "sharded_crash",
        "the process that creates a table dies at any moment, and two others finish it",
        creates=(Create("i"),),
        finishes=2,
        faults={Fault.CRASH: 1},
        probes=("created", "crashed", "finished"),
    ),
    Model(
        "sharded_two",
        "two clients create the table at once, one of them in one commit",
        creates=(Create("i"), Create("j", is_small=True)),
        faults={Fault.UNKNOWN: 1},
        probes=("created", "exists", "half-made", "unsettled"),
    ),
    Model(
        "sharded_dropped",
        "a table is dropped while it is created, and again when the answer of a commit was lost",
        creates=(Create("i"),),
        drops=1,
        attempts=3,
        faults={Fault.UNKNOWN: 1},
        probes=("created", "gone", "dropped meanwhile", "applied late"),
    ),
    Model(
        "sharded_dropped_twice",
        "two clients drop a table at once, and one of them dies",
        creates=(Create("i", is_small=True),),
        drops=2,
        faults={Fault.CRASH: 1},
        shards=1,
        probes=("created", "gone", "crashed"),
    ),
    Model(
        "sharded_anew",
        "a table is dropped, and created anew under its name",
        creates=(Create("i", is_small=True), Create("j", is_small=True)),
        drops=2,
        attempts=1,
        shards=1,
        probes=("created", "gone", "exists", "dropping"),
    ),
    Model(
        "sharded_anew_unknown",
        "the same with one client that drops, and the answer of a commit is lost",
        creates=(Create("i", is_small=True), Create("j", is_small=True)),
        drops=1,
        attempts=3,
        faults={Fault.UNKNOWN: 1},
        shards=1,
        probes=("created", "gone", "applied late"),
    ),
    Model(
        "sharded_anew_half",
        "a creation in several commits is dropped while the answer of one is lost, and the table is created anew",
        creates=(Create("i"), Create("j", is_small=True)),
        drops=1,
        attempts=2,
        faults={Fault.UNKNOWN: 1},
        shards=1,
        probes=("created", "gone", "applied late", "dropped meanwhile"),
    ),
    Model(
        "sharded_joined",
        "a replica joins a shard while the table is created and dropped",
        creates=(Create("i"),),
        drops=1,
        attempts=4,
        joins=True,
        shards=1,
        probes=("joined", "shards left", "gone"),
    ),
    Model(
        "sharded_restored",
        "two servers restore a shard each, and the answer of a commit is lost",
        disks=(Disk((0,), 3, 7), Disk((1,), 5, 9)),
        faults={Fault.UNKNOWN: 1},
        probes=("shown", "shards missing", "applied late"),
    ),
    Model(
        "sharded_restored_crash",
        "a server that restores the only shard dies at any moment, and another run does it again",
        disks=(Disk((0,)), Disk((0,), is_second=True)),
        faults={Fault.CRASH: 1},
        shards=1,
        probes=("shown", "crashed"),
    ),
    Model(
        "sharded_restored_wanted",
        "a server restores the only shard, and a client creates a table of the name",
        creates=(Create("i", is_small=True),),
        disks=(Disk((0,)),),
        shards=1,
        probes=("shown", "created", "exists", "being restored", "not restored"),
    ),
    Model(
        "sharded_restored_dropped",
        "a table is dropped while it is restored, and the answer of a commit is lost",
        disks=(Disk((0,)),),
        drops=1,
        attempts=3,
        faults={Fault.UNKNOWN: 1},
        shards=1,
        probes=("shown", "gone", "not restored", "applied late"),
    ),
    Model(
        "sharded_restored_torn",
        "two servers restore a shard each, and these stand at no common cut",
        disks=(Disk((0,), 3, 4), Disk((1,), 5, 9)),
        probes=("not one cut", "shards missing"),
    ),
    Model(
        "sharded_restored_anyway",
        "two disks stand at no common cut, and the operator of one accepts that",
        disks=(Disk((0,), 3, 4), Disk((1,), 5, 9, torn=True)),
        probes=("shown", "not one cut", "shards missing"),
    ),
)
