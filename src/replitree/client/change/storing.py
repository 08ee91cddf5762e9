"""Changes of where a table's rows lie: on the disks of its replicas, in an object store, or both."""

from __future__ import annotations

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.named_stores import with_url
from replitree.storage.schema.storage_policy import parse_storage


@check_arguments
class TableStorage(ChangingTable):
    """The half of `replitree.client.table.Table` that says where its rows lie."""

    _catalog: Catalog

    def set_storage(
        self, storage: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Change where the rows lie.  Parts that are there move afterwards, one by one, while everything else goes on.

        Parameters
        ----------
        storage
            ``"local"``; the URL of an object store; or ``"tiered(URL, older=7d)"``, ``"tiered(URL, free=100GB)"``, or with
            both; see `replitree.storage.schema.storage_policy`.  Instead of a URL the name that servers have given a
            store.  How far the parts are, `Connection.status` tells.
        command_id, timeout_s
            As `delete`; errors too.

        Raises
        ------
        BadInput
            It is no policy, the cluster has no store of this name, or the table's parts lie in another store.
        """
        wanted = parse_storage(with_url(self._catalog, storage)).text
        return self._command("storage", {"storage": wanted}, command_id, timeout_s)
