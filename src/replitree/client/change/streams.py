"""The streams that write into a table: which there are, and that one is forgotten."""

from __future__ import annotations

from urllib.parse import quote

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S
from replitree.client.insert.streams import Stream, read_known
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput


@check_arguments
class TableStreams(ChangingTable):
    """The part of a `replitree.client.table.Table` that knows the streams into it."""

    _catalog: Catalog

    def streams(self) -> tuple[Stream, ...]:
        """Return the streams that write into the table, by their ids: the last batch of each, and when it came."""
        return self._catalog.run(read_known(self._catalog.place(self.name)))

    def drop_stream(self, stream: str, *, timeout_s: float = COMMAND_S) -> None:
        """Let the table forget a stream: a batch that is sent again is inserted again.

        Parameters
        ----------
        stream
            Its id.
        timeout_s
            How long to wait for a replica, in seconds.

        Raises
        ------
        BadInput
            There is no such stream.
        Unavailable
            No replica forgets it; it stays.
        OutcomeUnknown
            It may be forgotten; try again.
        """
        known = [each.id for each in self.streams()]
        if stream not in known:
            raise BadInput(f"table {self.name} has no stream {stream!r}; it has {', '.join(known) or 'none'}")
        self._commander.ask("DELETE", f"streams/{quote(stream, safe='')}", dict[str, bool], timeout_s=timeout_s)
