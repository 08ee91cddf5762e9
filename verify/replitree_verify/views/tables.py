"""What the two tables have, as their logs say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import UNSET

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import AlterEntry, Entry, GetEntry, SettleEntry, ViewEntry, quorum_of
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.views import views_at
from replitree_verify.engine.shared_tree import log_of

SOURCE = TablePlace("/c/tables/s", incarnation="s1")
TARGET = TablePlace("/c/tables/t", incarnation="t1")
VIEW = fx.EntryId("v")


def begun_at(tree: Tree) -> fx.LogIndex | None:
    """Return where the view begins; None: it was not created."""
    return next((index for index, entry in log_of(tree, SOURCE) if isinstance(entry, ViewEntry)), None)


def ended_at(tree: Tree) -> fx.LogIndex | None:
    """Return where the view ends; None: it did not."""
    ends = (i for i, each in log_of(tree, SOURCE) if isinstance(each, ViewEntry) and each.command is UNSET)
    return next(ends, None)


def settled_in(tree: Tree) -> Iterator[tuple[fx.LogIndex, GetEntry]]:
    """Give the inserts of the source that count."""
    log = log_of(tree, SOURCE)
    settled = {entry.index for _, entry in log if isinstance(entry, SettleEntry)}
    for index, entry in log:
        if isinstance(entry, GetEntry) and (not quorum_of(entry) or index in settled):
            yield index, entry


def rows_of(entry: GetEntry) -> str:
    """Return the rows of an insert, one letter each."""
    return "".join(part.content_hash for part in entry.parts)


def rows_below(tree: Tree, index: int) -> str:
    """Return the rows of the source's version at an index."""
    return "".join(rows_of(entry) for at, entry in settled_in(tree) if at < index)


def alters(tree: Tree) -> tuple[fx.LogIndex, ...]:
    """Return where columns were dropped."""
    return tuple(index for index, entry in log_of(tree, SOURCE) if isinstance(entry, AlterEntry))


def rows_due(tree: Tree) -> Counter[str]:
    """Return what the view makes of the source: its inserts while it stands, and once it is filled, those before it."""
    begun, ended = begun_at(tree), ended_at(tree)
    if begun is None:
        return Counter()
    views = views_at(SOURCE, tree.get(layout.views(SOURCE)))
    is_marked = any(view.is_filled for view in views.value.views)
    # A view that was dropped has the rows from before it if its backfill is there.
    is_filled = is_marked or any(is_backfill(entry) for _, entry in log_of(tree, TARGET))
    found = Counter[str]()
    for index, entry in settled_in(tree):
        if (index < begun and is_filled) or (index > begun and (ended is None or index < ended)):
            found.update(rows_of(entry))
    return found


def rows_there(tree: Tree) -> Counter[str]:
    """Return the rows that the target has."""
    found = Counter[str]()
    for _, entry in log_of(tree, TARGET):
        if isinstance(entry, GetEntry):
            found.update(rows_of(entry))
    return found


def is_backfill(entry: Entry) -> bool:
    """Whether an entry of the target has the rows from before the view: only such an entry has a token."""
    return isinstance(entry, GetEntry) and bool(entry.blocks)
