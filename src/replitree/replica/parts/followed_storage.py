"""The table's storage policy as this replica works by it: it follows the definition.

A table that gets a store has it opened here beside everything else, so that no request waits; a store that can't be used from
here leaves the replica as it was, and `problem` says why.  When the replica activates, the store must be usable
(`replitree.replica.parts.sharing`).
"""

from __future__ import annotations

from typing import Protocol

from replitree.errors import ReplitreeError
from replitree.protocol.core.effects import Epoch
from replitree.replica.parts.sharing import Host as SharingHost
from replitree.replica.parts.sharing import Sharing
from replitree.storage.schema.storage_policy import LOCAL, StorageKind


class Host(SharingHost, Protocol):
    """What following needs of the replica."""

    sharing: Sharing | None


class FollowedStorage:
    """Follows the storage policy of one table."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._used = LOCAL
        self.problem = ""
        """Why this replica does not work by the policy yet."""

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
        host, definition = self._host, self._host.definition
        if definition.storage == self._used:
            return
        if definition.is_shared and host.sharing is None:
            sharing = Sharing(host, definition)
            if epoch is not None:
                sharing.open()
            host.store.shared.objects, host.sharing = sharing.objects, sharing
            try:
                if epoch is not None:
                    sharing.settle(epoch)
            except ReplitreeError:
                host.store.shared.objects = host.sharing = None
                raise
        if not definition.is_shared:  # nothing is left there, or the log would not say so
            host.store.shared.objects = host.sharing = None
        host.exchange.takes_shares = definition.placement.kind is not StorageKind.LOCAL and host.config.zero_copy
        host.log.info("storage", before=self._used, after=definition.storage)
        self._used = definition.storage

    def follow(self) -> None:
        """Work by the policy if it has changed and this replica can; `problem` says why it can't."""
        epoch = self._host.active_epoch()
        if epoch is None:
            return
        try:
            self.use(epoch)
            self.problem = ""
        except (ReplitreeError, OSError) as error:
            if str(error) != self.problem:
                self._host.log.warning("the table's object store can't be used", reason=str(error))
            self.problem = str(error)


__all__ = ["FollowedStorage"]
