"""Log entries and the small values beside them: what is written into coordination, byte for byte.

Everything is JSON with a format number.  A reader that meets a newer format or an unknown kind stops with
`UnsupportedFormat` and changes nothing: an older replica must never skip an entry that it does not understand.

=========  =====================================================================================  ==========================
kind       what it does to the parts of the table (`replitree.protocol.core.fold`)                     applies
=========  =====================================================================================  ==========================
`get`      adds the parts of one insert; with `drops`, replaces partitions; with `quorum`, opens  always
`settle`   changes no part: the quorum of an insert is reached, it is open no more                always
`fail`     removes the parts of an insert whose quorum was not reached                            always
`merge`    puts one part in the place of neighbours                                               while they are all there
                                                                                                  and none of them is open
`mutate`   puts a mutated part in the place of every earlier part of the table or a partition,    always
           or of those in its scope
`rewrite`  puts rewritten parts in the place of its sources, and adds parts                        while the sources are there
                                                                                                  under these very names,
                                                                                                  none of them open, and what
                                                                                                  it relies on is unchanged
`drop`     removes the earlier parts of the table or a partition, or those of a range of blocks   unless one straddles it
`alter`    changes the columns; the parts stay                                                    always
`storage`  changes where the rows belong, or how long parts stay that left; the parts stay         always
`view`     changes no part: from here on inserts into the table write to another one, too; or no more  always
`lost`     changes no part, but for its content: no replica has its rows, it is empty             while it, or a cover, is there
`roll`     changes nothing; the log goes on below its next parent                                 always
=========  =====================================================================================  ==========================
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.errors import UnsupportedFormat
from replitree.protocol.core.effects import BlockId, EntryId, JointId, StagedPart, StagedResult, StagingId
from replitree.protocol.core.parts import Part, inserted_part, mutated_part, parse_part
from replitree.protocol.core.streams import StreamBatch
from replitree.protocol.core.values import decode_value

EVERY_PARTITION = "*"
"""Stands for all partitions of the table where a partition is named."""

FORMATS = {
    "get": 5,
    "settle": 1,
    "fail": 1,
    "merge": 1,
    "mutate": 2,
    "rewrite": 1,
    "drop": 1,
    "alter": 1,
    "storage": 2,
    "view": 1,
    "lost": 1,
    "roll": 1,
}
"""The newest format of each kind that this version knows."""

BLOCK_FORMAT = 1


class GetEntry(msgspec.Struct, frozen=True, tag="get", tag_field="kind"):
    """An insert: every replica gets these parts.

    Attributes
    ----------
    replica, insert
        Its writer, and the staging id under which its files lie there until they are published.
    parts
        One part per partition.
    blocks
        The deduplication ids of all the requests in it.
    schema_version
        Version of the columns that the rows were written with.
    drops
        Partitions, or `EVERY_PARTITION`, whose earlier parts it replaces.  Such an entry has format 2.
    quorum
        How many replicas must have its parts before it counts: it is open until `settle` or `fail`.  Such an entry has
        format 3.
    stream
        The batch of a stream that it is, in the place of deduplication ids (`protocol.insert.stream`).  Such an entry has
        format 4: an earlier version would not set the stream back when it lets the insert fail.
    view
        The id of the materialised view whose rows they are.  It is for people and for checks: to the table such an entry is an
        insert as any other.
    joint, shards
        The joint insert that it belongs to, and how many logs have an entry of that (`protocol.sharded.joint_insert`).  Such an
        entry has format 5: an earlier version would take each of them for an insert of its own.
    """

    replica: str
    insert: StagingId
    parts: tuple[StagedPart, ...]
    blocks: tuple[BlockId, ...]
    schema_version: int = 1
    format: int = 1
    drops: tuple[str, ...] | UnsetType = UNSET
    quorum: int | UnsetType = UNSET
    stream: StreamBatch | UnsetType = UNSET
    view: EntryId | UnsetType = UNSET
    joint: JointId | UnsetType = UNSET
    shards: int | UnsetType = UNSET


class SettleEntry(msgspec.Struct, frozen=True, tag="settle", tag_field="kind"):
    """The quorum of an insert is reached: from here on it is acknowledged, and reads show it.

    Attributes
    ----------
    replica
        The replica that completed the quorum.
    insert, index
        The insert, by its staging id and by the index of its entry.
    holders
        The replicas that had its parts.
    """

    replica: str
    insert: StagingId
    index: int
    holders: tuple[str, ...]
    format: int = 1


class FailEntry(msgspec.Struct, frozen=True, tag="fail", tag_field="kind"):
    """The quorum of an insert was given up: its parts leave the table for good.

    Attributes
    ----------
    replica
        The replica that gave it up.
    insert, index
        The insert, by its staging id and by the index of its entry.
    partitions
        What it wrote to.
    """

    replica: str
    insert: StagingId
    index: int
    partitions: tuple[str, ...]
    format: int = 1


class MergeEntry(msgspec.Struct, frozen=True, tag="merge", tag_field="kind"):
    """A merge: one part takes the place of neighbours.

    Attributes
    ----------
    replica
        The replica that proposed it.
    sources
        Names of the parts, ascending, of one partition, with no other part between them.  One source is enough where a
        policy has something to do inside it.
    schema_version
        Version of the columns that the result is written with.
    """

    replica: str
    sources: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    schema_version: int = 1
    format: int = 1


class _Commanded(msgspec.Struct, frozen=True):
    """What a user asked for.

    Attributes
    ----------
    replica, id
        The replica that proposed it, and the id of the command.
    """

    replica: str
    id: EntryId


class MutateEntry(_Commanded, frozen=True, tag="mutate", tag_field="kind"):
    """A mutation: every earlier part in its scope is replaced by its mutated form.

    Attributes
    ----------
    partition
        Only parts of this partition, or `EVERY_PARTITION`.
    command
        What is done to the rows, as `replitree.storage.rewrite.mutate` writes it; the protocol does not look inside.
    schema_version
        Version of the columns that the command was written for and the results are written with.
    partitions, since
        The scope: at the position `since` of the log only these partitions could have rows that the mutation
        changes, as the proposing replica found (`replitree.protocol.state.mutation_scope`).  UNSET: every part is in scope.  An
        entry with a scope has format 2.
    """

    partition: str
    command: str
    schema_version: int = 1
    format: int = 1
    partitions: tuple[str, ...] | UnsetType = UNSET
    since: int | UnsetType = UNSET


class Unchanged(msgspec.Struct, frozen=True):
    """What a serializable rewrite relies on: since its client read them, these partitions have got no rows and lost none.

    Attributes
    ----------
    partitions
        The partitions, or `EVERY_PARTITION`.
    since
        The position of the log at which the client has read them.
    opened
        The inserts that were open there: the client has not seen their rows.
    """

    partitions: tuple[str, ...]
    since: int
    opened: tuple[int, ...] = ()


class RewriteEntry(_Commanded, frozen=True, tag="rewrite", tag_field="kind"):
    """A rewrite: rewritten parts take the place of the parts that a client has read, and new parts come; all of it or nothing.

    Attributes
    ----------
    insert
        The staging id under which the files lie at its writer until they are published.
    results
        For each source what takes its place, in the order of the sources' names.  A source that loses all its rows
        has a result without rows, as after a mutation.
    inserts
        New parts, one per partition at most: rows that are new, or that belong to another partition now.
    schema_version
        Version of the columns that the rows were written with.
    unchanged
        What it relies on besides its sources; UNSET: nothing.
    """

    insert: StagingId
    results: tuple[StagedResult, ...]
    inserts: tuple[StagedPart, ...] = ()
    schema_version: int = 1
    format: int = 1
    unchanged: Unchanged | UnsetType = UNSET


class DropEntry(_Commanded, frozen=True, tag="drop", tag_field="kind"):
    """A drop: earlier parts leave the table.

    Attributes
    ----------
    partition
        Only parts of this partition, or `EVERY_PARTITION`.
    block_min, block_max
        Only parts of these blocks, both included.  When a part is partly in the range, nothing is dropped at all.
    detach
        Whether every replica keeps the parts aside.
    """

    partition: str
    block_min: int | None = None
    block_max: int | None = None
    detach: bool = False
    format: int = 1


class AlterEntry(_Commanded, frozen=True, tag="alter", tag_field="kind"):
    """A change of the columns; it is in one commit with the new value of the `columns` node.

    Attributes
    ----------
    command
        What is changed, as `replitree.storage.sql.evolve` writes it.
    schema_version
        Version of the columns from here on.
    """

    command: str
    schema_version: int
    format: int = 1


class StorageEntry(_Commanded, frozen=True, tag="storage", tag_field="kind"):
    """A change of the storage policy or of the retention; it is in one commit with the new value of the `metadata` node.

    Attributes
    ----------
    storage
        The policy from here on, as `replitree.storage.schema.storage_policy` writes it.
    keep
        How long parts that have left stay from here on, as `replitree.storage.schema.retention` writes it.  UNSET: as before.
        Such an entry has format 2.
    """

    storage: str
    format: int = 1
    keep: str | UnsetType = UNSET


class ViewEntry(_Commanded, frozen=True, tag="view", tag_field="kind"):
    """A materialised view begins, or ends; it is in one commit with the new value of the `views` node.

    Attributes
    ----------
    name
        The view's name.
    target
        The name of the table that it writes to.
    command
        What it makes of the rows of an insert, as `replitree.storage.sql.view` writes it.  UNSET: the view ends here.
    """

    name: str
    target: str
    format: int = 1
    command: str | UnsetType = UNSET


class LostEntry(msgspec.Struct, frozen=True, tag="lost", tag_field="kind"):
    """A lost part: no replica has its rows, and it is empty from here on.

    Attributes
    ----------
    replica
        The replica that declared it.
    part
        The part's name.
    content_hash, schema_version
        Of the empty part.
    """

    replica: str
    part: str
    content_hash: str
    schema_version: int = 1
    format: int = 1


class RollEntry(msgspec.Struct, frozen=True, tag="roll", tag_field="kind"):
    """The last entry below its parent: the log goes on below the next one.

    Attributes
    ----------
    replica
        The replica that appended it.
    """

    replica: str
    format: int = 1


Verdict: TypeAlias = SettleEntry | FailEntry
"""Entries that end the quorum of an insert, one of them for each."""

Command: TypeAlias = MutateEntry | RewriteEntry | DropEntry | AlterEntry | StorageEntry | ViewEntry
"""Entries that a user asks for and that are found again by their id."""

Entry: TypeAlias = GetEntry | Verdict | MergeEntry | Command | LostEntry | RollEntry


class _EntryHeader(msgspec.Struct):
    kind: str
    format: int


BLOCK_PARTITIONS_MAX = 16


class BlockValue(msgspec.Struct, frozen=True):
    """Value of a `blocks` node.

    Attributes
    ----------
    insert
        The staging id of the insert that the request became part of.
    log_from
        An index that is not above the insert's entry: where a search for it starts.
    partitions
        The partitions that the insert wrote to: known also when its entry is gone.  UNSET when there are more than
        `BLOCK_PARTITIONS_MAX`, and for what is no insert.
    dropped
        True: all that the insert wrote was dropped after it.  UNSET: ask the entry and the notes of drops.
    """

    insert: StagingId
    log_from: int
    format: int = BLOCK_FORMAT
    partitions: tuple[str, ...] | UnsetType = UNSET
    dropped: bool | UnsetType = UNSET


_decode_header = json_decoder(_EntryHeader).decode
_decode_entry = json_decoder(Entry).decode
_decode_block = json_decoder(BlockValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of a log entry."""
    return _encode(entry)


