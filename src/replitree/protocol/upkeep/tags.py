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

Every change raises the version of the node ``tags``, so a replica reads the list again only when it has changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import InvalidName
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import decode_value
from replitree.protocol.membership.activate import REPLACED, Activated, NoEpoch, Replaced, newer_epoch, renew_epoch

TAG_FORMAT = 1

TAG_BYTES_MAX = 900_000
"""Bytes of a tag's node at most: ZooKeeper takes 1 MB in one commit."""

TAGS_MAX = 100
"""Tags that a table has at most: each replica reads all of them when one has changed."""

TRIES_MAX = 10
"""Tries of a commit while others change tags at the same time."""

NAME_LENGTH_MAX = 100

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def check_tag_name(name: str) -> str:
    """Return `name` if a tag may have it: an index or a time never looks like a tag.

    Raises
    ------
    InvalidName
        It is not a letter followed by letters, digits, ``_``, ``.`` and ``-``, or is too long.

    >>> check_tag_name("before-load")
    'before-load'
    """
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{name!r} can't be a tag's name: use letters, digits, _, . and -, a letter first,"
            f" at most {NAME_LENGTH_MAX} characters"
        )
    return name


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
    node: fx.Node | None = yield fx.Get(layout.tags(table))
    if node is None:
        return NO_TAGS
    if node.version == known.version:
        return known
    # The version is read before the list: a change in between is read the next time.
    names = (yield fx.Children(layout.tags(table))) or ()
    paths = tuple(layout.tag(table, name) for name in names)
    many: fx.Many = yield fx.GetMany(paths)
    found = zip(names, paths, many.nodes, strict=True)
    return Tags(
        node.version, tuple((name, decode_tag(tag.value, path)) for name, path, tag in found if tag is not None)
    )


@dataclass(frozen=True, slots=True)
class TagChanged:
    """The tag is made, or deleted: this one, perhaps by an earlier try with the same id."""

    tag: TagValue


@dataclass(frozen=True, slots=True)
class OtherTag:
    """Nothing was changed: another tag has the name; None: no tag has it."""

    tag: TagValue | None


@dataclass(frozen=True, slots=True)
class TagNotChanged:
    """Nothing was changed, for this reason."""

    reason: str


TagOutcome: TypeAlias = TagChanged | OtherTag | TagNotChanged | Replaced | fx.InDoubt
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
    table, has_parent = replica.table, True
    path, encoded = layout.tag(table, name), encode_tag(value)
    if len(encoded) > TAG_BYTES_MAX:
        return TagNotChanged(
            f"the version has {len(value.parts):,} parts, whose names do not fit into one node; merge first"
            f" (replitree optimize {table.name} --final)"
        )
    for _ in range(TRIES_MAX):
        parent = fx.Set(layout.tags(table), b"", fx.ANY_VERSION) if has_parent else fx.Create(layout.tags(table))
        outcome = yield from _commit(replica, me, epoch, parent, fx.Create(path, encoded))
        match outcome:
            case fx.Applied():
                return TagChanged(value)
            case int(newer):
                epoch = fx.Epoch(newer)
            case fx.Refused(operation=fx.Create(path=refused)) if refused == path:
                return (yield from _found(table, name, value.id))
            case fx.Refused():
                has_parent = not has_parent
                continue
            case _:
                return outcome
        # An earlier commit of this call may have taken place.
        known = yield from _found(table, name, value.id)
        if known != OtherTag(None):
            return known
    return TagNotChanged("others change tags all the time; try again")


def delete_tag(replica: Replica, me: bytes, epoch: fx.Epoch, name: str) -> fx.Procedure[TagOutcome]:
    """Delete a tag; parameters as `put_tag`."""
    table, deleted = replica.table, None
    for _ in range(TRIES_MAX):
        yield fx.Sync(layout.tags(table))
        node: fx.Node | None = yield fx.Get(layout.tag(table, name))
        if node is None:
            # An earlier commit of this call was applied although its answer was lost.
            return OtherTag(None) if deleted is None else TagChanged(deleted)
        value = decode_tag(node.value, layout.tag(table, name))
        if deleted is not None and deleted.id != value.id:
            return TagChanged(deleted)
        deleted = value
        parent = fx.Set(layout.tags(table), b"", fx.ANY_VERSION)
        outcome = yield from _commit(replica, me, epoch, parent, fx.Delete(layout.tag(table, name), node.version))
        match outcome:
            case fx.Applied():
                return TagChanged(value)
            case int(newer):
                epoch = fx.Epoch(newer)
            case fx.Refused():
                deleted = None
            case _:
                return outcome
    return TagNotChanged("others change tags all the time; try again")


def _found(table: TablePlace, name: str, command: fx.EntryId) -> fx.Procedure[TagChanged | OtherTag]:
    """Look what has the name now."""
    yield fx.Sync(layout.tags(table))
    node: fx.Node | None = yield fx.Get(layout.tag(table, name))
    tag = None if node is None else decode_tag(node.value, layout.tag(table, name))
    return TagChanged(tag) if tag is not None and tag.id == command else OtherTag(tag)


def _commit(
    replica: Replica, me: bytes, epoch: fx.Epoch, *operations: fx.Operation
) -> fx.Procedure[fx.Applied | fx.Refused | fx.Epoch | TagNotChanged | Replaced | fx.InDoubt]:
    """Commit a change of tags; an epoch: look again, and commit under it."""
    committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), *operations)
    match committed:
        case fx.Refused(operation=fx.Check()):
            newer = yield from newer_epoch(replica, me, epoch)
            return TagNotChanged(newer.reason) if isinstance(newer, NoEpoch) else newer.epoch
        case fx.Unknown():
            # The new epoch decides it: it took place by now, or never will.
            renewed = yield from renew_epoch(replica, me, epoch)
            if isinstance(renewed, Activated):
                return renewed.epoch
            return renewed if isinstance(renewed, Replaced) else fx.InDoubt()
    return committed


__all__ = [
    "NO_TAGS",
    "REPLACED",
    "OtherTag",
    "TagChanged",
    "TagNotChanged",
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
