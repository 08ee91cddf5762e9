"""What is explored of the views of a sharded table: who inserts, creates, drops, fills and moves, and what goes wrong.

The source ``d`` and the target ``t`` have two shards each.  A view writes every row to the shard of the target that owns the
row's bucket there, which may move.  An insert puts rows into both shards of the source.  A client that hears that the map has
changed, or that its change of views is in doubt, tries again.

Left out, because other models have it: preparing and giving up (`joint`), reading at a cut (`cuts`), the rows that a move
copies (`moves`), and what a part becomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "V1": "at every moment a target has exactly what its views make of the inserts since each of them began, and, once one is"
    " filled, of those before it",
    "V2": "an insert is in each shard of the source at most once, however often it is sent",
    "V3": "a view stands only as long as the columns that it was checked against",
    "PLACED": "a row of a view comes into the shard that owns its bucket",
    "KEPT": "a table that a view needs is there",
    "TRUE": "what a client is told is true: of an insert, of a view that is created or dropped, and of a move",
}


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """A source and a target to explore.

    Attributes
    ----------
    inserts
        The tokens of what clients insert; a token also names the rows.
    creates, drops, fills
        How many clients create the view, drop it, and insert the rows from before it.
    moves
        The tables of which a bucket moves to the other shard.
    alters, removes
        Whether the column that the view reads is dropped, and the tables that a client drops.
    attempts
        How often a client tries.
    before
        The token of rows that the source has from the beginning.
    has_view
        Whether the view is there from the beginning, and filled.
    """

    inserts: tuple[str, ...] = ()
    creates: int = 0
    drops: int = 0
    fills: int = 0
    moves: tuple[str, ...] = ()
    alters: bool = False
    removes: tuple[str, ...] = ()
    attempts: int = 2
    before: str = ""
    has_view: bool = False


MODELS = (
    Model(
        "viewed_created",
        "a view is created while rows are inserted, and is filled with the rows from before",
        inserts=("a",),
        creates=1,
        fills=1,
        before="x",
        probes=("inserted", "map changed", "created", "filled"),
    ),
    Model(
        "viewed_created_unknown",
        "the same, and the answer of a commit is lost",
        inserts=("a",),
        creates=1,
        fills=1,
        before="x",
        faults={Fault.UNKNOWN: 1},
        probes=("inserted", "map changed", "created", "filled", "applied late"),
    ),
    Model(
        "viewed_crash",
        "the same rows are sent twice through a view, and a client dies",
        inserts=("a", "a"),
        has_view=True,
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("inserted", "duplicate", "crashed", "applied late"),
    ),
    Model(
        "viewed_dropped",
        "a view is created and dropped while rows are inserted, and perhaps filled",
        inserts=("a",),
        creates=1,
        drops=1,
        fills=1,
        before="x",
        probes=("inserted", "map changed", "dropped", "filled", "nothing to fill"),
    ),
    Model(
        "viewed_dropped_unknown",
        "a view is dropped while rows are inserted, and the answer of a commit is lost",
        inserts=("a",),
        drops=1,
        has_view=True,
        faults={Fault.UNKNOWN: 1},
        probes=("inserted", "map changed", "dropped", "applied late"),
    ),
    Model(
        "viewed_filled",
        "two clients fill a view, and the answer of a commit is lost",
        creates=1,
        fills=2,
        before="x",
        faults={Fault.UNKNOWN: 1},
        probes=("filled", "nothing to fill", "applied late"),
    ),
    Model(
        "viewed_moved",
        "buckets of both tables move while rows are inserted, and a view is created",
        inserts=("a",),
        creates=1,
        moves=("d", "t"),
        attempts=4,
        probes=("inserted", "map changed", "created", "moved"),
    ),
    Model(
        "viewed_moved_filled",
        "a bucket of the target moves while a view is filled",
        creates=1,
        fills=1,
        moves=("t",),
        before="x",
        attempts=3,
        probes=("filled", "map changed", "moved"),
    ),
    Model(
        "viewed_altered",
        "the column that a view reads is dropped while the view is created",
        creates=1,
        drops=1,
        alters=True,
        probes=("altered", "columns changed", "created", "alter refused"),
    ),
    Model(
        "viewed_removed",
        "source and target are dropped while a view is created",
        creates=1,
        removes=("d", "t"),
        probes=("removed", "removal refused", "created", "refused"),
    ),
)
