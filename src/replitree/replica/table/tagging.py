"""Tags of a table at one replica: give a version that is here a name, and take names away; and what commits such changes.

The replica takes a snapshot of the version with a lease, and commits the tag with the names of its parts
(`replitree.protocol.upkeep.tags`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from replitree.errors import BadInput, CorruptPart, OutcomeUnknown, ReadOnly, ReplitreeError, SnapshotExpired
from replitree.protocol.core import effects as fx
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.stages import MemoryEffect, ReportTrouble, Then
from replitree.protocol.program.tagger import (
    AwaitNaming,
    NamingTurn,
    ReleaseVersion,
    TakenVersion,
    TakeVersion,
    delete_tag,
    make_tag,
)
from replitree.protocol.upkeep.named_nodes import NotChanged
from replitree.protocol.upkeep.tags import TAGS_MAX, OtherTag, TagChanged, TagValue, check_tag_name, read_tags
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.snapshots import Snapshots


class Naming:
    """Runs the stages that change named nodes of one table."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context, self._availability = context, availability

    def change(
        self,
        stage: Then,
        what: str,
        remember: Callable[[MemoryEffect, fx.Epoch], object] = lambda _effect, _epoch: None,
        release: Callable[[], object] = lambda: None,
    ) -> Any:
        """Run a stage that changes a named node, and return what it found out.

        Parameters
        ----------
        stage
            The stage.
        what
            The node, for errors: "tag x".
        remember
            Performs an effect on memory for the process with this epoch; returns its outcome.
        release
            Lets go of what is held for the node; called when it is certain that the commit took no place.

        Raises
        ------
        ReadOnly, Unavailable
            Nothing was changed for certain.
        OutcomeUnknown
            It may be changed; repeat the command.
        """
        context, availability = self._context, self._availability
        try:
            epoch = availability.epoch()
        except ReplitreeError:
            release()
            raise
        committed: list[fx.Committed] = []

        def perform(effect: fx.Effect) -> object:
            outcome = context.performer.perform(effect)
            if isinstance(effect, fx.Commit):
                committed.append(outcome)
            return outcome

        def remembered(effect: MemoryEffect) -> object:
            match effect:
                case ReportTrouble():
                    availability.trouble(Evidence.UNKNOWN, f"the answer to a change of {what} was lost")
                    return None
                case AwaitNaming():
                    return NamingTurn(context.identity.encode(), epoch)
            return remember(effect, epoch)

        try:
            outcome = Driver(context.performer, remembered, perform).finish(stage)
        except (ReplitreeError, OSError) as error:
            if all(isinstance(each, fx.Refused) for each in committed):
                release()
                raise
            # What is held for it stays held: the commit may have taken place.
            availability.trouble(Evidence.UNKNOWN, f"a change of {what} has ended without an answer")
            raise OutcomeUnknown(f"{what} may be changed ({error}); repeat it with the same id", "") from error
        match outcome:
            case NotChanged(reason):
                raise ReadOnly(f"nothing was changed: {reason}")
            case Replaced():
                raise ReadOnly(f"nothing was changed: {REPLACED}")
            case fx.InDoubt():
                raise OutcomeUnknown(f"{what} may be changed; repeat it with the same id", "")
        return outcome


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

        stage, release = Then(make_tag, (context.replica, name, index)), partial(self._old_parts.release, lease)
        match self._naming.change(stage, f"tag {name}", remember, release):
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


__all__ = ["Naming", "Tagging"]
