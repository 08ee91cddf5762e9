"""The table's storage policy as this replica works by it: it follows the definition.

A table that gets a store has it opened here beside everything else, so that no request waits; a store that can't be used from
here leaves the replica as it was, and `problem` says why.  When the replica activates, the store must be usable
(`replitree.replica.parts.sharing`).
"""

from __future__ import annotations

from collections.abc import Callable

from replitree.errors import ReplitreeError, Unavailable
from replitree.protocol.core.effects import Effect, Epoch
from replitree.protocol.program import life_in_store
from replitree.protocol.program.stages import MemoryEffect, Opened, Then
from replitree.protocol.shares.share_effects import Sharer
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.exchange import Exchange
from replitree.storage.disk.store import PartStore
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.storage_policy import LOCAL, StorageKind


class FollowedStorage:
    """Follows the storage policy of one table.

    Parameters
    ----------
    store, exchange
        What reads objects, and takes shares over, once the table has a store.
    new_sharing
        Makes the table's shares; nothing of the store is opened yet.
    """

    def __init__(
        self,
        context: TableContext,
        store: PartStore,
        exchange: Exchange,
        new_sharing: Callable[[TableDefinition], Sharing],
    ) -> None:
        self._context = context
        self._store = store
        self._exchange = exchange
        self._new_sharing = new_sharing
        self._used = LOCAL
        self.sharing: Sharing | None = None
        """The table's shares; None while the table has no store."""
        self.problem = ""
        """Why this replica does not work by the policy yet."""

    def maker_for_all(self) -> Sharer | None:
        """Return the replica as the maker of results that all will own; None where each replica makes its own."""
        sharing = self.sharing
        return sharing.sharer if sharing is not None and sharing.is_for_new_parts else None

    def use(self, epoch: Epoch | None) -> None:
        """Work by the policy from now on.

        Parameters
        ----------
        epoch
            While the replica is active: a store is opened at once.  None: its activation does that.

        Raises
        ------
        ReplitreeError, OSError
            The store can't be used; all is as it was.
        """
        definition = self._context.definitions.current
        if definition.storage == self._used:
            return
        if definition.is_shared and self.sharing is None:
            sharing = self._new_sharing(definition)
            if epoch is None:
                self._share(sharing)
            else:
                self._open(sharing, epoch)
        # The log says so only after nothing of the table is left in the store.
        if not definition.is_shared:
            self._share(None)
        takes_shares = definition.placement.kind is not StorageKind.LOCAL and self._context.config.zero_copy
        self._exchange.takes_shares = takes_shares
        self._context.log.info("storage", before=self._used, after=definition.storage)
        self._used = definition.storage

    def _share(self, sharing: Sharing | None) -> None:
        self._store.shared.objects, self.sharing = None if sharing is None else sharing.objects, sharing

    def _open(self, sharing: Sharing, epoch: Epoch) -> None:
        """Open the store while the replica is active.  Raises as `use`."""
        context = self._context

        def remember(effect: MemoryEffect) -> None:
            if isinstance(effect, Opened):
                sharing.opened(effect.incarnation)
                self._share(sharing)

        # No other thread knows these shares before they are settled.
        def perform(effect: Effect) -> object:
            return sharing.perform_beside(effect, context.performer.perform)

        opening = (context.replica, epoch, sharing.probe(), context.identity.incarnation)
        outcome = Driver(context.performer, remember, perform).finish(Then(life_in_store.open_store, opening))
        if isinstance(outcome, life_in_store.StoreNotReached):
            raise Unavailable(outcome.reason)

    def follow(self, epoch: Epoch) -> None:
        """Work by the policy if it has changed and this replica can; `problem` says why it can't."""
        try:
            self.use(epoch)
            self.problem = ""
        except (ReplitreeError, OSError) as error:
            if str(error) != self.problem:
                self._context.log.warning("the table's object store can't be used", reason=str(error))
            self.problem = str(error)


__all__ = ["FollowedStorage"]
