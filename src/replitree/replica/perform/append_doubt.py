"""What is certain of an entry when the stage that appends it ends by an exception: whether the log may have it.

An exception may end a stage anywhere, also while it looks what became of its commit: a read needs ZooKeeper.  Only the last
commit that appends tells then.  If it was sent and not refused, the client hears "unknown", and a newer epoch must fence it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx

Perform: TypeAlias = Callable[[fx.Effect], Any]
"""What performs effects and returns their outcomes."""


def appends(effect: fx.Effect) -> bool:
    """Whether an effect is a commit that appends to the log, or to a queue."""
    return isinstance(effect, fx.Commit) and any(
        isinstance(each, fx.Create) and each.sequential for each in effect.operations
    )


class AppendDoubt:
    """Performs the effects of one command's stages.

    Parameters
    ----------
    perform
        Performs the effects.

    Attributes
    ----------
    may_be_in_log
        Whether the log may have the command, of this try or of an earlier one with the same id.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self.may_be_in_log = False

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect and return its outcome."""
        # An error that a commit raises means that nothing was changed: so says the coordination port.
        outcome = self._perform(effect)
        if appends(effect):
            # A name that exists is the command's id: an earlier try has taken it.
            is_taken = isinstance(outcome, fx.Refused) and isinstance(outcome.operation, fx.Create)
            self.may_be_in_log = is_taken or not (
                isinstance(outcome, fx.Refused) or outcome == fx.Unknown(is_sent=False)
            )
        return outcome


__all__ = ["AppendDoubt", "Perform", "appends"]
