"""Targets: values of nodes in coordination.  One that this project did not write may stop a replica, and do nothing else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput, InvalidName, UnsupportedFormat
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex, Node, Version
from replitree.protocol.core.entries import (
    Entry,
    GetEntry,
    decode_block,
    decode_entry,
    encode_block,
    encode_entry,
    part_names,
)
from replitree.protocol.core.fold import apply, open_after
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import log_start
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.streams import decode_stream, encode_stream
from replitree.protocol.rescue.restore import restored_from
from replitree.protocol.sharded.shard_map import decode_map, encode_map, rebalanced
from replitree.protocol.state.counted import decode_quorum, encode_quorum
from replitree.protocol.state.registration import content_of, is_broken
from replitree.storage.disk.kept_definition import KeptDefinition
from replitree.storage.schema.definition import decode_definition
from replitree.storage.sql.mutation import as_statement, decode_mutation
from replitree.wire.identity import decode_identity
from tests.fuzz.mutate import Shape
from tests.fuzz.target import Target, reads

_TABLE = TablePlace("/replitree/tables/t", incarnation="00112233")
_PARTS = PartSet.of(
    parse_part(name) for name in ("all_0_3_1", "all_4_4_0", "all_5_5_0", "2018-01_6_6_0", "2018-01_7_9_1_9")
)


def _entry(data: bytes) -> None:
    entry: Entry = decode_entry(data, "log-0000000041")
    assert decode_entry(encode_entry(entry), "again") == entry
    index = LogIndex(41)
    opened = open_after((LogIndex(4),), index, entry)
    apply(_PARTS, index, entry, opened=opened)
    if isinstance(entry, GetEntry):
        part_names(entry, index)


def _block(data: bytes) -> None:
    value = decode_block(data, "blocks/b")
    assert decode_block(encode_block(value), "again") == value


def _stream(data: bytes) -> None:
    value = decode_stream(data, "streams/s")
    assert decode_stream(encode_stream(value), "again") == value


def _map(data: bytes) -> None:
    value = decode_map(data, "sharded/t/map")
    assert decode_map(encode_map(value), "again") == value
    assert len(value.owners) == value.buckets
    weights = {each.shard: each.weight for each in value.weights}
    balanced = rebalanced(value, weights)
    assert rebalanced(balanced, weights) == balanced


def _quorum(data: bytes) -> None:
    value = decode_quorum(data, "quorum/status/i")
    assert decode_quorum(encode_quorum(value), "again") == value


_SMALL: tuple[Callable[[bytes], object], ...] = (
    _block,
    _map,
    _quorum,
    _stream,
    lambda data: log_start(_TABLE, Node(data, Version(0))),
    lambda data: restored_from(Node(data, Version(0))),
    decode_identity,
    layout.pointer_index,
    layout.pointer_open,
    lambda data: layout.table_at("/t", Node(data, Version(0))),
    lambda data: (is_broken(data), content_of(data)),
)
"""Everything that reads the value of a node: each may meet what belongs to another."""


def _node(data: bytes) -> bool:
    refused = 0
    for read in _SMALL:
        try:
            read(data)
        except UnsupportedFormat:
            refused += 1
    return refused < len(_SMALL)


def _definition(data: bytes) -> None:
    """Read the values of both nodes, which stand in one file of the corpus as a kept definition has them."""
    try:
        kept = json_decoder(KeptDefinition).decode(data)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat("there are no two nodes") from error
    definition = decode_definition(bytes(kept.metadata), bytes(kept.columns))
    assert decode_definition(definition.encode_metadata(), definition.encode_columns()) == definition


def _mutation(data: bytes) -> None:
    mutation = decode_mutation(data)
    assert decode_mutation(mutation.encode()) == mutation
    as_statement(mutation.text, "t")


TARGETS = (
    Target("entry", reads(_entry), (UnsupportedFormat, InvalidName, BadInput), Shape.JSON, share=1500),
    Target("node", reads(_node), (UnsupportedFormat,), Shape.JSON, share=1500),
    Target("definition", reads(_definition), (UnsupportedFormat,), Shape.JSON, share=400),
    Target("mutation", reads(_mutation), (UnsupportedFormat,), Shape.JSON, share=800),
)