def decode_entry(raw: bytes, where: str) -> Entry:
    """Read a log entry.

    Parameters
    ----------
    raw
        The node's value.
    where
        The node's path, for the error.

    Raises
    ------
    UnsupportedFormat
        It has a newer format, an unknown kind, or is no entry at all.
    """
    try:
        header = _decode_header(raw)
        if header.format > FORMATS.get(header.kind, 0):
            known = ", ".join(f"{kind!r} up to format {newest}" for kind, newest in FORMATS.items())
            raise UnsupportedFormat(
                f"{where} has kind {header.kind!r} in format {header.format}; this replitree knows {known}. "
                "Upgrade this replica; it stopped before the entry and lost nothing."
            )
        decoded: Entry = _decode_entry(raw)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat(
            f"{where} can't be read ({error}); upgrade this replica or restore the node. It stopped before the entry."
        ) from error
    return decoded


def encode_block(value: BlockValue) -> bytes:
    """Return the bytes of a `blocks` node."""
    return _encode(value)


def decode_block(raw: bytes, where: str) -> BlockValue:
    """Read a `blocks` node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode_block, raw, where, BLOCK_FORMAT)


def inserted_parts(entry: GetEntry, index: int) -> tuple[Part, ...]:
    """Return the parts that the insert at `index` makes, in the order of the entry's `parts`."""
    return tuple(inserted_part(part.partition, index) for part in entry.parts)


