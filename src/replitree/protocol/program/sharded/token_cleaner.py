"""What is forgotten of a sharded table: tokens that are too many or too old, and streams that an operator names.

A replica of one shard forgets tokens for all of them; any replica forgets a stream.  Two at once are safe
(`replitree.protocol.upkeep.clean_tokens`, `replitree.protocol.sharded.joint_batch`).
"""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Epoch, Get, Node, StreamId
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitCleaning, End, Stage
from replitree.protocol.sharded.joint_batch import forget_joint_stream
from replitree.protocol.sharded.shard_map import decode_map
from replitree.protocol.upkeep.clean_blocks import Block, BlocksCleaned, Window
from replitree.protocol.upkeep.clean_tokens import clean_tokens


def clean_joint_tokens(replica: Replica, window: Window, known: tuple[tuple[BlockId, Block], ...] = ()) -> Stage:
    """Forget the tokens outside of a window, if it is this shard's turn; find out which are left, and what was removed.

    Parameters
    ----------
    known
        What the last turn of this process has left (`BlocksCleaned.blocks`): these tokens are not read again.
    """
    epoch: Epoch = yield AwaitCleaning()
    path = layout.shard_map(layout.sharded_of(replica.table))
    node: Node | None = yield Get(path)
    # The shard with the lowest number: one is enough, and every replica chooses the same.
    if node is None or f"{decode_map(node.value, path).shards[0]}" != replica.table.name.rpartition("~")[2]:
        return End(BlocksCleaned({}))
    return End((yield from clean_tokens(replica, epoch, window, dict(known))))


def forget_stream_of_all(replica: Replica, stream: StreamId) -> Stage:
    """Forget a stream into the sharded table; find out what became of it (`forget_joint_stream`)."""
    epoch: Epoch = yield AwaitCleaning()
    return End((yield from forget_joint_stream(replica, epoch, stream)))


__all__ = ["clean_joint_tokens", "forget_stream_of_all"]
