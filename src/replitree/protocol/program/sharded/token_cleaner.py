"""The cleaner of the tokens of a sharded table: it forgets those that are too many or too old.

A replica of one shard does it for all of them.  Two at once are safe (`replitree.protocol.upkeep.clean_tokens`).
"""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Epoch, Get, Node
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import AwaitCleaning, End, Stage
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


__all__ = ["clean_joint_tokens"]
