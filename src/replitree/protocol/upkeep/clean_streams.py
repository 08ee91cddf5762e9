"""Clean the streams: forget those that were not written for long, and those that an operator names.

A stream stays for `age_ms` after its last batch, however many inserts come in between.  "Now" is the time of the newest node
that the caller or this procedure has read, by the clock of coordination: a replica whose clock is wrong forgets none too early.

A batch of a forgotten stream is inserted again if it is sent again.  Every removal raises the version of the node ``streams``,
so an insert that has read the stream before is refused, and reads again (`protocol.insert.stream`).
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.streams import NO_BATCH, StreamValue, decode_stream
from replitree.protocol.insert.stream import read_stream

BATCH = 100
"""Nodes removed in one commit."""

READ_BATCH = 1000
"""Nodes read at once."""

TRIES_MAX = 10
"""Tries of a removal while other commits move or remove the stream."""


@dataclass(frozen=True, slots=True)
class KnownStream:
    """A stream of a table: its id, its node, and what the node says."""

    id: fx.StreamId
    node: fx.Node
    value: StreamValue

    @property
    def is_empty(self) -> bool:
        """Whether the table has none of its batches, because its only insert has failed."""
        return self.value.batch == NO_BATCH


def read_streams(table: TablePlace) -> fx.Procedure[tuple[KnownStream, ...]]:
    """Read the streams of a table, in the order of their nodes' names."""
    names: tuple[str, ...] = (yield fx.Children(layout.streams(table))) or ()
    found: list[KnownStream] = []
    for first in range(0, len(names), READ_BATCH):
        ids = tuple(map(layout.stream_id_of, names[first : first + READ_BATCH]))
        paths = tuple(layout.stream(table, stream) for stream in ids)
        many: fx.Many = yield fx.GetMany(paths)
        found += (
            KnownStream(stream, node, decode_stream(node.value, path))
            for stream, path, node in zip(ids, paths, many.nodes, strict=True)
            if node is not None
        )
    return tuple(found)


def clean_streams(
    cleaner: Replica, epoch: fx.Epoch, age_ms: int, now_ms: int = 0
) -> fx.Procedure[tuple[fx.StreamId, ...]]:
    """Forget the streams whose last batch came more than `age_ms` ago; return those that are certainly gone.

    Parameters
    ----------
    cleaner, epoch
        The replica that cleans, active under `epoch`.
    now_ms
        A time that coordination has shown, such as that of the newest block id.
    """
    table = cleaner.table
    parent: fx.Node | None = yield fx.Get(layout.streams(table))
    if parent is None:
        return ()
    streams = yield from read_streams(table)
    now = max((now_ms, *(each.node.changed_ms for each in streams)))
    old = tuple(each for each in streams if each.node.changed_ms < now - age_ms)
    version = parent.version
    for first in range(0, len(old), BATCH):
        deletes = (fx.Delete(layout.stream(table, each.id), each.node.version) for each in old[first : first + BATCH])
        counted = fx.Set(layout.streams(table), b"", version)
        committed = yield fx.Commit(fx.Check(layout.host(cleaner), epoch), counted, *deletes)
        # If a stream moves at the same time, the rest waits for the next turn.
        if not isinstance(committed, fx.Applied):
            return tuple(each.id for each in old[:first])
        version = fx.Version(version + 1)
    return tuple(each.id for each in old)


def forget_stream(replica: Replica, epoch: fx.Epoch, stream: fx.StreamId) -> fx.Procedure[bool | fx.InDoubt | None]:
    """Forget one stream.

    Returns
    -------
    True: it is gone.  False: the table does not know it.  None: this process has not the epoch, or the stream moves all the
    time.
    """
    table, path = replica.table, layout.stream(replica.table, stream)
    for _ in range(TRIES_MAX):
        yield fx.Sync(path)
        stands = yield from read_stream(table, stream)
        if stands.parent is None or stands.node is None:
            return False
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch),
            fx.Set(layout.streams(table), b"", stands.parent.version),
            fx.Delete(path, stands.node.version),
        )
        match committed:
            case fx.Applied():
                return True
            case fx.Refused(operation=fx.Check()):
                return None
            case fx.Unknown():
                return fx.InDoubt()
    return None
