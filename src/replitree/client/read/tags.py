"""The tags of a table as people read them: looked up in coordination, without asking a replica."""

from __future__ import annotations

from datetime import datetime

import msgspec

from replitree.client.read.table_log import as_time
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.upkeep.tags import decode_tag


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a table that has a name.

    Attributes
    ----------
    name
        What reads call it: ``as_of=name``.
    index
        The version: exactly what the log has below this index.
    time
        When the tag was made, in UTC, by coordination's clock.
    replica
        The replica that made it.
    parts, rows, bytes
        What the version has: parts, rows, and bytes of part files.
    """

    name: str
    index: int
    time: datetime
    replica: str
    parts: int
    rows: int
    bytes: int

    @property
    def version(self) -> str:
        """The version as text, as people copy it into commands."""
        return f"{self.index}"


def tag_names(table: TablePlace) -> fx.Procedure[tuple[str, ...]]:
    """Return the names of the tags, ascending."""
    yield fx.Sync(layout.tags(table))
    names: tuple[str, ...] | None = yield fx.Children(layout.tags(table))
    return names or ()


def read_named(table: TablePlace, name: str) -> fx.Procedure[Tag | None]:
    """Return the tag of a name, or None."""
    path = layout.tag(table, name)
    yield fx.Sync(path)
    node: fx.Node | None = yield fx.Get(path)
    if node is None:
        return None
    tag = decode_tag(node.value, path)
    return Tag(
        name=name,
        index=tag.index,
        time=as_time(node.changed_ms),
        replica=tag.replica,
        parts=len(tag.parts),
        rows=tag.rows,
        bytes=tag.bytes,
    )
