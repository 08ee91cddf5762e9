"""Changes of named nodes, of tags and consumers, by one replica: what became of the stage that makes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.errors import OutcomeUnknown, ReadOnly, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.stages import MemoryEffect, ReportTrouble, Then
from replitree.protocol.program.tagger import AwaitNaming, NamingTurn
from replitree.protocol.upkeep.named_nodes import NotChanged
from replitree.replica.kit.evidence import Evidence
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver


class Naming:
    """Runs the stages that change named nodes of one table."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context, self._availability = context, availability

    def change(
        self,
        stage: Then,
        what: str,
        remember: Callable[[MemoryEffect, fx.Epoch], object] = lambda _effect, _epoch: None,
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

        Raises
        ------
        ReadOnly, Unavailable
            Nothing was changed for certain.
        OutcomeUnknown
            It may be changed; repeat the command.
        """
        context, availability, epoch = self._context, self._availability, self._availability.epoch()
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
                case AwaitNaming():
                    return NamingTurn(context.identity.encode(), epoch)
            return remember(effect, epoch)

        try:
            outcome = Driver(context.performer, remembered, perform).finish(stage)
        except (ReplitreeError, OSError) as error:
            if all(isinstance(each, fx.Refused) for each in committed):
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


__all__ = ["Naming"]
