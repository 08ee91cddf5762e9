"""The node ``life-<incarnation>`` of a sharded table: whether the table is being made, is there, or is being dropped.

A table whose nodes coordination has lost is being *restored* until all its shards are (`protocol.rescue.restore_sharded`).
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.protocol.core.values import decode_value
from replitree.protocol.sharded.shard_map import ShardMap

LIFE_FORMAT = 1


class Life(msgspec.Struct, frozen=True):
    """Value of the node.

    Attributes
    ----------
    stage
        ``making``: not all shards are there; ``restoring``: not all shards are restored; ``made``: the table is there;
        ``dropping``: no shard comes any more.
    map
        While it is being made or restored: the map that it is to have.
    """

    stage: Literal["making", "restoring", "made", "dropping"]
    map: ShardMap | UnsetType = UNSET
    format: int = LIFE_FORMAT


MADE = Life("made")
DROPPING = Life("dropping")

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(Life).decode


def encode_life(value: Life) -> bytes:
    """Return the bytes of the node.

    >>> encode_life(MADE)
    b'{"stage":"made","format":1}'
    """
    return _encode(value)


def decode_life(raw: bytes, where: str) -> Life:
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
    return decode_value(_decode, raw, where, LIFE_FORMAT)