def staged_names(entry: GetEntry | RewriteEntry, index: int) -> tuple[tuple[str, Part, str], ...]:
    """Return what the entry at `index` has staged at its writer: under which name, for which part, with which content."""
    inserts = entry.parts if isinstance(entry, GetEntry) else entry.inserts
    results = () if isinstance(entry, GetEntry) else entry.results
    return (
        *((each.source, mutated_part(parse_part(each.source), index), each.content_hash) for each in results),
        *((each.partition, inserted_part(each.partition, index), each.content_hash) for each in inserts),
    )


def written_parts(entry: GetEntry | RewriteEntry, index: int) -> tuple[Part, ...]:
    """Return the parts whose rows the writer of the entry at `index` has staged."""
    return tuple(part for _, part, _ in staged_names(entry, index))


def part_names(entry: GetEntry, index: int) -> tuple[tuple[str, str], ...]:
    """Return (partition, part name) of each part that the insert at `index` makes."""
    return tuple((part.partition, inserted_part(part.partition, index).name) for part in entry.parts)


def dropped_partitions(entry: GetEntry) -> tuple[str, ...]:
    """Return the partitions that an insert replaces, mostly none."""
    return () if entry.drops is UNSET else entry.drops


def quorum_of(entry: Entry) -> int:
    """Return how many replicas must have an insert's parts before it counts; 0 for one that counts by its own entry."""
    return 0 if not isinstance(entry, GetEntry) or entry.quorum is UNSET else entry.quorum
