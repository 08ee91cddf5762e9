"""Requests for a snapshot: wait for what the reader must see, then say which parts that is.

A replica waits as long as the reader lets it, and then says that it is behind; it never shows less than was asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
import xxhash

from replitree.errors import BadInput, CorruptPart, ReplicaBehind, ReplicaUnavailable, SnapshotExpired
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.read import READ_LEVELS, ReadLevel, position_of
from replitree.replica.http.gate import WAIT_S_DEFAULT, encode_json, number, seconds, wait_until
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.table.snapshots import TakenSnapshot
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.identity import machine_id

_NOUNS = {"get": "insert", "mutate": "mutation", "fail": "end of an insert", "lost": "loss of a part"}
"""What messages call kinds of entries, where the kind itself is no noun."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What a snapshot must show.

    Attributes
    ----------
    level
        What it is promised.
    at_least, mutated
        Everything below this index is included, and every mutation up to that one.
    included
        The entry at this index counts at a strict level: if it is an insert, it is not open.
    as_of
        Exactly what is below this index; None: whatever the level gives.
    lease_s
        For how long its parts are kept, in seconds; None: no lease.
    until
        When to give up (monotonic seconds).
    names_lacking
        Whether the reader can do with parts that are not whole here: they are named.
    where, columns
        The reader's condition, and the schema version that the reader reads it with: parts in which no row can match are left
        out.  "" for all parts.
    tag
        Of a snapshot that the reader keeps: it asks only whether this one is the same.  "": it asks for the parts.
    """

    level: ReadLevel
    at_least: LogIndex
    mutated: LogIndex
    included: LogIndex
    as_of: LogIndex | None
    lease_s: float | None
    until: float
    names_lacking: bool = False
    where: str = ""
    columns: int = 0
    tag: str = ""

    @property
    def left_s(self) -> float:
        """How many seconds are left."""
        return max(0.0, self.until - time.monotonic())


async def snapshot(table: TableReplica, query: Mapping[str, str]) -> bytes:
    """Return a snapshot as JSON.

    Parameters
    ----------
    query
        ``level``: what it is promised (`replitree.protocol.state.read`); ``min_index`` and ``mutated``: what must be in it;
        ``seen``: the lowest position of a strict read;
        ``as_of``: exactly what the log has below; ``wait_s``: how long to wait for that; ``lease_s``: how long its parts are
        kept; ``lacking``: 1 when the reader can do with parts that are not whole here; ``where`` and ``columns``: a condition,
        and the schema version for it: parts that can't match are left out; ``tag``: that of a snapshot that the reader keeps:
        the answer has no parts, and says in ``unchanged`` whether the snapshot is still the same.

    Raises
    ------
    ReplicaBehind
        This replica does not have that much in time.
    CoordinationUnavailable
        A linearizable read could not be had: coordination does not say where the log ends.
    SnapshotExpired
        Parts of `as_of` are gone.
    """
    asked = _asked(query)
    position = await _position(table, asked)
    try:
        return await asyncio.to_thread(_snapshot_body, table, asked, position)
    except SnapshotExpired as error:
        if asked.level == "eventual":
            raise
        # The parts of this position have just left: a later position may be read.
        raise ReplicaBehind(
            f"replica {table.replica.name} has gone on beyond {position} ({error}): try again"
        ) from error


async def wait_executed(table: TableReplica, position: LogIndex, until: float) -> None:
    """Wait until everything below a position is executed here, merges and open inserts excepted.

    Parameters
    ----------
    until
        When to give up (monotonic seconds).

    Raises
    ------
    ReplicaBehind
        It is not executed in time.
    """
    if not await wait_until(table, lambda: table.progress.is_readable(position), max(0.0, until - time.monotonic())):
        raise _behind(table, position)


def snapshot_below(table: TableReplica, query: Mapping[str, str], position: LogIndex) -> bytes:
    """Return a snapshot of a position below which everything is executed, as JSON.  May wait for the disk.

    Parameters
    ----------
    query
        ``lease_s``, ``lacking``, ``where``, ``columns`` and ``tag``, as of `snapshot`.

    Raises
    ------
    SnapshotExpired
        What the table was there is not known any more, or parts of it are gone.
    """
    # To the reader it is a read at a position, as one of this level.
    return _snapshot_body(table, replace(_asked(query), level="sequential"), position)


async def version_here(table: TableReplica, query: Mapping[str, str]) -> LogIndex:
    """Wait until a version is here, and return its index: that of ``as_of``, or of a strict level.  Raises as `snapshot`."""
    asked = _asked(query)
    position = await _position(table, asked)
    assert position is not None, "an eventual read without `as_of` stands at no position"
    return position


async def _position(table: TableReplica, asked: SnapshotRequest) -> LogIndex | None:
    """Wait until a read can be done, and return where it stands; None: at what is here."""
    # A client must not wait for a recovery, because another replica has the rows.
    if table.recovery.unreadable is not None:
        raise ReplicaUnavailable(f"{table.why_unreadable()}; ask another replica")
    progress = table.progress

    def is_there() -> bool:
        """Whether every insert and drop below `at_least`, and every mutation up to `mutated`, is executed here."""
        if progress.index < asked.at_least or (asked.mutated >= 0 and not progress.is_mutated(asked.mutated)):
            return False
        # If what is here now is to be shown, no insert and no rewrite may be here in part.
        return asked.as_of is not None or progress.shown_partly() is None

    if asked.level == "eventual":
        if not await wait_until(table, is_there, asked.left_s):
            raise _behind(table, max(asked.at_least, asked.mutated + 1))
        return asked.as_of
    await wait_until(table, lambda: progress.place is not None, asked.left_s)
    place = progress.place
    if place is None:
        raise ReplicaUnavailable(f"{table.availability.why_not_active()}; ask another replica")
    end = await table.end_of_log.ask(asked.left_s) if asked.level == "linearizable" else None
    return await _readable_position(table, asked, position_of(asked.level, asked.at_least, place.pointer.index, end))


def _asked(query: Mapping[str, str]) -> SnapshotRequest:
    """Read what a snapshot must show.

    Raises
    ------
    BadInput
        The level is unknown, a number is none, or `as_of` comes with a level.
    """
    level = query.get("level", "eventual")
    if level not in READ_LEVELS:
        raise BadInput(f"level={level!r} is unknown: use {', '.join(READ_LEVELS)}")
    as_of = LogIndex(number(query, "as_of", 0)) if "as_of" in query else None
    if as_of is not None and level != "eventual":
        raise BadInput("as_of says exactly what is included: give it or a level, not both")
    below = number(query, "min_index", 0)
    at_least = LogIndex(max(below, number(query, "seen", 0), as_of or 0))
    mutated = LogIndex(number(query, "mutated", -1) if as_of is None else as_of - 1)
    lease_s = seconds(query, "lease_s", 0.0, LEASE_S_MAX) or None
    until = time.monotonic() + seconds(query, "wait_s", WAIT_S_DEFAULT)
    names_lacking = query.get("lacking") == "1"
    where, columns, tag = query.get("where", ""), number(query, "columns", 0), query.get("tag", "")
    return SnapshotRequest(
        level, at_least, mutated, LogIndex(below - 1), as_of, lease_s, until, names_lacking, where, columns, tag
    )


async def _readable_position(table: TableReplica, asked: SnapshotRequest, position: LogIndex) -> LogIndex:
    """Wait until a strict read can be done at a position; return that, or a later one if what was asked for is open there."""
    progress = table.progress
    while True:
        here = position
        if not await wait_until(table, lambda: progress.is_readable(here), asked.left_s):  # noqa: B023 - called at once
            raise _behind(table, position)
        if asked.included not in progress.open_at(position):
            return position
        # The insert that the client asks for is open here: the client may know of the later entry that settled it.
        if not await wait_until(table, lambda: progress.pointer > here, asked.left_s):  # noqa: B023 - called at once
            raise _behind(table, LogIndex(position + 1))
        position = progress.pointer


def _behind(table: TableReplica, wanted: int) -> ReplicaBehind:
    """Return the error of a read that waited in vain: what it has waited for."""
    progress, name = table.progress, table.replica.name
    awaited = progress.awaited(LogIndex(wanted))
    partly = progress.shown_partly()
    if awaited is None and partly is not None:
        state = f"replica {name} has a part of entry {partly} of the log and has not executed that entry yet"
    elif awaited is None:
        state = f"replica {name} has pulled the log up to {progress.pointer}, and the read needs it up to {wanted}"
    else:
        index, kind, reason = awaited
        kind = _NOUNS.get(kind, kind)
        state = f"replica {name} has not executed the {kind} at {index} of the log yet, and the read needs it up to {wanted}"
        state += f" ({reason})" if reason else ""
    return ReplicaBehind(f"{state}: allow more time, or ask another replica")


def _snapshot_body(table: TableReplica, asked: SnapshotRequest, as_of: LogIndex | None) -> bytes:
    """Take a snapshot and return it as JSON."""
    lease_s = None if asked.tag else asked.lease_s
    taken = table.snapshots.take(as_of, lease_s, names_lacking=asked.names_lacking)
    definition = table.definition
    tag = ""
    # A broken part may be whole again a moment later, without a new index: then equal snapshots can't be told by a tag.
    if not taken.lacking:
        # Only equal snapshots of one replica have the same tag.  A table that is created again has another id.  A change of the
        # columns or of the storage policy is an entry of the log, so the index of the snapshot is another one, even where this
        # replica has not read the new definition yet.
        known = f"{definition.table_id}\n{table.replica.name}\n{definition.schema_version}\n{taken.index}\n"
        tag = xxhash.xxh3_128_hexdigest((known + "\n".join(sorted(taken.parts))).encode())
    if asked.tag:
        same = {"unchanged": asked.tag == tag, "parts": []}
        return encode_json({**_head(table, asked, taken, definition), **same})
    try:
        manifests = [(part, _manifest(table, part)) for part in sorted(taken.parts)]
        rows = [_row(table, part, manifest) for part, manifest in _wanted(manifests, asked, definition)]
    except (CorruptPart, ReplicaUnavailable) as error:
        if taken.lease is not None:
            table.old_parts.release(taken.lease)
        if isinstance(error, ReplicaUnavailable):
            raise
        raise SnapshotExpired(f"{error}; take a new snapshot") from error
    head = _head(table, asked, taken, definition)
    if tag and not asked.where:
        head["tag"] = tag
    if taken.lacking:
        values = {manifest.partition: manifest.partition_values for _, manifest in manifests}
        told = [_lacking_row(table, part, values) for part in sorted(taken.lacking)]
        rows += [row for row in told if "manifest" in row]
        rows.sort(key=lambda row: str(row["part"]))
        head["unread"] = [row for row in told if "manifest" not in row]
    lease = {} if taken.lease is None else {"lease": taken.lease, "lease_s": asked.lease_s}
    return encode_json({**head, "parts": rows, **lease})


def _head(
    table: TableReplica, asked: SnapshotRequest, taken: TakenSnapshot, definition: TableDefinition
) -> dict[str, object]:
    head = {"index": taken.index, "schema_version": definition.schema_version, "replica": table.replica.name}
    return {**head, "level": asked.level, "machine": readers_machine(table)}


def readers_machine(table: TableReplica) -> str:
    """Return the machine whose processes can open the files of parts themselves; "" when none can.

    The files of shares are brought from the object store when the replica is asked for them.
    """
    return machine_id() if table.sharing is None else ""


def _manifest(table: TableReplica, part: str) -> PartManifest:
    try:
        return table.store.manifest(part)
    except CorruptPart as error:
        if table.suspect(part):
            # The part was replaced or removed meanwhile.
            raise
        raise ReplicaUnavailable(
            f"part {part} is damaged on replica {table.replica.name} and is being fetched again ({error}); "
            "ask another replica"
        ) from error


def _wanted(
    manifests: list[tuple[str, PartManifest]], asked: SnapshotRequest, definition: TableDefinition
) -> list[tuple[str, PartManifest]]:
    """Leave out the parts in which no row can match the reader's condition."""
    newest = max((manifest.schema_version for _, manifest in manifests), default=0)
    # The reader applies the condition itself, so more parts do no harm.  With other columns than the reader's, a name may mean
    # another column, and no part may be left out.
    if not asked.where or not newest <= definition.schema_version == asked.columns:
        return manifests
    from replitree.storage.sql.predicate_parser import parse_predicate

    try:
        predicate = parse_predicate(asked.where, definition)
        return [(part, manifest) for part, manifest in manifests if predicate.may_match(manifest)]
    except BadInput:
        # The reader finds the same error, and reports it.
        return manifests


