"""The streams of a table at one replica: which there are, and that one is forgotten."""

from __future__ import annotations

from replitree.errors import OutcomeUnknown, ReadOnly
from replitree.protocol.core.effects import InDoubt
from replitree.protocol.core.layout import check_stream_id
from replitree.protocol.program.cleaner import forget_stream
from replitree.protocol.program.stages import End, Then
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
        found = self._context.performer.look_up(read_streams(self._context.replica.table))
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
        asked = Then(forget_stream, (context.replica, check_stream_id(stream)))
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
