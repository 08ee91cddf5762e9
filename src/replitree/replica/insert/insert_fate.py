"""What is certain of a group's requests while they are inserted: whether the log may have them.

An exception may end the procedure anywhere.  Which requests it leaves without an answer, and what they hear, follows from the
last commit that appends to the log:

=========  ========================================================  ==================================================
fate       the last such commit for the request                      what its client hears
=========  ========================================================  ==================================================
UNSENT     there was none, or coordination refused it for good       it has failed, with the reason
DUPLICATE  refused because of a block id that exists, or a stream    unknown: an earlier insert may have its rows
           that has moved
SENT       it was sent; it was applied, or its answer did not come   unknown; the commit must be fenced by a newer epoch
=========  ========================================================  ==================================================
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from replitree.errors import BadInput, NotAuthorized
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.replica.perform.append_doubt import Perform, appends


class Fate(Enum):
    """See the module's docstring."""

    UNSENT = "unsent"
    DUPLICATE = "duplicate"
    SENT = "sent"


class Fates:
    """Performs the effects of one group's procedure, and follows what becomes of its requests.

    Parameters
    ----------
    table
        The table.
    perform
        Performs the effects.
    """

    def __init__(self, table: TablePlace, perform: Perform) -> None:
        self._taken = (layout.blocks(table), layout.streams(table))
        self._perform = perform
        self._staged: tuple[fx.RequestId, ...] = ()
        self._fates: dict[fx.RequestId, Fate] = {}

    def of(self, request: fx.RequestId) -> Fate:
        """Return what is known for certain about a request."""
        return self._fates.get(request, Fate.UNSENT)

    def perform(self, effect: fx.Effect) -> Any:
        """Perform one effect and return its outcome."""
        if isinstance(effect, fx.Stage):
            # A group is staged again only after its earlier commit was refused.
            self._staged = effect.requests
            self._note(Fate.UNSENT)
        if not appends(effect):
            return self._perform(effect)
        self._note(Fate.SENT)
        try:
            outcome = self._perform(effect)
        except (BadInput, NotAuthorized):
            # By the contract of the coordination port, these errors mean that nothing was changed.
            self._note(Fate.UNSENT)
            raise
        if outcome == fx.Unknown(is_sent=False):
            self._note(Fate.UNSENT)
        elif isinstance(outcome, fx.Refused):
            is_taken = outcome.operation.path.startswith(self._taken)
            self._note(Fate.DUPLICATE if is_taken else Fate.UNSENT)
        return outcome

    def _note(self, fate: Fate) -> None:
        self._fates.update(dict.fromkeys(self._staged, fate))


__all__ = ["Fate", "Fates"]
