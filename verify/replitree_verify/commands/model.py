"""What is explored of commands over shards: what clients ask for, and what goes wrong.

A sharded table ``d`` has the shards ``d~0`` and ``d~1``; seat ``a`` is a replica of the first, seat ``b`` of the second.  A
client gives a command to either.  Beside that rows come into both shards, a third shard comes, a log goes on below another
parent, the table is dropped and created anew, and a copy reads the version of ``commands`` and checks it in its own commit.

A replica that changes columns, or mutates, reads its columns first, and reads them again when they were changed meanwhile.

Left out, because other models have it: pulling and executing, and how rows of a joint insert are staged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "D5": "a command, an overwrite or a rewrite comes into the logs of all its shards, by one commit",
    "ATOMIC": "a rewrite that is in the logs counts in each of its shards",
    "ONCE": "a command is in the logs once, to whichever replicas and however often it is given",
    "TRUE": "what a client is told is true: given, the command is at these indexes; refused, it never will be in a log",
    "COUNTED": "a copy that has checked the version of commands was made after every command and overwrite in the logs",
    "COLUMNS": "the table and all its shards have the same columns, and an entry knows those that hold where it lies",
    "SETTINGS": "the settings of the table and of every shard are what the commands in the logs have made of them",
    "FREED": "a token is taken once between two drops of everything, and a duplicate has rows that no earlier drop has removed",
    "MOVING": "no partition is detached, and no row rewritten, while buckets move",
    "OWN": "no command comes into the logs of a later table of the name",
}


@dataclass(frozen=True, slots=True)
class Give:
    """A client gives a command to the replica in a seat; equal ids name one command.

    "storage" is a change of settings after which the table has an object store; "detach" keeps every partition aside.
    """

    seat: Literal["a", "b"]
    id: str
    kind: Literal["mutate", "alter", "settings", "storage", "drop", "detach"] = "mutate"


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """Two shards to explore.

    Attributes
    ----------
    gives
        What clients ask for.
    inserts
        How many clients insert into both shards at some moment, all under one token.
    is_emptied
        Whether an insert under that token has come before, and everything was dropped.
    grows
        Whether a third shard comes at some moment.
    moves
        Whether buckets begin to move at some moment.
    rolls
        The shards whose log goes on below another parent.
    retakes
        The seats whose process takes a newer epoch, once at any moment.
    forgets
        Whether the tokens are forgotten at some moment.
    cleans
        The shards from whose log all entries are removed, once at any moment; the tokens are forgotten before.
    is_dropped
        Whether the table is dropped, and created anew.
    copies
        Whether a copy checks the version of `commands`.
    overwrites
        The tokens of clients that overwrite the table at some moment; their rows are all of the first shard.
    rewrites
        How many clients rewrite the first part of both shards, of which there are two, at some moment.
    merges
        The shards whose two parts are merged at some moment.
    """

    gives: tuple[Give, ...]
    inserts: int = 0
    is_emptied: bool = False
    grows: bool = False
    moves: bool = False
    rolls: tuple[int, ...] = ()
    retakes: tuple[str, ...] = ()
    forgets: bool = False
    cleans: tuple[int, ...] = ()
    is_dropped: bool = False
    copies: bool = False
    overwrites: tuple[str, ...] = ()
    rewrites: int = 0
    merges: tuple[int, ...] = ()


MODELS = (
    Model(
        "commands_two",
        "two commands are given to replicas of different shards while rows come, and the answer of a commit is lost",
        gives=(Give("a", "m"), Give("b", "n")),
        inserts=1,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "applied late"),
    ),
    Model(
        "commands_repeated",
        "a command is given to both replicas, and the answer of a commit is lost",
        gives=(Give("a", "m"), Give("b", "m")),
        faults={Fault.UNKNOWN: 1},
        probes=("given", "known", "applied late"),
    ),
    Model(
        "commands_crash",
        "the process that a command was given to dies, and its client gives it to the other one",
        gives=(Give("a", "m"), Give("b", "m")),
        faults={Fault.UNKNOWN: 1, Fault.CRASH: 1},
        probes=("given", "known", "crashed", "applied late"),
    ),
    Model(
        "commands_retaken",
        "both replicas take another epoch while a command is given",
        gives=(Give("a", "m"),),
        retakes=("a", "b"),
        faults={Fault.UNKNOWN: 1},
        probes=("given", "applied late"),
    ),
    Model(
        "commands_grown",
        "a third shard comes while two commands are given",
        gives=(Give("a", "m"), Give("b", "n", "alter")),
        grows=True,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "in three", "applied late"),
    ),
    Model(
        "commands_alters",
        "the columns are changed by two commands at once, and a third one relies on them",
        gives=(Give("a", "m", "alter"), Give("b", "n", "alter"), Give("a", "o")),
        probes=("given", "columns changed"),
    ),
    Model(
        "commands_settings",
        "the settings are changed by two commands at once, and the answer of a commit is lost",
        gives=(Give("a", "m", "settings"), Give("b", "n", "settings")),
        grows=True,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "in three", "applied late"),
    ),
    Model(
        "commands_storage",
        "the table gets an object store while other settings are changed and a third shard comes",
        gives=(Give("a", "m", "storage"), Give("b", "n", "settings")),
        grows=True,
        probes=("given", "in three"),
    ),
    Model(
        "commands_rolled",
        "the logs of both shards go on below another parent while a command is given",
        gives=(Give("a", "m"),),
        rolls=(0, 1),
        faults={Fault.UNKNOWN: 1},
        probes=("given", "rolled", "applied late"),
    ),
    Model(
        "commands_forgotten",
        "the tokens are forgotten, and the entries of the log removed, while a command is in doubt",
        gives=(Give("a", "m"),),
        forgets=True,
        cleans=(0,),
        faults={Fault.UNKNOWN: 1},
        probes=("given", "forgotten", "cleaned", "in doubt", "applied late"),
    ),
    Model(
        "commands_emptied",
        "everything was dropped, and is dropped again, while two clients insert under the token of what was there",
        gives=(Give("b", "m", "drop"),),
        inserts=2,
        is_emptied=True,
        probes=("given", "JointInserted", "duplicate"),
    ),
    Model(
        "commands_emptied_unknown",
        "the same without another drop, and the answer of a commit is lost",
        gives=(),
        inserts=2,
        is_emptied=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "duplicate", "applied late"),
    ),
    Model(
        "commands_dropped",
        "the table is dropped and created anew while a command is given, and the answer of a commit is lost",
        gives=(Give("a", "m"),),
        is_dropped=True,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "refused", "applied late"),
    ),
    Model(
        "commands_moved",
        "partitions are detached while buckets begin to move, and the answer of a commit is lost",
        gives=(Give("a", "m", "detach"), Give("b", "n")),
        moves=True,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "refused", "applied late"),
    ),
    Model(
        "commands_copied",
        "rows are copied while two commands are given",
        gives=(Give("a", "m"), Give("b", "n", "alter")),
        copies=True,
        faults={Fault.UNKNOWN: 1},
        probes=("given", "copied", "copy refused"),
    ),
    Model(
        "overwrites_repeated",
        "a client overwrites the table, hears nothing, and does it again under its token while a command is given",
        gives=(Give("b", "m"),),
        overwrites=("o", "o"),
        faults={Fault.UNKNOWN: 1},
        probes=("given", "JointInserted", "duplicate", "applied late"),
    ),
    Model(
        "overwrites_copied",
        "the table is overwritten while rows are copied, and the log of the emptied shard goes on below another parent",
        gives=(),
        overwrites=("o",),
        rolls=(1,),
        copies=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "copied", "copy refused", "rolled", "applied late"),
    ),
    Model(
        "overwrites_grown",
        "two clients overwrite the table while a third shard comes",
        gives=(),
        overwrites=("o", "p"),
        grows=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "MapChanged", "all three emptied", "applied late"),
    ),
    Model(
        "overwrites_freed",
        "two clients insert under one token, and a third one overwrites the table",
        gives=(),
        inserts=2,
        overwrites=("o",),
        probes=("JointInserted", "duplicate"),
    ),
    Model(
        "rewrites_two",
        "two clients rewrite the same parts of both shards, and the answer of a commit is lost",
        gives=(),
        rewrites=2,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "NotInserted", "applied late"),
    ),
    Model(
        "rewrites_merged",
        "parts of both shards are rewritten while those of one are merged, and a log rolls over",
        gives=(),
        rewrites=1,
        merges=(1,),
        rolls=(0,),
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "NotInserted", "rolled", "merged", "applied late"),
    ),
    Model(
        "rewrites_command",
        "parts are rewritten while a command is given and a third shard comes",
        gives=(Give("b", "m"),),
        rewrites=1,
        grows=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "NotInserted", "MapChanged", "given", "applied late"),
    ),
    Model(
        "rewrites_copied",
        "parts are rewritten while rows are copied",
        gives=(),
        rewrites=1,
        copies=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "copied", "copy refused", "applied late"),
    ),
    Model(
        "rewrites_moved",
        "parts are rewritten while buckets begin to move",
        gives=(),
        rewrites=1,
        moves=True,
        faults={Fault.UNKNOWN: 1},
        probes=("JointInserted", "NotInserted", "applied late"),
    ),
    Model(
        "rewrites_cleaned",
        "parts are rewritten while a client inserts, those of one shard are merged, and the entries of its log are removed",
        gives=(),
        inserts=1,
        rewrites=1,
        merges=(0,),
        forgets=True,
        cleans=(0,),
        probes=("JointInserted", "NotInserted", "cleaned"),
    ),
)
