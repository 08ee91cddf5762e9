"""Tags: names of earlier versions of the table, whose parts stay on disk for as long as the tag is there.

A tag is a node ``tags/<name>`` that lists the parts of one version, as a replica had them.  It is no entry of the log: it
changes nothing that the fold says, and each replica reads the nodes themselves before it deletes an old part.  So no replica
can miss a tag, and one commit is all that a tag needs.

Guarantee: a part that a tag lists stays on the disk of the replica that made the tag, and of every replica whose table lost the
part after the tag was made.  Two orders give it:

========  ===========================================================  =======================================================
who       order                                                        why
========  ===========================================================  =======================================================
the tag   keep the parts under a lease, commit, end the lease          a part that was chosen before the lease is not kept by
                                                                       it: then the version is refused, and no tag is made
removal   choose parts without a lease, read the tags, delete what is  a tag that is committed after the read has its lease
          still chosen and in no tag                                   before, and a lease takes a part out of the choice
========  ===========================================================  =======================================================

When the answer to the commit is lost, the lease stays until the new epoch has decided it, or the process ends.

A replica that had deleted a part before, or that joined or recovered later, may lack parts of a tag.  Reads go to another one.

Every change raises the version of the node ``tags`` (`replitree.protocol.upkeep.named_nodes`), so a replica reads the list
again only when it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import decode_value
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.upkeep.named_nodes import (
    NODE_BYTES_MAX,
    NodeThere,
    NotChanged,
    check_node_name,
    delete_node,
    list_nodes,
    make_node,
)

TAG_FORMAT = 1

TAGS_MAX = 100
"""Tags that a table has at most: each replica reads all of them when one has changed."""


def check_tag_name(name: str) -> str:
    """Return `name` if a tag may have it: an index or a time never looks like a tag.

    Raises
    ------
    InvalidName
        It is not a letter followed by letters, digits, ``_``, ``.`` and ``-``, or is too long.

    >>> check_tag_name("before-load")
    'before-load'
    """
    return check_node_name(name, "a tag")


class TagValue(msgspec.Struct, frozen=True):
    """Value of a tag's node.

    Attributes
    ----------
    index
        The version: exactly what the log has below.
    id
        The id of the command that made it.
    replica
        The replica that had the version.
    parts
        The names of the version's parts there, ascending.
    rows, bytes
        Of these parts together; bytes of data files.
    """

    index: int
    id: fx.EntryId
    replica: str
    parts: tuple[str, ...]
    rows: int = 0
    bytes: int = 0
    format: int = TAG_FORMAT


_decode = json_decoder(TagValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_tag(value: TagValue) -> bytes:
    """Return the bytes of a tag's node."""
    return _encode(value)


def decode_tag(raw: bytes, where: str) -> TagValue:
    """Read a tag's node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, TAG_FORMAT)


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of a table by name, ascending, when the node ``tags`` had this version; None: no such node, or not read yet."""

    version: fx.Version | None = None
    tags: tuple[tuple[str, TagValue], ...] = ()

    @property
    def parts(self) -> frozenset[str]:
        """The names of all parts that tags keep."""
        return frozenset(part for _, tag in self.tags for part in tag.parts)


NO_TAGS = Tags()


def read_tags(table: TablePlace, known: Tags = NO_TAGS) -> fx.Procedure[Tags]:
    """Read the tags as they are now; `known` are those that were read before."""
    # No sync is needed.  A part is old because this process has pulled an entry, or has committed its activation, after the
    # part left the table; what its session reads from then on is at least as new.
    listed = yield from list_nodes(layout.tags(table), known.version)
    if listed is None:
        return known
    return Tags(
        listed.version,
        tuple((name, decode_tag(node.value, layout.tag(table, name))) for name, node in listed.nodes),
    )


@dataclass(frozen=True, slots=True)
class TagChanged:
    """The tag is made, or deleted: this one, perhaps by an earlier try with the same id."""

    tag: TagValue


@dataclass(frozen=True, slots=True)
class OtherTag:
    """Nothing was changed: another tag has the name; None: no tag has it."""

    tag: TagValue | None


TagOutcome: TypeAlias = TagChanged | OtherTag | NotChanged | Replaced | fx.InDoubt
"""After `InDoubt` the tag may be made or deleted until the replica has another epoch."""


def put_tag(replica: Replica, me: bytes, epoch: fx.Epoch, name: str, value: TagValue) -> fx.Procedure[TagOutcome]:
    """Make a tag; one of this name with the same id is the answer.

    Parameters
    ----------
    replica, me, epoch
        The replica that makes it, the process that acts for it, and its epoch.
    name, value
        The tag; its parts are on this replica's disk, and stay there until this has ended.
    """
    table, encoded = replica.table, encode_tag(value)
    path = layout.tag(table, name)
    if len(encoded) > NODE_BYTES_MAX:
        return NotChanged(
            f"the version has {len(value.parts):,} parts, whose names do not fit into one node; merge first"
            f" (replitree optimize {table.name} --final)"
        )
    outcome = yield from make_node(replica, me, epoch, path, value, encoded, decode_tag)
    if isinstance(outcome, NodeThere):
        made = outcome.value
        return TagChanged(made) if made is not None and made.id == value.id else OtherTag(made)
    return outcome


def delete_tag(replica: Replica, me: bytes, epoch: fx.Epoch, name: str) -> fx.Procedure[TagOutcome]:
    """Delete a tag; parameters as `put_tag`."""
    outcome = yield from delete_node(replica, me, epoch, layout.tag(replica.table, name), decode_tag)
    if isinstance(outcome, NodeThere):
        return OtherTag(None) if outcome.value is None else TagChanged(outcome.value)
    return outcome


__all__ = [
    "NO_TAGS",
    "REPLACED",
    "OtherTag",
    "TagChanged",
    "TagOutcome",
    "TagValue",
    "Tags",
    "check_tag_name",
    "decode_tag",
    "delete_tag",
    "encode_tag",
    "put_tag",
    "read_tags",
]
