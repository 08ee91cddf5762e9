"""Restore a sharded table that coordination has lost, from the disks of its servers; this is what one server's disk gives.

The lock of the data folder is held all the time, as for any table.  In this order:

1. *read*    which shards of the table the folders keep, with the map; every byte of every part, and the shard key of every row
2. *judge*   no bucket may be moving; every row must lie in the shard that owns its bucket; the shards' columns must fit
3. *write*   the table's own nodes, unless a restore on another machine has; then each shard that is not restored yet
4. *show*    the map, if all shards are restored, from this disk or others, and stand at one cut

Nothing is written before 3.  Cut off anywhere, it is done again (`protocol.rescue.restore_sharded`).

*The map on a disk may be old.*  The rows judge it: when every row lies where the map says, each row is in one shard only,
whichever moves of buckets have come after the map was noted.

*Absent on purpose*: tables whose buckets were moving.  Which of their rows were shown where, is in coordination only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replitree.coordination.port import make_root
from replitree.errors import BadInput, StoreError, Unavailable, UnsupportedFormat
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.parts import Part
from replitree.protocol.rescue.restore import NotRestored
from replitree.protocol.rescue.restore_sharded import (
    UNKNOWN_STANDING,
    NotOneCut,
    RestoredShard,
    Restoring,
    ShardsMissing,
    Standing,
    begin_restore,
    find_restoring,
    restored_shards,
    shard_bond,
    show_restored,
)
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import NewShard, NewSharded
from replitree.protocol.sharded.placement import decode_placement, encode_placement
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map, made_anew
from replitree.replica.kit.config import ServerConfig
from replitree.replica.perform.runner import Performer
from replitree.replica.rescue.restore import (
    FoundParts,
    RestoreReport,
    find_parts,
    locked_folder,
    refuse_all,
    restoring_session,
    write_parts,
)
from replitree.storage.disk.kept_definition import FILE, read_definition
from replitree.storage.disk.kept_sharding import (
    SHARDING_FILE,
    KeptSharding,
    parts_digest,
    read_sharding,
    read_standing,
)
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.data_files import DataFile, open_parquet, reading_part
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.storage.schema.row_buckets import key_buckets, shard_key
from replitree.storage.schema.shard_definition import shard_definition
from replitree.wire.identity import new_incarnation

if TYPE_CHECKING:
    from replitree.coordination.zookeeper import ZooKeeperCoordination

READ_ROWS = 1 << 17
"""Rows whose keys are read at once."""

READ_BYTES = 1 << 20
"""Bytes of a column that are read from a disk at once."""


class ShardedRestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the restore of a sharded table.

    Attributes
    ----------
    table, table_id, replica
        Which table, and from the disk of which server.
    shards
        The shards of this disk that were restored, or would be.
    before
        The names of the shards that were restored before, by this server or another.
    missing
        The names of those that are not restored yet.
    shown
        Whether the table is there.
    not_one_cut
        Where the shards stand, by their names, if all are restored and no cut is known at which all of them stood.
    """

    table: str
    table_id: str
    replica: str
    shards: tuple[RestoreReport, ...]
    before: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    shown: bool = False
    not_one_cut: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptShard:
    """A shard on a disk: its folder, its definition there, and what it keeps of the sharded table."""

    shard: Shard
    folder: Path
    definition: TableDefinition
    sharding: KeptSharding


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A sharded table as a disk keeps it: its definition and map, the newest of those on the disk, and its shards there."""

    definition: TableDefinition
    map: ShardMap
    placement: bytes
    shards: tuple[KeptShard, ...]


def restore_sharded(
    config: ServerConfig,
    name: str,
    table_id: str | None = None,
    *,
    dry_run: bool = False,
    torn: bool = False,
    told: Callable[[int, int], object] | None = None,
) -> ShardedRestoreReport:
    """Make the shards on this server's disk shards of the table again; show the table if they were the last ones.

    Parameters
    ----------
    config, name, table_id, dry_run, told
        As of `restore_table`; `table_id` is that of the sharded table.
    torn
        Show the table even if no cut is known at which all shards stood.

    Raises
    ------
    ReplicaBusy
        The server runs: stop it first.
    BadInput
        The disk has no shard of this table; or it does not fit what another disk has restored, or what the map says; or
        coordination has the table.
    StoreError, NotAuthorized
        The object store gives no answer, or refuses.
    Unavailable
        It was not finished; do it again.
    """
    layout.check_table_name(name)
    with locked_folder(Path(config.data)):
        kept = kept_table(Path(config.data) / "tables", name, table_id)
        if dry_run:
            found = [_found(config.name, each, kept.map, told) for each in kept.shards]
            return _report(config, kept, [each.report for each in found])
        with restoring_session(config) as coordination:
            return _restore(config, kept, coordination, torn=torn, told=told)


def _restore(
    config: ServerConfig,
    kept: KeptTable,
    coordination: ZooKeeperCoordination,
    *,
    torn: bool,
    told: Callable[[int, int], object] | None,
) -> ShardedRestoreReport:
    root, name = coordination.url.root, kept.definition.name
    for parent in (layout.tables(root), places.all_sharded(root)):
        make_root(coordination, parent)
    run = Performer(lambda: coordination, refuse_all, refuse_all).run
    restoring = _no_reason(name, run(find_restoring(root, name)))
    before = {} if restoring is None else run(restored_shards(restoring))
    # The parts are read before anything is written: what does not fit ends the restore here.
    shard_map = kept.map if restoring is None else restoring.map
    _check_shards(kept, shard_map, restoring)
    found = [_found(config.name, each, shard_map, told) for each in kept.shards if each.shard not in before]
    if restoring is None:
        # Replicas of these shards may be active, under an incarnation that the restored table does not have.
        paths = [places.shard_place(root, name, shard).path for shard in shard_map.shards]
        left = [path for path in paths if coordination.perform(fx.Exists(path))]
        if left:
            raise BadInput(
                f"coordination has lost the table {name!r} only in part: {', '.join(left)} are there. Put back a copy of"
                " coordination; or stop all servers, delete these nodes with a client of ZooKeeper, and repeat this"
            )
        begun = _no_reason(name, run(begin_restore(_new_table(root, kept))))
        assert begun is not None
        restoring = begun
        # Another machine may have been first, with another map.
        if restoring.map != shard_map:
            raise Unavailable(f"table {name} is being restored from another disk since a moment ago; repeat this")
        _check_shards(kept, restoring.map, restoring)
    definition = decode_definition(restoring.metadata, restoring.columns)
    reports = []
    for each in found:
        shard = places.shard_number(each.definition.name)
        place = places.shard_place(root, name, shard, restoring.incarnation)
        bond = shard_bond(restoring, shard, config.name, standing_of(each))
        reports.append(write_parts(coordination, place, each, shard_definition(definition, shard), bond))
    outcome = run(show_restored(restoring, torn=torn))
    report = msgspec.structs.replace(
        _report(config, kept, reports),
        before=tuple(places.shard_name(name, shard) for shard in before),
    )
    match outcome:
        case NotRestored(reason, again):
            raise (Unavailable if again else BadInput)(f"table {name} is not restored: {reason}")
        case ShardsMissing(shards):
            missing = tuple(places.shard_name(name, shard) for shard in shards)
            return msgspec.structs.replace(report, missing=missing)
        case NotOneCut(shards):
            standings = {places.shard_name(name, shard): _standing_text(each) for shard, each in shards}
            return msgspec.structs.replace(report, not_one_cut=standings)
    return msgspec.structs.replace(report, shown=True)


def _no_reason(name: str, found: Restoring | NotRestored | None) -> Restoring | None:
    if isinstance(found, NotRestored):
        raise (Unavailable if found.again else BadInput)(f"table {name} is not restored: {found.reason}")
    return found


def _report(config: ServerConfig, kept: KeptTable, shards: list[RestoreReport]) -> ShardedRestoreReport:
    return ShardedRestoreReport(
        table=kept.definition.name, table_id=kept.definition.table_id, replica=config.name, shards=tuple(shards)
    )


def _standing_text(restored: RestoredShard) -> str:
    standing = restored.standing
    if not standing.ensemble:
        return f"from {restored.replica}, it is not known where it stands"
    return f"from {restored.replica}, it stands at the transactions {standing.first:,} to {standing.last:,}"


def _new_table(root: str, kept: KeptTable) -> NewSharded:
    shards = ((shard, shard_definition(kept.definition, shard)) for shard in kept.map.shards)
    return NewSharded(
        root,
        kept.definition.name,
        new_incarnation(),
        kept.definition.encode_metadata(),
        kept.definition.encode_columns(),
        kept.placement,
        kept.map,
        tuple(NewShard(shard, each.encode_metadata(), each.encode_columns()) for shard, each in shards),
    )


# --- what a disk keeps --------------------------------------------------------------------------------------------------------


def kept_table(tables: Path, name: str, table_id: str | None = None) -> KeptTable:
    """Return a sharded table as the folders of a server keep it.

    Parameters
    ----------
    tables
        The folder of all tables.
    name, table_id
        The sharded table; the id, or its beginning, when there are several of the name.

    Raises
    ------
    BadInput
        There is no shard of it, or shards of several, or what they keep contradicts itself or says that buckets move.
    StoreError, UnsupportedFormat
        A file can't be read.
    """
    shards = [each for each in _kept_shards(tables, name) if each.sharding.table_id.startswith(table_id or "")]
    ids = sorted({each.sharding.table_id for each in shards})
    if len(ids) > 1:
        raise BadInput(f"{tables} has shards of {len(ids)} tables {name!r}: say which by its id ({', '.join(ids)})")
    if not shards:
        named = f" with the id {table_id}" if table_id else ""
        raise BadInput(
            f"{tables} has no shard of a table {name!r}{named} that says how the table is sharded ({SHARDING_FILE} in its"
            " folder; that of another replica of the shard is the same)"
        )
    lives = sorted({each.sharding.incarnation for each in shards})
    if len(lives) > 1:
        where = ", ".join(f"{each.folder} of {each.sharding.incarnation}" for each in shards)
        raise BadInput(
            f"the shards of {name!r} on this disk are of different restores of the table ({where}): move the folders away that"
            " the server did not host any more"
        )
    newest = max(shards, key=lambda each: each.sharding.version)
    shard_map = decode_map(bytes(newest.sharding.map), str(newest.folder / SHARDING_FILE))
    placement = encode_placement(decode_placement(bytes(newest.sharding.placement), str(newest.folder / SHARDING_FILE)))
    if shard_map.moves:
        raise BadInput(
            f"buckets of {name!r} were moving, and no disk tells which of their rows were shown in which shard: restore a copy"
            " of coordination, or read the parts and insert them into a new table (docs/sharded-restore.md)"
        )
    latest = max(shards, key=lambda each: each.definition.schema_version)
    definition = replace(latest.definition, name=name, table_id=ids[0])
    # The views of the table are in coordination only, and its cuts are of another ensemble.
    return KeptTable(definition, made_anew(shard_map), placement, tuple(shards))


def _kept_shards(tables: Path, name: str) -> list[KeptShard]:
    found: list[KeptShard] = []
    for folder in sorted(tables.iterdir()) if tables.is_dir() else ():
        try:
            definition = read_definition(folder)
        except (StoreError, UnsupportedFormat):
            # A damaged folder may be that of another table; a shard that is missing is told by its number.
            continue
        if definition is None or not places.is_shard_name(definition.name):
            continue
        sharding = read_sharding(folder) if places.sharded_name(definition.name) == name else None
        if sharding is not None:
            found.append(KeptShard(places.shard_number(definition.name), folder, definition, sharding))
    return sorted(found, key=lambda each: each.shard)


def standing_of(found: FoundParts) -> Standing:
    """Return at which cuts a shard was what its disk has."""
    noted = read_standing(found.store.root)
    if noted is None or noted.parts != parts_digest(found.on_disk) or found.report.broken:
        return UNKNOWN_STANDING
    return Standing(noted.ensemble, noted.first, noted.last)


# --- what fits ----------------------------------------------------------------------------------------------------------------


def _check_shards(kept: KeptTable, shard_map: ShardMap, restoring: Restoring | None) -> None:
    """Raise unless the shards of a disk can be shards of the table.

    Raises
    ------
    BadInput
        One can't; says why, and what to do.
    """
    name = kept.definition.name
    table = kept.definition if restoring is None else decode_definition(restoring.metadata, restoring.columns)
    if table.table_id != kept.definition.table_id:
        raise BadInput(
            f"another table {name!r} is being restored: it has the id {table.table_id}, not {kept.definition.table_id}"
        )
    for each in kept.shards:
        own, folder = each.definition, each.folder
        if each.shard not in shard_map.shards and each.shard < shard_map.next_shard:
            raise BadInput(
                f"{folder} is a shard that was removed from {name!r} when it owned nothing: move the folder away"
            )
        if each.shard not in shard_map.shards:
            raise BadInput(
                f"{folder} is a shard that the map of {name!r} does not have: begin the restore with this server, whose map"
                " is newer"
            )
        if shard_definition(kept.definition, each.shard).table_id != own.table_id:
            raise BadInput(
                f"{folder / SHARDING_FILE} is of another table than {folder / FILE}: take that of another replica"
            )
        if own.schema_version > table.schema_version:
            raise BadInput(
                f"{folder} has columns of version {own.schema_version}, and the table is being restored with version"
                f" {table.schema_version}: begin the restore with this server"
            )
        if own.storage != table.storage:
            raise BadInput(
                f"{folder} has the storage {own.storage or 'local'}, and the table is being restored with"
                f" {table.storage or 'local'}: begin the restore with the server that has the newer one"
            )


def _found(replica: str, each: KeptShard, shard_map: ShardMap, told: Callable[[int, int], object] | None) -> FoundParts:
    """Read the parts of a shard, and make sure that all its rows belong to it.

    Raises
    ------
    BadInput
        A row does not.  Others as `find_parts`.
    """
    found = find_parts(replica, each.folder, each.definition, told)
    for part, manifest in found.chosen.items():
        owners = row_owners(found, part, manifest, shard_map) - {each.shard}
        if owners:
            others = ", ".join(str(shard) for shard in sorted(owners))
            raise BadInput(
                f"part {part.name} in {each.folder} has rows of buckets that the map gives to shard {others}: this disk, or"
                " the map, is older than a move of buckets. Restore the shard from another replica's disk, or begin"
                " the restore with the server that has the newest map"
            )
    return found


def row_owners(found: FoundParts, part: Part, manifest: PartManifest, shard_map: ShardMap) -> frozenset[Shard]:
    """Return the shards that own the rows of a part, by the map.

    Raises
    ------
    CorruptPart
        The part was damaged since it was verified.
    StoreError, NotAuthorized
        Its object store gives no answer, or refuses.
    """
    types = [column.arrow_type for column in shard_key(found.definition, shard_map.key)]
    owners, present, objects = shard_map.owners, set[int](), found.store.shared.objects
    folder = found.store.part_path(part.name)
    for entry in manifest.files:
        file: DataFile = folder / entry.name
        if objects is not None and manifest.share_id is not None:
            file = objects.file(manifest, entry)
        with reading_part(folder), open_parquet(file, buffer_bytes=READ_BYTES) as opened:
            for batch in opened.iter_batches(READ_ROWS, columns=list(shard_map.key)):
                # By name: a file has its columns in its own order.
                columns = [batch.column(name).cast(kind) for name, kind in zip(shard_map.key, types, strict=True)]
                present.update(set(key_buckets(columns, shard_map.buckets).tolist()))
    return frozenset(owners[bucket] for bucket in present)


__all__ = ["KeptTable", "ShardedRestoreReport", "kept_table", "restore_sharded", "row_owners", "standing_of"]
