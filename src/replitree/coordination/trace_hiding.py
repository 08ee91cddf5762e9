"""Secrets that traces leave out: values of rows, predicates, addresses.

Partitions are named by values of rows, so each is replaced by its hash, in names of parts, paths and entries alike: the reader
of a trace sees which are the same.  Of an entry only the fields that are known here are kept, of all other nodes only the
values that say where a replica stands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.entries import EVERY_PARTITION
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import DROPPED_HOST

OPEN_PARTITIONS = (EVERY_PARTITION, "all")
"""Names that say nothing of rows."""

_KEPT = (
    "kind", "replica", "insert", "index", "holders", "quorum", "blocks", "format", "schema_version", "id", "block_min",
    "block_max", "detach", "rows", "bytes", "since",
)  # fmt: skip
_KEPT_VALUES = ("is_lost", "log_pointer", "log")


@lru_cache(maxsize=10_000)
def hide_partition(partition: str) -> str:
    """Return what stands for a partition.

    >>> hide_partition("all")
    'all'
    >>> hide_partition("smith").startswith("p")
    True
    """
    return partition if partition in OPEN_PARTITIONS else f"p{xxh3_64_hexdigest(partition.encode())}"


@lru_cache(maxsize=10_000)
def hide_part(name: str) -> str:
    """Return what stands for a part's name."""
    try:
        part = parse_part(name)
    except BadInput:
        return hide_partition(name)
    return part._replace(partition=hide_partition(part.partition)).name


def hide_path(path: str) -> str:
    """Return what stands for a path.

    >>> hide_path("/t/replicas/r1/parts/all_0_3_1")
    '/t/replicas/r1/parts/all_0_3_1'
    """
    parent, _, name = path.rpartition("/")
    folder = parent.rpartition("/")[2]
    if folder in ("parts", "results"):
        return f"{parent}/{hide_part(name)}"
    if folder == "drops":
        return f"{parent}/{hide_partition(name)}"
    return path


def hide_value(path: str, value: bytes) -> str:
    """Return what stands for the value of a node: "" for most."""
    parent, _, name = path.rpartition("/")
    folder = parent.rpartition("/")[2]
    if folder == "status" or name in _KEPT_VALUES:
        return value.decode(errors="replace")
    if name == "host":
        return DROPPED_HOST.decode() if value == DROPPED_HOST else ""
    if name.startswith("log-"):
        try:
            return msgspec.json.encode(_hidden(json_decoder(dict[str, Any]).decode(value))).decode()
        except (msgspec.DecodeError, BadInput, TypeError, AttributeError):
            # Of an unknown format, which may have a secret anywhere: all of it is hidden.
            return ""
    return ""


def _hidden(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry, or a part of one, without what is to be hidden."""
    kept = {name: value for name, value in entry.items() if name in _KEPT}
    if "partition" in entry:
        kept["partition"] = hide_partition(entry["partition"])
    for name in ("partitions", "drops"):
        if name in entry:
            kept[name] = [hide_partition(each) for each in entry[name]]
    if "sources" in entry:
        kept["sources"] = [hide_part(each) for each in entry["sources"]]
    if "part" in entry:
        # A content hash would let a reader of the trace test guesses about rows.
        kept |= {"part": hide_part(entry["part"]), "content_hash": ""}
    if "parts" in entry:
        kept["parts"] = [_hidden(each) | {"content_hash": ""} for each in entry["parts"]]
    if "command" in entry:
        kept["command"] = ""
    return kept
