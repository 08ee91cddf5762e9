"""Orphans: parts on disk that will never be registered, and begun fetches that will never be finished.

An execution that is cut off between publishing files and registering them leaves such a part, when a drop or a merge that came
meanwhile makes it useless.  At a start they are found by `protocol.state.start.compare_parts`; here while the replica runs.

A part is an orphan when it is below the pointer, not registered, not known as old, and no entry of the queue brings it, at two
looks in a row: what is only on its way is in the queue at one of them.  A begun fetch is one when its part is, or when the part
is here already, or a later form of it.
"""

from __future__ import annotations

from replitree.protocol.core.entries import GetEntry, RewriteEntry, written_parts
from replitree.protocol.core.parts import Part, parse_part
from replitree.replica.perform.context import LocalParts


class Orphans:
    """Looks for orphans: parts become old parts, begun fetches are deleted."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts
        self._seen: frozenset[str] = frozenset()
        self._abandoned: frozenset[str] = frozenset()

    def look(self) -> tuple[str, ...]:
        """Look once; return the parts that are orphans for the second time, which are old parts from now on."""
        store, progress, old_parts = self._parts.store, self._parts.progress, self._parts.old_parts
        # The disk is read first: a part that is registered after this read is not in it, or is in `held`.
        on_disk = store.parts()
        begun = store.fetches()
        with progress.changed:
            place, held = progress.place, progress.held
            queue, hidden = progress.queue(), frozenset(progress.hidden())
        if place is None:
            return ()
        coming = {part for item in queue for part in item.change.added}
        for item in queue:
            if isinstance(item.entry, GetEntry | RewriteEntry):
                coming.update(written_parts(item.entry, item.index))

        def is_orphan(part: Part) -> bool:
            return part.block_max < place.pointer.index and part not in held and part not in coming

        def is_abandoned(part: Part) -> bool:
            if part in coming or part.name in hidden or part.block_max >= place.pointer.index:
                return False
            return held.covering(part) is not None or place.parts.covering(part) is None

        seen = frozenset(name for name in on_disk if is_orphan(parse_part(name)) and not old_parts.is_old(name))
        found = tuple(sorted(seen & self._seen))
        self._seen = seen
        old_parts.retire(found)
        abandoned = frozenset(name for name in begun if is_abandoned(parse_part(name)))
        for name in sorted(abandoned & self._abandoned):
            store.fetched.abandon(name)
        self._abandoned = abandoned
        return found
