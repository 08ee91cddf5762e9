"""What the last entries of the log have changed: to know what became of a command, and what the table was a while ago.

The parts that a table had at an earlier index are those at the pointer with the later changes taken back, one by one.  It is
kept from the moment on that this process began to pull, for `CHANGES_MAX` entries at most: parts that left earlier are gone
from disk anyway.

Memory only, and not locked: `replitree.replica.perform.progress` calls it under its own lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import takewhile

from replitree.protocol.core.effects import EntryId, LogIndex
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    StorageEntry,
    ViewEntry,
)
from replitree.protocol.core.fold import Change, open_after
from replitree.protocol.core.parts import Part
from replitree.protocol.state.pull import Place, Queued
from replitree.protocol.state.read import parts_at

CHANGES_MAX = 50_000
"""Entries whose changes are remembered, about 300 bytes each."""

COMMANDS_MAX = 1_000
"""Commands and merges that are remembered as they stood in the log."""


class History:
    """The last changes, by index, without a gap up to the pointer."""

    def __init__(self) -> None:
        self._changes: OrderedDict[LogIndex, Change] = OrderedDict()
        self._commands: OrderedDict[LogIndex, Queued] = OrderedDict()
        self._opened: tuple[LogIndex, ...] = ()
        self._opened_before: dict[LogIndex, tuple[LogIndex, ...]] = {}
        self.first = LogIndex(0)

    def begin(self, index: LogIndex, opened: tuple[LogIndex, ...] = ()) -> None:
        """Forget everything: what came before `index`, where these inserts are open, is not known."""
        self._changes.clear()
        self._opened_before.clear()
        self.first, self._opened = index, opened

    def loaded(self, queue: Iterable[Queued]) -> None:
        """Take in the commands of a queue that was loaded; their changes may be half made."""
        for item in queue:
            self._remember(item)

    def pulled(self, entries: Iterable[Queued]) -> None:
        """Take in what was pulled, in order."""
        for item in entries:
            self._changes[item.index] = item.change
            if self._opened:
                self._opened_before[item.index] = self._opened
            self._opened = open_after(self._opened, item.index, item.entry)
            self._remember(item)
        while len(self._changes) > CHANGES_MAX:
            index, _ = self._changes.popitem(last=False)
            self._opened_before.pop(index, None)
            self.first = LogIndex(index + 1)

    def _remember(self, item: Queued) -> None:
        if isinstance(
            item.entry, MergeEntry | MutateEntry | RewriteEntry | DropEntry | AlterEntry | StorageEntry | ViewEntry
        ):
            self._commands[item.index] = item
            self._commands.move_to_end(item.index)
        while len(self._commands) > COMMANDS_MAX:
            self._commands.popitem(last=False)

    def command(self, index: LogIndex) -> Queued | None:
        """Return the command or merge at `index`, if it is remembered."""
        return self._commands.get(index)

    def commands(self) -> tuple[Queued, ...]:
        """Return the commands and merges that are remembered, ascending."""
        return tuple(self._commands[index] for index in sorted(self._commands))

    def index_of(self, command: EntryId) -> LogIndex | None:
        """Return where a command with this id stands in the log, if it is remembered."""
        for item in reversed(self._commands.values()):
            if not isinstance(item.entry, MergeEntry) and getattr(item.entry, "id", None) == command:
                return item.index
        return None

    def change(self, index: LogIndex) -> Change | None:
        """Return what the entry at `index` changed, if that is remembered."""
        known = self._changes.get(index)
        item = self._commands.get(index)
        return known if known is not None or item is None else item.change

    def applies(self, index: LogIndex) -> bool | None:
        """Return whether the entry at `index` applies; None when it was pulled before this process remembers."""
        known = self._changes.get(index)
        if known is not None:
            return not known.is_empty
        # From a queue that was loaded: what it has changed may be done already, so only a change is proof.
        item = self._commands.get(index)
        return True if item is not None and not item.change.is_empty else None

    def parts_at(
        self, place: Place, index: LogIndex, queue: Iterable[Queued], is_here: Callable[[Part], bool]
    ) -> tuple[Part, ...] | None:
        """Return the parts that the table had at `index`, as far as they are here.

        Parameters
        ----------
        place
            Where the replica stands, not before `index`.
        queue
            What it has not executed, ascending: of merges the sources are taken in place of the result.
        is_here
            Whether a part is on this disk.

        Returns
        -------
        None when `index` is before what is remembered.
        """
        assert index <= place.pointer.index
        if index < self.first:
            return None
        later = takewhile(lambda at: at >= index, reversed(self._changes))
        changes = (self._changes[at] for at in later)
        return tuple(parts_at(place.parts, changes, queue, index, is_here, self.open_at(index)))

    def open_at(self, index: LogIndex) -> tuple[LogIndex, ...]:
        """Return the inserts that are open at an index, which is not before what is remembered."""
        opened = self._opened
        for later in reversed(self._changes):
            if later < index:
                break
            opened = self._opened_before.get(later, ())
        return opened
