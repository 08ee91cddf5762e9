"""Snapshots: which parts a read sees, and that they stay while it reads.

A snapshot is the present one, or `as_of` an index: the fold of the log below it, as long as its parts are on this disk.  With a
lease its files stay; without one they stay for the lifetime of old parts.  What this process does not remember, because it
began later, the version log on the disk says.  Where that is not known either, or a part is gone, the parts that a tag lists
for the index are the snapshot.

Parts that are broken or gone here are refused, unless the reader asks for their names: it may not need them, or read them
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from replitree.errors import CoordinationUnavailable, ReplicaUnavailable, SnapshotExpired, StoreError
from replitree.protocol.core.effects import LogIndex, Procedure
from replitree.protocol.core.parts import Part
from replitree.protocol.state.read import parts_at
from replitree.protocol.upkeep.tags import Tags, read_tags
from replitree.replica.kit.version_log import Version
from replitree.replica.perform.context import LocalParts

TRIES_MAX = 10
"""A snapshot is taken again when a part of it was removed before its lease began; that often at most."""


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot: everything below `index` is in `parts` or `lacking`, which are not whole here; `lease` keeps the parts."""

    index: LogIndex
    parts: tuple[str, ...]
    lease: str | None
    lacking: tuple[str, ...] = ()


class Snapshots:
    """Takes snapshots of one table replica.  Any thread may use it.

    Parameters
    ----------
    name
        The replica's.
    parts
        What snapshots are made of.
    why_unreadable
        Returns why what is here is no state of the table, or None.
    look_up
        Runs a procedure that only reads coordination.
    """

    def __init__(
        self,
        name: str,
        parts: LocalParts,
        why_unreadable: Callable[[], str | None],
        look_up: Callable[[Procedure[Tags]], Tags],
    ) -> None:
        self._name, self._look_up = name, look_up
        self._progress = parts.progress
        self._old_parts, self._versions = parts.old_parts, parts.versions
        self._why_unreadable = why_unreadable

    def take(self, as_of: LogIndex | None, lease_s: float | None, *, names_lacking: bool = False) -> TakenSnapshot:
        """Take a snapshot.

        Parameters
        ----------
        as_of
            The index, which is not above what this replica has executed; None is now.
        lease_s
            Seconds for which its parts are kept; None: no lease.
        names_lacking
            Whether parts that are broken here are named in the snapshot; otherwise they refuse it.

        Raises
        ------
        SnapshotExpired
            What the table was at `as_of` is not known any more, or parts of it are gone.
        ReplicaUnavailable
            A part is broken here and not whole again yet; or the replica is starting or recovering.
        StoreError
            The disk does not let packed parts be unpacked.
        """
        known = None
        if as_of is not None and as_of < self._progress.history.first:
            known = self._versions.at(as_of)
        try:
            return self._take(as_of, lease_s, names_lacking=names_lacking, known=known)
        except SnapshotExpired:
            # Only now coordination is asked: strict reads have an index, too, and mostly none of this is needed.
            tagged = None if as_of is None else self._tagged(as_of)
            if tagged is None:
                raise
        return self._take(as_of, lease_s, names_lacking=names_lacking, tagged=tagged)

    def _take(
        self,
        as_of: LogIndex | None,
        lease_s: float | None,
        *,
        names_lacking: bool,
        known: Version | None = None,
        tagged: tuple[str, ...] | None = None,
    ) -> TakenSnapshot:
        """Take a snapshot: of these parts, if a tag lists them, else of those that the log says.

        Parameters
        ----------
        known
            What the table was at `as_of`, if this process does not remember it.
        """
        progress = self._progress
        for _ in range(TRIES_MAX):
            with progress.changed:
                index, parts, broken = progress.shown()
                # This is asked after the parts were taken: parts taken before a recovery began are sound.
                unreadable = self._why_unreadable()
                if unreadable is not None:
                    raise ReplicaUnavailable(f"{unreadable}; ask another replica")
                if as_of is None and progress.shown_partly() is not None:
                    raise ReplicaUnavailable(
                        f"an insert or a rewrite is here in part on replica {self._name}; try again in a moment"
                    )
                if as_of is not None:
                    then = frozenset((part.name for part in self._parts_at(as_of, known)) if tagged is None else tagged)
                    broken = tuple(name for name in progress.hidden() if name in then)
                    index, parts = as_of, tuple(sorted(then.difference(broken)))
            if broken and not names_lacking:
                raise ReplicaUnavailable(
                    f"part {broken[0]} is broken on replica {self._name} and is being made whole again; ask another replica"
                )
            lease = None if lease_s is None else self._old_parts.lease(parts, lease_s)
            # Between the choice of the parts and the lease, a part may have been removed from disk: then another try.
            visible = frozenset(progress.visible()[1])
            try:
                self._old_parts.unpack(part for part in parts if part not in visible)
            except StoreError:
                if lease is not None:
                    self._old_parts.release(lease)
                raise
            lacking = next((part for part in parts if part not in visible and not self._old_parts.is_old(part)), None)
            if not lacking:
                return TakenSnapshot(index, parts, lease, broken)
            if lease is not None:
                self._old_parts.release(lease)
            if as_of is not None:
                raise SnapshotExpired(
                    f"replica {self._name} has no part {lacking} any more, which the table had at {as_of}; "
                    "take a newer snapshot, give versions that you need later a tag, or keep parts longer (table.set_keep)"
                )
        raise ReplicaUnavailable(f"the parts of replica {self._name} change too fast; ask another replica")

    def _tagged(self, index: LogIndex) -> tuple[str, ...] | None:
        """Return the parts of a tag, or of a consumer's snapshot, of the version at an index that are all here, or None."""
        tags = self._old_parts.tags
        # Without coordination the tags that were read last have to do.
        with suppress(CoordinationUnavailable):
            tags = self._look_up(read_tags(self._progress.replica.table, tags))
        is_old, visible = self._old_parts.is_old, frozenset(self._progress.visible()[1])
        snapshots = self._old_parts.consumers.holding
        versions = (
            *(tag.parts for _, tag in tags.tags if tag.index == index),
            *(each.value.parts for each in snapshots if each.value.snapshot == index),
        )
        return next((parts for parts in versions if all(part in visible or is_old(part) for part in parts)), None)

    def _parts_at(self, index: LogIndex, known: Version | None) -> tuple[Part, ...]:
        progress = self._progress
        held = progress.held

        def is_here(part: Part) -> bool:
            return part in held or self._old_parts.is_old(part.name)

        place, queue, found = progress.place, progress.queue(), None
        if known is not None:
            return tuple(parts_at(known.parts, (), queue, index, is_here, known.opened))
        if progress.is_torn:
            raise ReplicaUnavailable(f"replica {self._name} is about to read its state again; try again")
        if place is not None:
            found = progress.history.parts_at(place, index, queue, is_here)
        if found is None:
            first = self._versions.first()
            remembered = progress.history.first
            first = remembered if first is None else min(first, remembered)
            raise SnapshotExpired(
                f"replica {self._name} does not know what the table was at {index}: the first version that it knows is {first}"
            )
        return found
