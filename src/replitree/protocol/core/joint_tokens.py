"""The nodes of joint inserts below ``sharded/<D>``.

``tokens/<block id>`` says which joint insert has taken a token, and what it wrote where (`protocol.sharded.joint_insert`);
``joint/<id>`` the same of a joint insert whose quorum is open (`protocol.insert.joint_quorum`).
"""

from __future__ import annotations

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core.effects import BlockId, JointId, StagingId
from replitree.protocol.core.values import decode_value

TOKEN_FORMAT = 1
JOINT_FORMAT = 1


class ShardInsert(msgspec.Struct, frozen=True):
    """What a joint insert wrote to one shard.

    Attributes
    ----------
    shard, incarnation
        The shard's table.
    insert
        The staging id of the entry there.
    log_from
        An index that is not above the entry: where a search for it starts.
    """

    shard: str
    incarnation: str
    insert: StagingId
    log_from: int


class TokenValue(msgspec.Struct, frozen=True):
    """Value of a node below ``tokens``: the joint insert that has taken the token, and what it wrote."""

    joint: JointId
    inserts: tuple[ShardInsert, ...]
    format: int = TOKEN_FORMAT


class JointValue(msgspec.Struct, frozen=True):
    """Value of a node below ``joint``: the token of a joint insert whose quorum is open, and what it wrote."""

    token: BlockId
    inserts: tuple[ShardInsert, ...]
    format: int = JOINT_FORMAT


_decode = json_decoder(TokenValue).decode
_decode_joint = json_decoder(JointValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_token(value: TokenValue | JointValue) -> bytes:
    """Return the bytes of a node below ``tokens``, or below ``joint``.

    >>> encode_token(TokenValue(JointId("j"), (ShardInsert("d~0", "5f0c", StagingId("s.0"), 7),)))
    b'{"joint":"j","inserts":[{"shard":"d~0","incarnation":"5f0c","insert":"s.0","log_from":7}],"format":1}'
    """
    return _encode(value)


def decode_token(raw: bytes, where: str) -> TokenValue:
    """Read a node below ``tokens``.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, TOKEN_FORMAT)


def decode_joint(raw: bytes, where: str) -> JointValue:
    """Read a node below ``joint``.  Raises as `decode_token`."""
    return decode_value(_decode_joint, raw, where, JOINT_FORMAT)