def part_row(table: TableReplica, part: str) -> dict[str, object]:
    """Describe a part to a reader: its name, where it lies, and its manifest.

    Raises
    ------
    CorruptPart
        It was replaced or removed meanwhile.
    ReplicaUnavailable
        It is damaged here, and is being fetched again.
    """
    return _row(table, part, _manifest(table, part))


def _row(table: TableReplica, part: str, manifest: PartManifest) -> dict[str, object]:
    return {"part": part, "path": str(table.store.part_path(part)), "manifest": msgspec.Raw(manifest.encode())}


def _lacking_row(table: TableReplica, part: str, values: Mapping[str, tuple[Scalar, ...]]) -> dict[str, object]:
    """Describe a part that is not whole here: by its manifest, by the values of its partition, or by its name alone."""
    row: dict[str, object] = {"part": part, "why": table.mending.why_lacking(part)}
    manifest = table.sources.salvage.manifest_of(part)
    if manifest is not None:
        return {**row, "path": "", "manifest": msgspec.Raw(manifest.encode()), "lacking": True}
    content = table.lacking.get(part, "")
    # A part without an entry here was made whole a moment ago.
    if not content:
        with suppress(CorruptPart):
            return _row(table, part, table.store.manifest(part))
    return {**row, "partition_values": values.get(parse_part(part).partition), "content": content}
