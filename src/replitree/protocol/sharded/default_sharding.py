"""The node ``sharding`` of a cluster: into how many shards a new sharded table is divided, and how many replicas host each.

A cluster that was started for sharded tables has it (`replitree up --shards`), so a client that knows only the URL creates
tables as they are meant there.  Tables that are there already do not change with it.  Absent on purpose: where the shards lie;
that is chosen when a table is created, from the servers that run then.
"""

from __future__ import annotations

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core.values import decode_value

DEFAULT_SHARDING_FORMAT = 1


class DefaultSharding(msgspec.Struct, frozen=True):
    """Value of the node.

    Attributes
    ----------
    shards
        How many shards a table gets whose creator does not say it.
    replicas
        How many replicas host each of them.
    """

    shards: int
    replicas: int
    format: int = DEFAULT_SHARDING_FORMAT


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(DefaultSharding).decode


def default_sharding(root: str) -> str:
    """Return the node, for all tables below a root.

    >>> default_sharding("/replitree"), default_sharding("/")
    ('/replitree/sharding', '/sharding')
    """
    return f"{root.rstrip('/')}/sharding"


def encode_default(value: DefaultSharding) -> bytes:
    """Return the bytes of the node.

    >>> encode_default(DefaultSharding(2, 3))
    b'{"shards":2,"replicas":3,"format":1}'
    """
    return _encode(value)


def decode_default(raw: bytes, where: str) -> DefaultSharding:
    """Read the node.

    Parameters
    ----------
    raw, where
        The node's value, and its path, for errors.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, DEFAULT_SHARDING_FORMAT)
