"""Tags of a table at one replica: give a version that is here a name, and take names away.

The replica takes a snapshot of the version with a lease, and commits the tag with the names of its parts
(`replitree.protocol.upkeep.tags`).
"""

from __future__ import annotations

from collections.abc import Callable

from replitree.errors import BadInput, CorruptPart, OutcomeUnknown, ReadOnly, ReplitreeError, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.stages import MemoryEffect, ReportTrouble, Then
from replitree.protocol.program.tagger import (
    AwaitTagging,
    ReleaseVersion,
    TaggingTurn,
    TakenVersion,
    TakeVersion,
    delete_tag,
    make_tag,
)
from replitree.protocol.upkeep.tags import (
    TAGS_MAX,
    OtherTag,
    TagChanged,
    TagNotChanged,
    TagOutcome,
    TagValue,
    check_tag_name,
    read_tags,
)
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.snapshots import Snapshots


class Tagging:
    """Makes and deletes the tags of one table.

    Parameters
    ----------
    parts, snapshots
        The parts on this disk, and what takes snapshots of them.
    """

    def __init__(
        self, context: TableContext, parts: LocalParts, availability: Availability, snapshots: Snapshots
    ) -> None:
        self._context = context
        self._store, self._old_parts = parts.store, parts.old_parts
        self._availability = availability
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
        context, epoch = self._context, self._availability.epoch()
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

        def remember(effect: MemoryEffect) -> TakenVersion | None:
            match effect:
                case TakeVersion():
                    return TakenVersion(context.identity.encode(), epoch, tag)
                case ReleaseVersion():
                    self._old_parts.release(lease)
            return None

        return self._changed(Then(make_tag, (context.replica, name, index)), remember, name)

    def delete(self, name: str) -> bool:
        """Take a name away; False when there is no such tag.  Raises as `make`."""
        context, epoch = self._context, self._availability.epoch()

        def remember(effect: MemoryEffect) -> TaggingTurn | None:
            return TaggingTurn(context.identity.encode(), epoch) if isinstance(effect, AwaitTagging) else None

        try:
            self._changed(Then(delete_tag, (context.replica, name)), remember, name)
        except _NoTag:
            return False
        return True

    def _changed(self, stage: Then, remember: Callable[[MemoryEffect], object], name: str) -> TagValue:
        """Run a stage that changes a tag, and return the tag."""
        context = self._context
        committed: list[fx.Committed] = []

        def perform(effect: fx.Effect) -> object:
            outcome = context.performer.perform(effect)
            if isinstance(effect, fx.Commit):
                committed.append(outcome)
            return outcome

        def remembered(effect: MemoryEffect) -> object:
            if isinstance(effect, ReportTrouble):
                self._availability.trouble(Evidence.UNKNOWN, "the answer to the commit of a tag was lost")
            return remember(effect)

        try:
            outcome: TagOutcome = Driver(context.performer, remembered, perform).finish(stage)
        except (ReplitreeError, OSError) as error:
            if all(isinstance(each, fx.Refused) for each in committed):
                raise
            # The lease stays: the commit may have taken place.
            self._availability.trouble(Evidence.UNKNOWN, "the change of a tag has ended without an answer")
            raise OutcomeUnknown(f"tag {name} may be changed ({error}); repeat it with the same id", "") from error
        match outcome:
            case TagChanged(tag):
                return tag
            case OtherTag(TagValue(index=index)):
                raise BadInput(
                    f"there is a tag {name!r} already, of version {index}: delete it first, or give another name"
                )
            case OtherTag():
                raise _NoTag(f"there is no tag {name!r}")
            case TagNotChanged(reason):
                raise ReadOnly(f"nothing was changed: {reason}")
            case Replaced():
                raise ReadOnly(f"nothing was changed: {REPLACED}")
        raise OutcomeUnknown(f"tag {name} may be changed; repeat it with the same id", "")


class _NoTag(BadInput):
    """There is no tag of this name."""


__all__ = ["Tagging"]
