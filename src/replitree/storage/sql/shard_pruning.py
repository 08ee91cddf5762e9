"""Pruning by key: which buckets of a sharded table can have rows that a condition wants.

Guarantees (D7): a row for which the condition is true is in one of the buckets that `buckets_of` returns, so a shard that owns
none of them has no such row.

Only equality and ``IN`` on every column of the key leave buckets out: a hash says nothing of ranges, nor of a part of the key.
Whatever else the condition says can only want fewer rows, except inside ``NOT``, where nothing is concluded.
"""

from __future__ import annotations

import math
from itertools import product

import pyarrow as pa

from replitree.protocol.sharded.shard_map import Bucket, ShardMap
from replitree.storage.schema.bounds import Bound
from replitree.storage.schema.columns import arrow_scalar
from replitree.storage.schema.row_buckets import key_buckets, shard_key
from replitree.storage.sql.predicate import (
    Always,
    And,
    ColumnRef,
    Compare,
    Literal,
    Node,
    OneOf,
    Operator,
    Or,
    Predicate,
)

KEYS_MAX = 65_536
"""Keys that are hashed for one condition: so many are in nearly all buckets anyway."""


def buckets_of(shard_map: ShardMap, where: Predicate | None) -> tuple[Bucket, ...]:
    """Return the buckets that can have rows which a condition wants; `ShardMap.shards_of` gives their shards.

    Parameters
    ----------
    shard_map
        The table's map.
    where
        The condition; None wants every row.

    Returns
    -------
    tuple
        Ascending.  Empty when the condition is true for no row at all.

    Raises
    ------
    BadInput
        The map's key has a column that no key of this table can have.

    Examples
    --------
    >>> from replitree.protocol.sharded.shard_map import first_map
    >>> from replitree.storage.schema.definition import define_table
    >>> from replitree.storage.sql.predicate_parser import parse_predicate
    >>> table = define_table("t", "id bigint not null, v double", order_by="id")
    >>> buckets_of(first_map(["id"], {0: 1, 1: 1}), parse_predicate("id in (1, 2) and v > 0.5", table))
    (50, 205)
    """
    everything = tuple(Bucket(number) for number in range(shard_map.buckets))
    if where is None:
        return everything
    columns = shard_key(where.definition, shard_map.key)
    found = [_wanted(where.node, column.name) for column in columns]
    wanted = [values for values in found if values is not None]
    keys = math.prod(map(len, wanted))
    if len(wanted) < len(columns) or keys > KEYS_MAX:
        return everything
    if not keys:
        return ()
    by_column = zip(columns, zip(*product(*wanted), strict=True), strict=True)
    arrays = [
        pa.array([arrow_scalar(c.arrow_type, value) for value in values], c.arrow_type) for c, values in by_column
    ]
    return tuple(Bucket(number) for number in sorted(set(key_buckets(arrays, shard_map.buckets).tolist())))


def _wanted(node: Node, name: str) -> frozenset[Bound] | None:
    """Give the values that a column can have in a row for which a node is true; None: it can have any."""
    match node:
        case Compare(ColumnRef((column,)), Operator.EQ, value) if column == name:
            return frozenset((value,))
        case OneOf(ColumnRef((column,)), values) if column == name:
            return frozenset(values)
        case Always(_, False) | Literal(None | False):
            return frozenset()
        case Or(nodes):
            known = [each for inner in nodes if (each := _wanted(inner, name)) is not None]
            return frozenset[Bound]().union(*known) if len(known) == len(nodes) else None
        case And(nodes):
            known = [each for inner in nodes if (each := _wanted(inner, name)) is not None]
            return frozenset.intersection(*known) if known else None
    return None
