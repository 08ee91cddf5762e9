"""What every change of a table needs of its handle: who is asked, and what the handle has written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from replitree.client.change.command import Commander, CommandResult
from replitree.client.transport.frames import note_for_frames
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from replitree.client.insert.terms import Written
    from replitree.client.read.snapshot import Snapshot

LOOK_S = 10.0
"""How long a replica may take to list something, in seconds."""


class ChangingTable(ABC):
    """A table that can be changed; `replitree.client.table.Table` sets the attributes."""

    _definition: TableDefinition
    _commander: Commander
    _written: Written

    @property
    def name(self) -> str:
        """The table's name."""
        return self._definition.name

    @abstractmethod
    def _leased(self, timeout_s: float) -> Snapshot:
        """Return a linearizable snapshot whose parts stay until it is closed."""

    @abstractmethod
    def _known(self, version: int) -> TableDefinition:
        """Return the definition with at least this schema version."""

    def _command(self, verb: str, body: dict[str, Any], command_id: str | None, timeout_s: float) -> CommandResult:
        result = self._commander.command(verb, body, command_id, timeout_s=timeout_s)
        # Only finished commands are noted: later snapshots would wait for the others.
        if result.finished:
            is_mutation = verb == "mutations"
            (self._written.add_mutation if is_mutation else self._written.add)(result.index)
            note_for_frames(self, result.index, is_mutation=is_mutation)
        return result
