"""All rows, and what is looked up in them: how an effect ends, and which rare branches a turn belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replitree.protocol.core.effects import StoreFailed
from replitree_verify.effects import clients, consumers, disk, memory, mending, moving, store, tags, tree
from replitree_verify.effects.row import Takes
from replitree_verify.outcomes.branch import Branch, Scene
from replitree_verify.outcomes.local import Done, Here
from replitree_verify.probes.catalog import Seen

ROWS = (
    *(*tree.ROWS, *disk.ROWS, *memory.ROWS, *clients.ROWS, *mending.ROWS, *store.ROWS, *moving.ROWS, *tags.ROWS),
    *consumers.ROWS,
)

ROW_OF = {row.effect: row for row in ROWS}

# Columns that are asked for at every step are dictionaries of their own.
_ENDS = {row.effect: row.ends for row in ROWS if row.ends is not None}
_PERFORMS = {row.effect: row.performs for row in ROWS if row.performs is not None}
_PROBES = {row.effect: row.probe for row in ROWS if row.probe is not None}
TOUCHES = {row.effect: row.touches for row in ROWS if row.touches is not None}
UNTAKEN = frozenset(row.effect for row in ROWS if row.asked)
TAKES: dict[type, Takes] = {row.effect: row.takes for row in ROWS}


def branches(effect: Any, scene: Scene) -> Iterator[Branch]:
    """Return every way in which an effect can end; none while what it waits for is not there."""
    ends = _ENDS.get(type(effect))
    if ends is not None:
        yield from ends(effect, scene)
        return
    done = _PERFORMS[type(effect)](effect, scene.here)
    if done is not None:
        yield Branch(done.outcome, scene.here._replace(memory=done.memory, disk=done.disk))


def perform_local(effect: Any, here: Here) -> Done | None:
    """Perform an effect on disk or memory without a fault; None while what it waits for is not there."""
    return _PERFORMS[type(effect)](effect, here)


def probes_of(seen: Seen) -> Iterator[str]:
    """Return the names of the rare branches that a turn belongs to."""
    if seen.fate in ("stale", "torn"):
        yield f"{seen.fate} read"
    if isinstance(seen.outcome, StoreFailed):
        yield "disk failed"
    probe = _PROBES.get(type(seen.effect))
    found = None if probe is None else probe(seen)
    if isinstance(found, str):
        yield found
    elif found:  # False: this turn belongs to none
        yield from found
