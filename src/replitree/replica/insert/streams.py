"""The streams of a table at one replica: which there are, and that one is forgotten.

The streams of a sharded table are those of all its shards: a replica of any shard tells them, and forgets one.
"""

from __future__ import annotations

from replitree.errors import OutcomeUnknown, ReadOnly
from replitree.protocol.core import layout
from replitree.protocol.core.effects import InDoubt
from replitree.protocol.core.layout import TablePlace, check_stream_id
from replitree.protocol.program.cleaner import forget_stream
from replitree.protocol.program.sharded.token_cleaner import forget_stream_of_all
from replitree.protocol.program.stages import End, Then
from replitree.protocol.sharded.places import is_shard_name
from replitree.protocol.upkeep.clean_streams import read_streams
from replitree.replica.kit.evidence import Evidence
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver


class ReplicaStreams:
    """The streams of one table."""

    def __init__(self, context: TableContext, availability: Availability) -> None:
        self._context = context
        self._availability = availability

    def all(self) -> list[dict[str, object]]:
        """Return the streams: id, query, last batch, and when it was written, in milliseconds since 1970."""
        table = self._context.replica.table
        place = TablePlace(layout.sharded_of(table)) if is_shard_name(table.name) else table
        found = self._context.performer.look_up(read_streams(place))
        return [
            {"id": each.id, "query": each.value.query, "batch": each.value.batch, "written_ms": each.node.changed_ms}
            for each in found
            if not each.is_empty
        ]

    def forget(self, stream: str) -> bool:
        """Forget a stream; False when the table does not know it.

        Raises
        ------
        ReadOnly
            The stream is certainly not forgotten.
        OutcomeUnknown
            It may be; it may be forgotten again.
        """
        context, epoch = self._context, self._availability.epoch()
        forget = forget_stream_of_all if is_shard_name(context.replica.table.name) else forget_stream
        asked = Then(forget, (context.replica, check_stream_id(stream)))
        ended = Driver(context.performer, lambda _: epoch).run(asked)
        assert isinstance(ended, End), "a stream is forgotten in one stage"
        if isinstance(ended.outcome, InDoubt):
            self._availability.trouble(Evidence.UNKNOWN, "the answer to the removal of a stream was lost")
            raise OutcomeUnknown(f"stream {stream} may be forgotten; try again", "")
        if ended.outcome is None:
            raise ReadOnly(
                f"stream {stream} was not forgotten: the replica's epoch changes, or batches come in; try again"
            )
        return ended.outcome is True


__all__ = ["ReplicaStreams"]
