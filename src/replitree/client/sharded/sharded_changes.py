"""What a sharded table has as a whole beside its rows: the streams into it.

These are nodes below ``sharded/<D>``, which a replica of any shard changes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.command import COMMAND_S
from replitree.client.change.streams import Stream, check_stream, read_known
from replitree.client.sharded.sharded_catalog import read_map
from replitree.client.table import Table
from replitree.errors import ReplicaUnavailable, Unavailable
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace

if TYPE_CHECKING:
    from typing import Any

    from replitree.client.sharded.cut_reads import Shards

_T = TypeVar("_T")


@check_arguments
class ShardedChanges(Table):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that changes nodes of the whole table."""

    @abstractmethod
    def find(self, where: str | None) -> Shards:
        """Return the shards that can have rows for a condition, and all others, by the map that this handle knows."""

    @property
    def _place(self) -> TablePlace:
        """Where the nodes of the whole table are."""
        return TablePlace(layout.sharded(self._catalog.root, self.name))

    @override
    def streams(self) -> tuple[Stream, ...]:
        """Return the streams that write into the table, by their ids: the last batch of each, and when it came.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        found = self._catalog.run(read_known(self._place))
        if not found:
            read_map(self._catalog, self.name)
        return found

    @override
    def drop_stream(self, stream: str, *, timeout_s: float = COMMAND_S) -> None:
        """Let the table forget a stream; all as of `Table.drop_stream`, over all shards."""
        check_stream(self.name, stream, self.streams())
        self._ask_any("DELETE", f"streams/{quote(stream, safe='')}", dict[str, bool], timeout_s=timeout_s)

    def _ask_any(
        self, method: str, verb: str, kind: type[_T], body: dict[str, Any] | None = None, *, timeout_s: float
    ) -> _T:
        """Ask a replica of any shard for something that does no harm when it is asked for again.

        Raises
        ------
        Unavailable
            No replica of any shard takes it.
        """
        refused: Unavailable = ReplicaUnavailable(f"table {self.name} has no shard")
        shards = self.find(None).all
        for shard in sorted(shards, key=lambda each: not any(replica.active for replica in each.replicas())):
            try:
                return shard.commander.ask(method, verb, kind, body, timeout_s=timeout_s)[1]
            except Unavailable as error:
                refused = error
        raise refused


__all__ = ["ShardedChanges"]
