"""The definition of a shard: that of its sharded table, under the shard's own name and id."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from replitree.protocol.sharded.places import shard_name
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.schema.definition import TableDefinition


def shard_definition(definition: TableDefinition, shard: Shard) -> TableDefinition:
    """Return the definition of a shard.

    Its id follows from that of the sharded table: a process that finishes a creation that was cut off makes the same shard.

    Parameters
    ----------
    definition
        The sharded table.
    shard
        Which one.
    """
    table_id = sha256(f"{definition.table_id}~{shard}".encode()).hexdigest()[:32]
    return replace(definition, name=shard_name(definition.name, shard), table_id=table_id)
