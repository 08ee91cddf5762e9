"""The nodes ``views``: the materialised views of a table, and the views of other tables that write to it.

`protocol.insert.views` says when they are read and checked, `protocol.propose.views` when they change.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import decode_value

VIEWS_FORMAT = 1

VIEWS_MAX = 16
"""Materialised views that a table has at most: each insert computes all of them, and writes an entry for each in one commit."""


class ViewValue(msgspec.Struct, frozen=True):
    """A materialised view of a table.

    Attributes
    ----------
    id
        Of the command that created it.
    name
        For people; no two views of a table have the same.
    target, incarnation
        The table that it writes to.
    command
        What it makes of the rows of an insert, as `replitree.storage.sql.view` writes it; to the protocol it is a text.
    is_filled
        Whether the rows from before the view are in the target, or were never to come.
    """

    id: fx.EntryId
    name: str
    target: str
    incarnation: str
    command: str
    is_filled: bool = False


class Feeding(msgspec.Struct, frozen=True):
    """A view of another table that writes to this one: its id, and its table."""

    id: fx.EntryId
    source: str
    incarnation: str


class ViewsValue(msgspec.Struct, frozen=True):
    """Value of a node ``views``.

    Attributes
    ----------
    views
        Those of this table, in the order of their creation.
    feeding
        Those that write to it.
    """

    views: tuple[ViewValue, ...] = ()
    feeding: tuple[Feeding, ...] = ()
    format: int = VIEWS_FORMAT


_decode = json_decoder(ViewsValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_views(value: ViewsValue) -> bytes:
    """Return the bytes of a node ``views``."""
    return _encode(value)


def decode_views(raw: bytes, where: str) -> ViewsValue:
    """Read a node ``views``.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, VIEWS_FORMAT)


@dataclass(frozen=True, slots=True)
class ViewToStage:
    """A materialised view of the rows that are staged.

    Attributes
    ----------
    id
        Of the command that created it.
    target, incarnation
        The table that it writes to.
    command
        What it makes of the rows; the protocol does not look inside.
    """

    id: fx.EntryId
    target: str
    incarnation: str
    command: str


def staged_view(staging: fx.StagingId, view: fx.EntryId) -> fx.StagingId:
    """Return the id under which the rows of a view are staged in its target.

    It is no id of a group of the target's own: the server names the groups of all its tables alike.

    >>> staged_view(fx.StagingId("0f-3.0"), fx.EntryId("9a"))
    '9a~0f-3.0'
    """
    return fx.StagingId(f"{view}~{staging}")


@dataclass(frozen=True, slots=True)
class StagedView:
    """What the log of a view's target says of the rows of the view.

    Attributes
    ----------
    view
        Its id.
    replica, epoch
        The target's replica on this server, as it appends, and the epoch under which it was active *before* anything was
        staged: its next activation sweeps what was staged under an earlier one.
    parts
        None: the view has no rows.
    schema_version
        Version of the target's columns that they were written with.
    """

    view: fx.EntryId
    replica: Replica
    epoch: fx.Epoch
    parts: tuple[fx.StagedPart, ...]
    schema_version: int = 1


_NOTHING = ViewsValue()


@dataclass(frozen=True, slots=True)
class Views:
    """The views of a table when the node ``views`` had this version; None: there was no such node, or it was not read yet."""

    version: fx.Version | None = None
    value: ViewsValue = _NOTHING

    @property
    def to_stage(self) -> tuple[ViewToStage, ...]:
        """What an insert into the table has to compute."""
        return tuple(ViewToStage(each.id, each.target, each.incarnation, each.command) for each in self.value.views)

    def unchanged(self, table: TablePlace) -> tuple[fx.Check, ...]:
        """Return what proves, in the commit that appends an entry, that the table has these views and no others.

        The first view of a table sets the mark of the log's open parent, and every later parent is made with such a mark: so a
        mark at version 0 proves that there is no node ``views``.  A table that never had a view pays nothing for that.
        """
        if self.version is None:
            return (fx.Check(layout.open_log(table), 0),)
        return fx.Check(layout.open_log(table), fx.ANY_VERSION), fx.Check(layout.views(table), self.version)

    def named(self, name: str) -> ViewValue | None:
        """Return the view of a name."""
        return next((each for each in self.value.views if each.name == name), None)


NO_VIEWS = Views()


def views_at(table: TablePlace, node: fx.Node | None) -> Views:
    """Return the views of a table from its node.  Raises as `decode_views`."""
    return NO_VIEWS if node is None else Views(node.version, decode_views(node.value, layout.views(table)))
