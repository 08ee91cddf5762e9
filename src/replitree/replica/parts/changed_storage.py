"""What a change of the storage policy makes of a table's settings, and of the nodes that an object store takes."""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.storage_policy import StorageKind, StoragePolicy, switched


def placed(before: TableDefinition, asked: StoragePolicy, *, of_shards: bool = False) -> TableDefinition:
    """Return the definition that a table, or a shard, has when another storage policy is asked for.

    Parameters
    ----------
    before
        The definition that it has.
    asked
        The policy.
    of_shards
        It is the definition of a sharded table: its shards say whether the change is allowed.

    Raises
    ------
    BadInput
        Its parts lie in another store.
    """
    if of_shards and asked.kind is not StorageKind.LOCAL:
        # Each shard forgets a store by itself, and the table's own definition names it until the next change.
        return replace(before, storage=asked.text)
    return replace(before, storage=switched(before.placement, asked).text)


def changed_store(table: TablePlace, before: TableDefinition, after: TableDefinition) -> tuple[fx.Operation, ...]:
    """Return what makes the nodes of a table's first object store, or deletes those of its last one."""
    if after.is_shared and not before.is_shared:
        return sharing_nodes(table)
    if before.is_shared and not after.is_shared:
        return tuple(fx.Delete(node.path, fx.ANY_VERSION) for node in reversed(sharing_nodes(table)))
    return ()


__all__ = ["changed_store", "placed"]
