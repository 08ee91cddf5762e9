"""The streams that write into a table: which there are, and that one is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.streams import NO_BATCH, StreamValue


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that writes into a table.

    Attributes
    ----------
    id
        Its id: the ``txnAppId``, or the id of a streaming query.
    query
        The streaming query that writes it; empty: batch writes with ``txnVersion``.
    batch
        The last batch that the table has; of a sharded table also one whose quorum is open.
    time
        When that came, or a later one whose quorum was not reached, in UTC, by coordination's clock.
    """

    id: str
    query: str
    batch: int
    time: datetime


def read_known(table: TablePlace, *, is_sharded: bool = False) -> fx.Procedure[tuple[Stream, ...]]:
    """Return the streams of a table, or of a sharded one, by their ids."""
    # They import what an insert consists of, which no query needs.
    from replitree.protocol.upkeep.clean_streams import read_streams

    yield fx.Sync(layout.streams(table))
    known: list[Stream] = []
    for each in (yield from read_streams(table)):
        value = (yield from _without_failed(table, each.value)) if is_sharded else each.value
        if value is not None and value.batch != NO_BATCH:
            time = datetime.fromtimestamp(each.node.changed_ms / 1000, UTC)
            known.append(Stream(id=each.id, query=value.query, batch=value.batch, time=time))
    return tuple(sorted(known, key=lambda stream: stream.id))


def _without_failed(table: TablePlace, value: StreamValue) -> fx.Procedure[StreamValue | None]:
    """Return where a stream into a sharded table stands, without a last batch whose quorum was not reached.

    The node names such a batch until the next one comes (`replitree.protocol.sharded.joint_batch`).
    """
    if value.quorum is UNSET:
        return value
    from replitree.protocol.sharded.joint_batch import batch_token

    joint = fx.JointId(value.insert)
    token = layout.joint_token(table.path, batch_token(joint))
    # In this order: the token is read as it was when the quorum ended, or later.
    opened, taken = (yield fx.GetMany((layout.joint_insert(table.path, joint), token))).nodes
    if opened is not None or taken is not None:
        return value
    return None if value.before is UNSET else value.before


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
