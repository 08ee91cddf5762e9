"""What is explored of materialised views: who inserts, creates, drops, fills and alters, and what goes wrong.

Two tables, ``s`` and ``t``; every replica has both.  A view of ``s`` writes every row to ``t``.  No replica pulls or executes:
what the tables have is what their logs say, and the rows that a log names lie in the folders that their writer has staged.

Left out, because other models have it: reads that lag behind, the election, pulling and executing, and what becomes of a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree_verify.engine.small_search import Declaration
from replitree_verify.world.faults import Fault

DESCRIPTIONS: Mapping[str, str] = {
    "V1": "a target has exactly what its view makes of the inserts since the view, and, once it is filled, of those before it",
    "V2": "an insert is in the source at most once, and a view has its rows at most once, however often it is sent",
    "V3": "a view stands only as long as the columns that it was checked against",
    "V4": "the rows that an entry names are on the disk of its writer",
    "V5": "an insert that is acknowledged is in the source",
}


@dataclass(frozen=True, slots=True)
class Send:
    """A client sends rows to a seat under a token, which also names the rows; `quorum`: as of an insert."""

    seat: str
    token: str
    quorum: int = 0


@dataclass(frozen=True, slots=True)
class Model(Declaration):
    """Two tables to explore.

    Attributes
    ----------
    sends
        What clients send to the source.
    creates, drops, fills, alters
        The seats that are asked to create the view, to drop it, to insert the rows from before it, and to drop the column that
        it reads.
    rolls
        (seat, table): whose log it lets go on below another parent.
    retakes
        The seats that activate the target anew, under another epoch.
    forgets
        Whether the ids of inserts may be forgotten at any moment.
    before
        Rows that the source has from the beginning; `is_open`: their quorum is open, and is reached at any moment.
    has_view
        Whether the view is there from the beginning, and filled.
    """

    sends: tuple[Send, ...] = ()
    creates: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    alters: tuple[str, ...] = ()
    rolls: tuple[tuple[str, str], ...] = ()
    retakes: tuple[str, ...] = ()
    forgets: bool = False
    before: str = ""
    is_open: bool = False
    has_view: bool = False


MODELS = (
    Model(
        "views_created",
        "a view is created while rows are inserted at two replicas, and is filled with the rows from before",
        sends=(Send("r1", "a"), Send("r2", "b")),
        creates=("r1",),
        fills=("r2",),
        before="x",
        probes=("staged again", "inserted", "view created", "filled"),
    ),
    Model(
        "views_created_unknown",
        "the same with one writer, and the answer of a commit is lost",
        sends=(Send("r2", "a"),),
        creates=("r1",),
        fills=("r2",),
        before="x",
        faults={Fault.UNKNOWN: 1},
        probes=("applied late", "staged again", "filled"),
    ),
    Model(
        "views_crash",
        "rows are sent to a table with a view, and again to another replica, and processes die at any moment",
        sends=(Send("r1", "a"), Send("r2", "a")),
        has_view=True,
        faults={Fault.CRASH: 1, Fault.UNKNOWN: 1},
        probes=("duplicate", "crashed", "swept"),
    ),
    Model(
        "views_retaken",
        "the target activates anew while rows are inserted into the source",
        sends=(Send("r1", "a"), Send("r2", "b")),
        retakes=("r1",),
        has_view=True,
        faults={Fault.UNKNOWN: 1},
        probes=("staged again", "swept"),
    ),
    Model(
        "views_uncomputed",
        "a view can't be computed for the rows that are inserted",
        sends=(Send("r1", "a"), Send("r2", "a")),
        has_view=True,
        faults={Fault.DISK: 1},
        probes=("not inserted", "inserted"),
    ),
    Model(
        "views_dropped",
        "a view is dropped while rows are inserted, and perhaps filled",
        sends=(Send("r1", "a"),),
        creates=("r2",),
        drops=("r1",),
        fills=("r2",),
        before="x",
        probes=("staged again", "view dropped", "filled"),
    ),
    Model(
        "views_filled",
        "two fill a view at once, and the ids of inserts may be forgotten",
        sends=(Send("r1", "a"),),
        creates=("r1",),
        fills=("r1", "r2"),
        before="x",
        forgets=True,
        probes=("filled", "duplicate"),
    ),
    Model(
        "views_empty",
        "a view of a table without rows is marked as filled at two replicas, while the first rows come",
        sends=(Send("r1", "a"),),
        creates=("r1",),
        fills=("r1", "r2"),
        probes=("filled", "staged again"),
    ),
    Model(
        "views_quorum",
        "rows of the source wait for their quorum, and others are sent with one, while a view is created and filled",
        sends=(Send("r2", "a", quorum=2),),
        creates=("r1",),
        fills=("r1",),
        before="x",
        is_open=True,
        probes=("quorum open", "refused", "view created", "filled"),
    ),
    Model(
        "views_rolled",
        "the logs of both tables go on below another parent while a view is created and rows are inserted",
        sends=(Send("r1", "a"), Send("r2", "b")),
        creates=("r1",),
        rolls=(("r2", "s"), ("r2", "t")),
        probes=("staged again", "rolled", "view created"),
    ),
    Model(
        "views_altered",
        "the column that a view reads is dropped while the view is created",
        creates=("r1",),
        drops=("r2",),
        alters=("r2",),
        probes=("altered", "alter refused", "view created", "view refused"),
    ),
)
