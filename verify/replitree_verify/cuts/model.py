"""What is explored of cuts: what comes into two shards, who reads them, and what goes wrong.

A sharded table ``d`` has the shards ``d~0`` and ``d~1``, each with a replica that is asked by readers, and perhaps a second
one.  Each replica has a session of its own, which may be behind: a read shows any state that is not older than what the session
was told, and the answer tells of any state that is not older than the one that it shows.  Within one request every node may be
read in another state.

A reader asks a replica of each shard, one after the other, at any moments; or it asks one server, whose replicas of both shards
share a session: that of the first seat.

Left out, because other models have it: what the writers read, executing, sessions that end, and commits of pulls.  A session
that commits is less behind than here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "D1": "at a cut each shard shows exactly the rows that its entries up to there have settled, each once",
    "D2": "a joint insert, the end of its quorum, and a command are in a cut whole or not",
    "D3": "what was settled before a linearizable read began is in its cut",
    "D9": "the cuts of a reader never go back",
    "D10": "what a client was told of is in the cut of its own consistent read",
}


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """Two shards to read.

    Attributes
    ----------
    inserts
        The joint inserts, each by its quorum; 0: it has none.
    reads
        Of each reader the levels of its reads, one after the other.
    commands
        How many commands change the rows of both shards.
    joins, gives_up
        Whether the second replica of each shard counts itself for an insert with a quorum; whether a replica gives up.
    rolls, cleans
        The shards whose log goes on below another parent, and from whose log all entries are removed, once at any moment.
    has_seconds
        Whether each shard has a second replica that readers may ask.
    """

    inserts: tuple[int, ...]
    reads: tuple[tuple[str, ...], ...]
    commands: int = 0
    joins: bool = False
    gives_up: bool = False
    rolls: tuple[int, ...] = ()
    cleans: tuple[int, ...] = ()
    has_seconds: bool = False


CONSISTENT, LINEARIZABLE = "consistent", "linearizable"
# A consistent read of a client that has made all inserts itself, and knows where in the logs they are.
OWN = "own"
# Of a server that has a replica of each shard.
SERVER, SERVER_LINEARIZABLE = "consistent, of one server", "linearizable, of one server"

MODELS = (
    Model(
        "cuts_two",
        "a consistent read while two joint inserts come",
        inserts=(0, 0),
        reads=((CONSISTENT,),),
        probes=("read", "above the cut"),
    ),
    Model(
        "cuts_again",
        "a reader reads twice, and may ask another replica of each shard the second time",
        inserts=(0,),
        reads=((CONSISTENT, CONSISTENT),),
        has_seconds=True,
        probes=("read", "synced"),
    ),
    Model(
        "cuts_command",
        "a consistent read while an insert and a command come",
        inserts=(0,),
        reads=((CONSISTENT,),),
        commands=1,
        probes=("read", "above the cut"),
    ),
    Model(
        "cuts_linearizable",
        "a linearizable read while a joint insert comes, whose answer is lost, or that of a write of the clock",
        inserts=(0,),
        reads=((LINEARIZABLE,),),
        faults={Fault.UNKNOWN: 1},
        probes=("read", "in doubt", "applied late"),
    ),
    Model(
        "cuts_levels",
        "a reader reads at both levels while two joint inserts come",
        inserts=(0, 0),
        reads=((LINEARIZABLE, CONSISTENT),),
        probes=("read", "above the cut"),
    ),
    Model(
        "cuts_quorum",
        "a consistent read while a joint insert settles or fails",
        inserts=(2,),
        reads=((CONSISTENT,),),
        joins=True,
        gives_up=True,
        probes=("read", "settled", "failed", "open at the cut"),
    ),
    Model(
        "cuts_quorum_linearizable",
        "a linearizable read while a joint insert settles or fails",
        inserts=(2,),
        reads=((LINEARIZABLE,),),
        joins=True,
        gives_up=True,
        probes=("read", "settled", "failed", "open at the cut"),
    ),
    Model(
        "cuts_rolled",
        "a consistent read while two joint inserts come, and a log goes on below another parent",
        inserts=(0, 0),
        reads=((CONSISTENT,),),
        rolls=(1,),
        probes=("read", "above the cut", "rolled"),
    ),
    Model(
        "cuts_cleaned",
        "a consistent read while two joint inserts come, and the entries of a log are removed",
        inserts=(0, 0),
        reads=((CONSISTENT,),),
        cleans=(1,),
        probes=("read", "gone", "below all entries"),
    ),
    Model(
        "cuts_own",
        "a client inserts into both shards and reads, and may ask another replica of each",
        inserts=(0,),
        reads=((OWN,),),
        has_seconds=True,
        probes=("read", "own", "synced"),
    ),
    Model(
        "cuts_own_quorum",
        "a client inserts with a quorum and reads; it knows of one shard only where the quorum has ended",
        inserts=(2,),
        reads=((OWN,),),
        joins=True,
        probes=("read", "own", "settled"),
    ),
    Model(
        "cuts_own_cleaned",
        "a client inserts and reads, and the entries of a log are removed",
        inserts=(0,),
        reads=((OWN,),),
        cleans=(0,),
        probes=("read", "own", "own removed"),
    ),
    Model(
        "cuts_server",
        "a reader asks one server twice, while a joint insert comes, and a log goes on below another parent",
        inserts=(0,),
        reads=((SERVER, SERVER),),
        rolls=(1,),
        probes=("read", "above the cut", "rolled", "in doubt"),
    ),
    Model(
        "cuts_server_linearizable",
        "two readers ask one server for linearizable cuts while a joint insert comes; an answer is lost",
        inserts=(0,),
        reads=((SERVER_LINEARIZABLE,), (SERVER_LINEARIZABLE,)),
        faults={Fault.UNKNOWN: 1},
        probes=("read", "in doubt", "applied late"),
    ),
)
