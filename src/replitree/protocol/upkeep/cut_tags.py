"""Tags of a sharded table: each names a cut, and keeps what the cut has in every shard.

A tag is a named cut (`protocol.upkeep.named_cuts`).  In each shard it has a node that keeps the parts of that shard, as any tag
of a table does (`protocol.upkeep.tags`).
"""

from __future__ import annotations

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.values import decode_value
from replitree.protocol.upkeep.named_cuts import KeptShard, NamedCuts
from replitree.protocol.upkeep.tags import decode_tag

CUT_TAG_FORMAT = 1


class CutTagValue(msgspec.Struct, frozen=True):
    """Value of a tag's node.

    Attributes
    ----------
    cut
        The cut, as text.
    id
        The id of the command that made it.
    shards
        All shards that the table had at the cut.
    parts, rows, bytes
        Of all shards together; bytes of data files.
    """

    cut: str
    id: fx.EntryId
    shards: tuple[KeptShard, ...]
    parts: int = 0
    rows: int = 0
    bytes: int = 0
    format: int = CUT_TAG_FORMAT


_decode = json_decoder(CutTagValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_cut_tag(value: CutTagValue) -> bytes:
    """Return the bytes of a tag's node.

    >>> encode_cut_tag(CutTagValue("5f0c@7", fx.EntryId("c"), (KeptShard("d~0", 3, "r1"),)))
    b'{"cut":"5f0c@7","id":"c","shards":[{"shard":"d~0","index":3,"replica":"r1"}],"parts":0,"rows":0,"bytes":0,"format":1}'
    """
    return _encode(value)


def decode_cut_tag(raw: bytes, where: str) -> CutTagValue:
    """Read a tag's node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, CUT_TAG_FORMAT)


CUT_TAGS = NamedCuts(layout.tags, layout.tag, encode_cut_tag, decode_cut_tag, decode_tag, is_of_all=False)

__all__ = ["CUT_TAGS", "CutTagValue", "decode_cut_tag", "encode_cut_tag"]
