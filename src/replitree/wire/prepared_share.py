"""What a replica has prepared of a joint insert, as it tells the client, and the client the coordinator.

A client takes it from the answer of one replica to the request to another, as it is.  The coordinator appends to the logs of
other shards what it says.  So everything in it is checked: names become paths of nodes, and numbers go into entries.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.layout import check_replica_name, check_table_name
from replitree.protocol.sharded.places import sharded_name

SHARDS_MAX = 256
"""Shards of one joint insert."""

PARTS_MAX = 10_000
"""Parts of one share: a commit of 512 KiB has room for fewer."""

NUMBER_MAX = 2**62

_SHARD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}~(?:0|[1-9][0-9]{0,3})")
_PARTITION = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]{0,79}")
_INCARNATION = re.compile(r"[A-Za-z0-9-]{0,64}")
_STAGING = re.compile(r"[A-Za-z0-9-]{1,100}\.[0-9]{1,9}")
_PART = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]{0,79}(?:_[0-9]{1,19}){3,4}")
_CONTENT = re.compile(r"[0-9a-f]{32}")
_VIEW = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]


class PreparedPart(msgspec.Struct, frozen=True):
    """One part of a share: what the log says of it."""

    partition: str
    rows: _Number
    bytes: _Number
    content_hash: str

    def __post_init__(self) -> None:
        if _PARTITION.fullmatch(self.partition) is None:
            raise ValueError("a partition can't have this id")
        if _CONTENT.fullmatch(self.content_hash) is None:
            raise ValueError("the content of a part is 32 hexadecimal digits")


class PreparedResult(msgspec.Struct, frozen=True):
    """What takes the place of one source of a rewrite: what the log says of it."""

    source: str
    rows: _Number
    bytes: _Number
    content_hash: str

    def __post_init__(self) -> None:
        # Its own error is of a name that a replica has written.
        if _PART.fullmatch(self.source) is None or _CONTENT.fullmatch(self.content_hash) is None:
            raise ValueError("a result names its source, and its content has 32 hexadecimal digits")


class PreparedShare(msgspec.Struct, frozen=True):
    """What one replica has prepared.

    Attributes
    ----------
    shard, incarnation
        The table, and which of those that have had its name.
    replica, epoch
        The replica that has prepared it, and the epoch under which it was active.
    staging, parts, results
        What is staged; of a rewrite also what takes the place of its sources.
    log_from
        An index that the shard's log had reached before.
    schema_version
        Version of the columns that the rows have.
    map_version
        Version of the map by which the rows were split.
    coordinates
        Whether the replica is to commit it: then no node says that it is there.
    """

    shard: str
    incarnation: str
    replica: str
    epoch: _Number
    staging: str
    parts: Annotated[tuple[PreparedPart, ...], msgspec.Meta(max_length=PARTS_MAX)]
    log_from: _Number
    schema_version: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]
    map_version: _Number
    coordinates: bool = False
    results: Annotated[tuple[PreparedResult, ...], msgspec.Meta(max_length=PARTS_MAX)] = ()

    def __post_init__(self) -> None:
        check_replica_name(self.replica)
        rules = (
            (self.parts or self.results, "a share has at least one part"),
            (_SHARD.fullmatch(self.shard), "the name of a shard is that of its table, ~, and a number"),
            (_INCARNATION.fullmatch(self.incarnation), "a table can't have this incarnation"),
            (_STAGING.fullmatch(self.staging), "no replica stages anything under this id"),
            (
                len({part.partition for part in self.parts}) == len(self.parts),
                "two parts are of one partition",
            ),
        )
        for holds, problem in rules:
            # A ValueError, of which msgspec makes an error of its own where the share comes from bytes.
            if not holds:
                raise ValueError(problem)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(part.rows for part in self.parts)


class FilledView(msgspec.Struct, frozen=True):
    """The materialised view whose earlier rows an insert has: the sharded table that it is of, and its id."""

    source: str
    view: str

    def __post_init__(self) -> None:
        check_table_name(self.source)
        if _VIEW.fullmatch(self.view) is None:
            raise ValueError("a materialised view can't have this id")


class JointBody(msgspec.Struct, frozen=True):
    """Body of the commit of a joint insert.

    Attributes
    ----------
    prepared
        What was prepared: the coordinator's own share first, one for each shard.  The shares of other tables are what the
        materialised views of its table make of the rows.  All of one table were split by one version of its map: if the map has
        changed in between, a row may be in two shares, or in none.
    since
        Of a rewrite: for each share the position of the log at which its client has read the shard.
    fills
        The view whose earlier rows these are; None: of none.
    """

    prepared: Annotated[tuple[PreparedShare, ...], msgspec.Meta(min_length=1, max_length=SHARDS_MAX)]
    since: Annotated[tuple[_Number, ...], msgspec.Meta(max_length=SHARDS_MAX)] = ()
    fills: FilledView | None = None

    def __post_init__(self) -> None:
        own, *others = self.prepared
        names = [share.shard for share in self.prepared]
        rules = (
            (
                own.coordinates and not any(share.coordinates for share in others),
                "the coordinator's own share comes first",
            ),
            (len(set(names)) == len(names), "two shares are of one shard"),
            (len(self.since) in {0, len(names)}, "a rewrite names a position for each share"),
            (self.since or not any(share.results for share in self.prepared), "a rewrite names positions"),
            (not self.since or (len(self._versions) == 1 and self.fills is None), "a rewrite is of one sharded table"),
            (
                all(len(versions) == 1 for versions in self._versions.values()),
                "the shares were split by several versions of the map: prepare all of them again",
            ),
        )
        for holds, problem in rules:
            if not holds:
                raise ValueError(problem)

    @property
    def map_version(self) -> int:
        """Version of the map by which the rows were split."""
        return self.prepared[0].map_version

    @property
    def targets(self) -> dict[str, int]:
        """Version of the map of each other table, by its name."""
        own = sharded_name(self.prepared[0].shard)
        return {name: min(versions) for name, versions in self._versions.items() if name != own}

    @property
    def _versions(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for share in self.prepared:
            found.setdefault(sharded_name(share.shard), set()).add(share.map_version)
        return found


def decode_joint_body(raw: bytes) -> JointBody:
    """Read the body of the commit of a joint insert.

    Raises
    ------
    BadInput
        It is not one, or a name or a number in it can't be right.
    """
    try:
        return json_decoder(JointBody).decode(raw)
    except msgspec.MsgspecError as error:
        raise BadInput(f"the body is not what a joint insert takes: {error}") from error


__all__ = ["FilledView", "JointBody", "PreparedPart", "PreparedResult", "PreparedShare", "decode_joint_body"]
