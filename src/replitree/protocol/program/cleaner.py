"""The cleaner: forgets deduplication ids that are too many or too old, then removes the entries that no replica needs.

The ids come first: the entries tell which of them belong to dropped inserts (`replitree.protocol.upkeep.clean_blocks`).
Any number of replicas may clean at once.
"""

from __future__ import annotations

from replitree.protocol.core.effects import BlockId, Epoch, StreamId
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitCleaning, End, Stage, Then
from replitree.protocol.upkeep import clean_blocks, clean_log
from replitree.protocol.upkeep import clean_streams as streams
from replitree.protocol.upkeep.clean_blocks import Block, Window
from replitree.protocol.upkeep.clean_log import Keep


def clean_ids(replica: Replica, window: Window, keep: Keep, known: tuple[tuple[BlockId, Block], ...] = ()) -> Stage:
    """Forget the ids outside of a window; find out which are left, and what was removed.

    Parameters
    ----------
    known
        What the last turn of this process has left (`BlocksCleaned.blocks`): these ids are not read again.
    """
    epoch: Epoch = yield AwaitCleaning()
    cleaned = yield from clean_blocks.clean_blocks(replica, epoch, window, dict(known))
    return Then(clean_entries, (replica, keep), cleaned)


def clean_entries(replica: Replica, keep: Keep) -> Stage:
    """Remove entries from the low end of the log, and mark replicas lost for that; find out what became of it."""
    epoch: Epoch = yield AwaitCleaning()
    return End((yield from clean_log.clean_log(replica, epoch, keep)))


def clean_streams(replica: Replica, age_ms: int, now_ms: int) -> Stage:
    """Forget the streams whose last batch came more than `age_ms` before `now_ms`, or before the newest; find out which."""
    epoch: Epoch = yield AwaitCleaning()
    return End((yield from streams.clean_streams(replica, epoch, age_ms, now_ms)))


def forget_stream(replica: Replica, stream: StreamId) -> Stage:
    """Forget a stream that an operator names; find out what became of it."""
    epoch: Epoch = yield AwaitCleaning()
    return End((yield from streams.forget_stream(replica, epoch, stream)))


__all__ = ["clean_entries", "clean_ids", "clean_streams", "forget_stream"]
