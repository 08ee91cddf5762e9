"""Mutations of the scope of a mutation: ways to leave out parts that have rows to change."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from replitree.protocol.core import fold
from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.parts import Part
from replitree.protocol.program import commands
from replitree.protocol.program.stages import LookAtParts
from replitree_verify.mutations.table import Patches
from replitree_verify.world.scoping import PartsSeen


def place_after_look(entry: MutateEntry) -> Generator[Any, Any, MutateEntry]:
    """Judge the parts first, and take the position for ``since`` afterwards."""
    judged: MutateEntry = yield from _find_scope(entry)
    later: PartsSeen = yield LookAtParts(entry.command)
    assert later.place is not None
    return msgspec.structs.replace(judged, since=int(later.place.pointer.index))


def listed_only(entry: MutateEntry) -> Generator[Any, Any, MutateEntry]:
    """Leave out the parts that come after the look."""
    found: MutateEntry = yield from _find_scope(entry)
    return msgspec.structs.replace(found, since=1 << 40)


_find_scope, _is_left = commands.find_scope, PartsSeen.is_left


def _is_left_or_unknown(self: PartsSeen, part: Part) -> bool:
    """Judge the parts that are here, and believe that the others have no such rows."""
    return _is_left(self, part) or all(seen != part for seen, _ in self.rows)


PLACE_AFTER_LOOK: Patches = {(commands, "find_scope"): place_after_look}
BELIEVE_WHAT_IS_NOT_HERE: Patches = {(PartsSeen, "is_left"): _is_left_or_unknown}
ONLY_LISTED: Patches = {(commands, "find_scope"): listed_only}
INSERTED_ONLY: Patches = {(fold, "is_changed_since"): lambda part, since: part.block_max >= since}
