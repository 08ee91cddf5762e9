"""The streams that write into a table: which there are, and that one is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that writes into a table.

    Attributes
    ----------
    id
        Its id: the ``txnAppId``, or the id of a streaming query.
    query
        The streaming query that writes it; empty: batch writes with ``txnVersion``.
    batch
        The last batch that the table has.
    time
        When that came, in UTC, by coordination's clock.
    """

    id: str
    query: str
    batch: int
    time: datetime


def read_known(table: TablePlace) -> fx.Procedure[tuple[Stream, ...]]:
    """Return the streams of a table by their ids."""
    # It imports what an insert consists of, which no query needs.
    from replitree.protocol.upkeep.clean_streams import read_streams

    yield fx.Sync(layout.streams(table))
    found = yield from read_streams(table)
    known = (
        Stream(
            id=each.id,
            query=each.value.query,
            batch=each.value.batch,
            time=datetime.fromtimestamp(each.node.changed_ms / 1000, UTC),
        )
        for each in found
        if not each.is_empty
    )
    return tuple(sorted(known, key=lambda stream: stream.id))


def check_stream(table: str, stream: str, known: tuple[Stream, ...]) -> None:
    """Raise unless a table has a stream.

    Raises
    ------
    BadInput
        It is none of those that are known.
    """
    names = [each.id for each in known]
    if stream not in names:
        raise BadInput(f"table {table} has no stream {stream!r}; it has {', '.join(names) or 'none'}")


@check_arguments
class TableStreams(ChangingTable):
    """The part of a `replitree.client.table.Table` that knows the streams into it."""

    _catalog: Catalog

    def streams(self) -> tuple[Stream, ...]:
        """Return the streams that write into the table, by their ids: the last batch of each, and when it came."""
        return self._catalog.of_table(self.name, self._catalog.run(read_known(self._catalog.place(self.name))))

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
        check_stream(self.name, stream, self.streams())
        self._commander.ask("DELETE", f"streams/{quote(stream, safe='')}", dict[str, bool], timeout_s=timeout_s)
