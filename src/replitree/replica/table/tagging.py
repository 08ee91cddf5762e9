"""Tags of a table at one replica: give a version that is here a name, and take names away.

The replica takes a snapshot of the version with a lease, and commits the tag with the names of its parts
(`replitree.protocol.upkeep.tags`).
"""

from __future__ import annotations

from replitree.errors import BadInput, CorruptPart, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import MemoryEffect, Then
from replitree.protocol.program.tagger import ReleaseVersion, TakenVersion, TakeVersion, delete_tag, make_tag
from replitree.protocol.upkeep.tags import TAGS_MAX, OtherTag, TagChanged, TagValue, check_tag_name, read_tags
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.table.naming import Naming
from replitree.replica.table.snapshots import Snapshots


class Tagging:
    """Makes and deletes the tags of one table.

    Parameters
    ----------
    parts, snapshots
        The parts on this disk, and what takes snapshots of them.
    naming
        Commits the changes.
    """

    def __init__(self, context: TableContext, parts: LocalParts, snapshots: Snapshots, naming: Naming) -> None:
        self._context, self._naming = context, naming
        self._store, self._old_parts = parts.store, parts.old_parts
        self._snapshots = snapshots

    def make(self, name: str, index: fx.LogIndex, command: fx.EntryId) -> TagValue:
        """Give the version at an index, which is executed here, a name; return the tag.

        Parameters
        ----------
        command
            An id: when a tag of this name was made with it before, that one is the answer.

        Raises
        ------
        BadInput
            Another tag has the name, or the table has too many tags, or the name can't be one.
        SnapshotExpired
            What the table was at the index is not known here, or parts are gone.
        ReadOnly, Unavailable
            There is certainly no tag.
        OutcomeUnknown
            There may be a tag; repeat it with the same id.
        """
        check_tag_name(name)
        context = self._context
        known = context.performer.look_up(read_tags(context.replica.table))
        if len(known.tags) >= TAGS_MAX and name not in dict(known.tags):
            raise BadInput(f"table {context.replica.table.name} has {TAGS_MAX} tags: delete some first")
        taken = self._snapshots.take(index, LEASE_S_MAX)
        lease = taken.lease
        assert lease is not None, "a lease was asked for"
        try:
            manifests = [self._store.manifest(part) for part in taken.parts]
        except CorruptPart as error:
            self._old_parts.release(lease)
            raise SnapshotExpired(f"{error}; try again, or ask another replica") from error
        rows, size = sum(each.rows for each in manifests), sum(each.bytes for each in manifests)
        tag = TagValue(index, command, context.replica.name, tuple(sorted(taken.parts)), rows, size)

        def remember(effect: MemoryEffect, epoch: fx.Epoch) -> TakenVersion | None:
            match effect:
                case TakeVersion():
                    return TakenVersion(context.identity.encode(), epoch, tag)
                case ReleaseVersion():
                    self._old_parts.release(lease)
            return None

        outcome = self._naming.change(Then(make_tag, (context.replica, name, index)), f"tag {name}", remember)
        match outcome:
            case TagChanged(made):
                return made
            case OtherTag(TagValue(index=other)):
                raise BadInput(
                    f"there is a tag {name!r} already, of version {other}: delete it first, or give another name"
                )
        raise BadInput(f"tag {name!r} was made, and deleted by another client a moment later")

    def delete(self, name: str) -> bool:
        """Take a name away; False when there is no such tag.  Raises as `make`."""
        outcome = self._naming.change(Then(delete_tag, (self._context.replica, name)), f"tag {name}")
        return isinstance(outcome, TagChanged)


__all__ = ["Tagging"]
