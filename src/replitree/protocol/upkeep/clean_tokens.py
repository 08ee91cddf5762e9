"""Clean the tokens of a sharded table: forget the oldest, by number and by age.

As for the deduplication ids of a table (`protocol.upkeep.clean_blocks`), a token stays if it is both among the newest and young
enough, by the times at which the coordination service wrote the nodes.  A token that is gone makes its insert no duplicate any
more, and nothing else: a coordinator in doubt searches the log (`protocol.sharded.joint_insert`).

Each commit that removes tokens also writes the node ``tokens``.  So its version counts the removals, here as where a joint
insert fails (`protocol.insert.joint_quorum`): a token that was removed and taken anew looks like the old one, and must stay.

The token of a batch with a quorum stays while its stream names the batch: it says whether the batch counts
(`protocol.sharded.joint_batch`).  Streams are read after the tokens, and no stream names a batch again that it has left.

Any replica of any shard may clean, and several at once.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.joint_tokens import decode_token
from replitree.protocol.core.layout import Replica
from replitree.protocol.sharded.joint_batch import is_of_batch, named_with_quorum
from replitree.protocol.upkeep.clean_blocks import BATCH, READ_BATCH, Block, Blocks, BlocksCleaned, Window, outside


def clean_tokens(cleaner: Replica, epoch: fx.Epoch, window: Window, known: Blocks) -> fx.Procedure[BlocksCleaned]:
    """Remove the tokens of a sharded table that are outside of a window.

    Parameters
    ----------
    cleaner, epoch
        A replica of one of its shards, active under `epoch`.
    window
        What stays.
    known
        What the last call has returned.

    Returns
    -------
    What is left; if another replica cleans at the same time, or an outcome is unknown, less was removed.
    """
    place = layout.sharded_of(cleaner.table)
    # First: a token that is removed after this read, and taken anew, is not removed by its old node.
    parent: fx.Node | None = yield fx.Get(layout.joint_tokens(place))
    names: tuple[str, ...] | None = yield fx.Children(layout.joint_tokens(place))
    if parent is None or names is None:
        return BlocksCleaned({})
    tokens = tuple(map(fx.BlockId, names))
    found = {token: known[token] for token in tokens if token in known}
    yield from _read(place, tuple(token for token in tokens if token not in known), found)
    removed, version, doomed = 0, parent.version, outside(found, window)
    if any(map(is_of_batch, doomed)):
        kept = yield from named_with_quorum(place)
        doomed = tuple(token for token in doomed if token not in kept)
    for first in range(0, len(doomed), BATCH):
        batch = doomed[first : first + BATCH]
        before = {token: found[token] for token in batch}
        # What was remembered may have been removed and taken anew since.
        nodes = yield from _read(place, batch, found)
        same = {token: node for token, node in nodes.items() if found[token] == before[token]}
        if not same:
            continue
        deletes = (fx.Delete(layout.joint_token(place, token), node.version) for token, node in same.items())
        counts = fx.Set(layout.joint_tokens(place), b"", version)
        committed = yield fx.Commit(fx.Check(layout.host(cleaner), epoch), counts, *deletes)
        if not isinstance(committed, fx.Applied):
            break
        removed, version = removed + len(same), fx.Version(version + 1)
        for token in same:
            del found[token]
    return BlocksCleaned(found, removed)


def _read(
    place: str, tokens: tuple[fx.BlockId, ...], found: dict[fx.BlockId, Block]
) -> fx.Procedure[dict[fx.BlockId, fx.Node]]:
    """Read tokens; note in `found` what has taken them, and return their nodes."""
    nodes: dict[fx.BlockId, fx.Node] = {}
    for first in range(0, len(tokens), READ_BATCH):
        batch = tokens[first : first + READ_BATCH]
        paths = tuple(layout.joint_token(place, token) for token in batch)
        many: fx.Many = yield fx.GetMany(paths)
        for token, path, node in zip(batch, paths, many.nodes, strict=True):
            found.pop(token, None)
            if node is not None:
                # One entry tells the insert from every other: no staging id is used twice.
                its = decode_token(node.value, path).inserts[0]
                nodes[token] = node
                found[token] = Block(node.changed_ms, its.insert, fx.LogIndex(its.log_from))
    return nodes


__all__ = ["clean_tokens"]
