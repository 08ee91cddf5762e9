"""Restore a table from this server's disk, while the server does not run: coordination has lost it, the disk has not.

The lock of the data folder is held all the time, so no process acts for the replica.  Every byte of every part is read first;
what is broken is set aside, and the table is made of the rest (`protocol.rescue.restore`).  Cut off anywhere, it is done again.

Of a table on an object store the bytes are read there.  When the store does not answer, nothing is called broken: the restore
ends, and nothing was changed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replitree.coordination.port import make_root
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import BadInput, CorruptPart, ReplitreeError, StoreError, Unavailable, UnsupportedFormat
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Exists
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.rescue.restore import NotRestored, ShardBond, choose_parts, detached_parts, restore
from replitree.protocol.rescue.restore_shared import RestoredShares
from replitree.protocol.sharded.places import is_shard_name, sharded_name
from replitree.protocol.shares.share import ShareId
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.data_folder import lock_data_folder
from replitree.replica.kit.old_parts import RETIRED
from replitree.replica.perform.runner import Performer
from replitree.storage.disk.kept_definition import FILE, read_definition
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.tls import Contexts
from replitree.wire.identity import new_incarnation, own_identity

if TYPE_CHECKING:
    from replitree.storage.shares.shares import ShareObjects


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a restore.

    Attributes
    ----------
    table, table_id, replica, folder
        Which, and from which folder.
    parts, rows, bytes
        What the table has now.
    broken
        Parts whose files are not what their manifests say; set aside.
    overlapping
        Parts that overlap a chosen one; set aside.
    detached
        Parts that a detach has kept aside and left where they were, when its process died; set aside.
    first
        Where its log goes on; None when nothing was written.
    already
        An earlier run has restored the table, and this one has changed nothing.
    """

    table: str
    table_id: str
    replica: str
    folder: str
    parts: int
    rows: int
    bytes: int
    broken: dict[str, str]
    overlapping: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()
    first: int | None = None
    already: bool = False


def restore_table(
    config: ServerConfig,
    name: str,
    table_id: str | None = None,
    *,
    dry_run: bool = False,
    told: Callable[[int, int], object] | None = None,
) -> RestoreReport:
    """Make the parts on this server's disk the table.

    Parameters
    ----------
    config
        The server's.
    name, table_id
        The table; the id, or its beginning, when the folder has several of that name.
    dry_run
        Only read and say what would be done; nothing is written or set aside.
    told
        Called with how many parts are verified, and how many there are.

    Raises
    ------
    ReplicaBusy
        The server runs: stop it first.
    BadInput
        The disk has no such table, or more than one; or coordination has the table; or its object store is another one; or the
        table is sharded (`restore_sharded`).
    StoreError, NotAuthorized
        Its object store gives no answer, or refuses.
    Unavailable
        It was not finished; do it again.
    """
    if is_sharded(name, kept_tables(Path(config.data) / "tables")):
        raise BadInput(
            f"table {sharded_name(name)!r} is sharded, and its shards are restored together: replitree restore"
            f" {sharded_name(name)}"
        )
    layout.check_table_name(name)
    with locked_folder(Path(config.data)):
        folder, definition = find_table(Path(config.data) / "tables", name, table_id)
        found = find_parts(config.name, folder, definition, told)
        if dry_run:
            return found.report
        place = TablePlace(layout.table_path("", name), incarnation=new_incarnation())
        with restoring_session(config) as coordination:
            make_root(coordination, layout.tables(coordination.url.root))
            return write_parts(coordination, place, found)


def is_sharded(name: str, kept: Collection[str]) -> bool:
    """Whether a name is that of a shard, or of a table of which a disk has shards.

    Parameters
    ----------
    name
        What is to be restored.
    kept
        The names of the tables on the disk.
    """
    return is_shard_name(name) or any(is_shard_name(each) and sharded_name(each) == name for each in kept)


@dataclass(frozen=True, slots=True)
class FoundParts:
    """What a disk has of a table, every byte of it read.

    Attributes
    ----------
    store, definition
        Its folder, and its definition there.
    report
        What would be restored.
    chosen
        The parts that become the table.
    on_disk
        The names of the parts that are not old and that no other one covers, broken ones included.
    """

    store: PartStore
    definition: TableDefinition
    report: RestoreReport
    chosen: dict[Part, PartManifest]
    on_disk: tuple[str, ...]


def find_parts(
    replica: str, folder: Path, definition: TableDefinition, told: Callable[[int, int], object] | None
) -> FoundParts:
    """Read all parts of a table in its folder, and choose those that can be the table; nothing is changed.

    Parameters
    ----------
    replica
        The name of the server whose disk it is.
    folder, definition
        As of `find_table`.
    told
        As of `restore_table`.

    Raises
    ------
    BadInput, StoreError, NotAuthorized
        As `restore_table`.
    """
    store = PartStore(folder)
    store.shared.objects = objects_of(definition) if definition.is_shared else None
    whole, broken = _verify(store, folder, definition, told)
    kept = {parse_part(each.part): each.manifest.content for each in store.attachable() if each.name == each.part}
    detached = detached_parts({part: manifest.content for part, manifest in whole.items()}, kept)
    chosen, overlapping = choose_parts(part for part in whole if part not in detached)
    report = RestoreReport(
        table=definition.name,
        table_id=definition.table_id,
        replica=replica,
        folder=str(folder),
        parts=len(chosen),
        rows=sum(whole[part].rows for part in chosen),
        bytes=sum(whole[part].bytes for part in chosen),
        broken=broken,
        overlapping=tuple(part.name for part in overlapping),
        detached=tuple(part.name for part in sorted(detached)),
    )
    on_disk = tuple(part.name for part in maximal((*whole, *map(parse_part, broken))))
    return FoundParts(store, definition, report, {part: whole[part] for part in chosen}, on_disk)


def objects_of(definition: TableDefinition) -> ShareObjects:
    """Open the store of a table, and make sure that it is one that was used before.

    Raises
    ------
    BadInput
        It was not.
    StoreError, NotAuthorized
        It gives no answer, or refuses.
    """
    from replitree.storage.objects.opening import open_store
    from replitree.storage.objects.probe import STORE_ID_KEY, store_id
    from replitree.storage.shares.shares import ShareObjects

    objects = ShareObjects(partial(open_store, definition.store_url), definition.table_id)
    # Coordination has lost the table, so it can't say which store the table had.
    if objects.store.get(STORE_ID_KEY) is None:
        raise BadInput(f"{objects.store.name} was never used by a table: is its disk mounted, and its bucket the same?")
    objects.store_id = store_id(objects.store)
    return objects


def restored_shares(objects: ShareObjects, parts: dict[Part, PartManifest]) -> RestoredShares:
    """Return what the parts have in the store; one that has all its rows on this disk has nothing there."""
    shares = {part.name: tuple(map(ShareId, manifest.shares)) for part, manifest in parts.items() if manifest.shares}
    return RestoredShares(objects.store_id, uuid.uuid4().hex, shares)


def find_table(tables: Path, name: str, table_id: str | None) -> tuple[Path, TableDefinition]:
    """Return a table's folder below a server's data folder, and the definition that it keeps.

    Raises
    ------
    BadInput
        There is none, or more than one; says which there are.
    """
    found: list[tuple[Path, TableDefinition]] = []
    damaged: list[str] = []
    for folder in sorted(tables.iterdir()) if tables.is_dir() else ():
        try:
            definition = read_definition(folder)
        except (StoreError, UnsupportedFormat) as error:
            # The damaged folder belongs to another table, if this one is found.
            damaged.append(str(error))
            continue
        if definition is not None and definition.name == name and definition.table_id.startswith(table_id or ""):
            found.append((folder, definition))
    if not found and damaged:
        raise StoreError("; ".join(damaged))
    if not found:
        raise BadInput(
            f"{tables} has no table {name!r}{f' with the id {table_id}' if table_id else ''} that says what its columns are "
            f"({FILE} in its folder; another replica's is the same)"
        )
    if len(found) > 1:
        each = ", ".join(f"{definition.table_id} in {folder.name}" for folder, definition in found)
        raise BadInput(f"{tables} has {len(found)} tables {name!r}: say which by its id ({each})")
    return found[0]


def kept_tables(tables: Path) -> tuple[str, ...]:
    """Return the names of the tables that a server's data folder keeps, whether coordination has them or not."""
    found = set[str]()
    for folder in tables.iterdir() if tables.is_dir() else ():
        # A damaged folder is reported by `find_table`.
        with suppress(StoreError, UnsupportedFormat):
            definition = read_definition(folder)
            if definition is not None:
                found.add(definition.name)
    return tuple(sorted(found))


def lost_tables(config: ServerConfig) -> tuple[str, ...]:
    """Return the names of the tables on this server's disk that coordination does not have, or whose restore was cut off.

    Shards stand for their sharded table, which is there when its map is.

    Raises
    ------
    CoordinationUnavailable
        Coordination can't be asked.
    """
    names = kept_tables(Path(config.data) / "tables")
    with restoring_session(config) as session:
        lost: list[str] = []
        for name in dict.fromkeys(map(sharded_name, names)):
            if is_sharded(name, names):
                if not session.perform(Exists(layout.shard_map(layout.sharded(session.url.root, name)))):
                    lost.append(name)
                continue
            place = TablePlace(layout.table_path(session.url.root, name))
            # A table whose restore was cut off has metadata already.
            is_there = session.perform(Exists(layout.metadata(place)))
            if not is_there or session.perform(Exists(layout.restoring(place))):
                lost.append(name)
        return tuple(lost)


def _verify(
    store: PartStore, folder: Path, definition: TableDefinition, told: Callable[[int, int], object] | None
) -> tuple[dict[Part, PartManifest], dict[str, str]]:
    """Read all parts that are not old; return those that are whole, and the problems of the others."""
    old = frozenset(path.name for path in (folder / RETIRED).iterdir()) if (folder / RETIRED).is_dir() else frozenset()
    names = tuple(part for part in store.parts() if part not in old)
    whole: dict[Part, PartManifest] = {}
    broken: dict[str, str] = {}
    for done, name in enumerate(names, 1):
        try:
            manifest = store.verify(name)
        except CorruptPart as error:
            broken[name] = str(error)
        else:
            if manifest.schema_version > definition.schema_version:
                raise BadInput(
                    f"part {name} has columns of version {manifest.schema_version}, and {folder / FILE} knows only up to "
                    f"{definition.schema_version}: take that file from another replica"
                )
            whole[parse_part(name)] = manifest
        if told is not None:
            told(done, len(names))
    return whole, broken


def write_parts(
    coordination: ZooKeeperCoordination,
    place: TablePlace,
    found: FoundParts,
    definition: TableDefinition | None = None,
    bond: ShardBond | None = None,
) -> RestoreReport:
    """Set aside what is not restored, and let the chosen parts be the table.

    Parameters
    ----------
    place
        The table's, with an incarnation that none has ever had; its root does not count.
    found
        What the disk has.
    definition
        The definition that the table gets; None: that of the disk.
    bond
        As of `protocol.rescue.restore.restore`.

    Raises
    ------
    BadInput, Unavailable
        It was not restored.
    """
    store, report = found.store, found.report
    for part, problem in report.broken.items():
        store.quarantine(part, problem)
    for part in (*report.overlapping, *report.detached):
        store.detach(part)
    objects, parts = store.shared.objects, {part: manifest.content for part, manifest in found.chosen.items()}
    shared = None if objects is None else restored_shares(objects, found.chosen)
    definition = found.definition if definition is None else definition
    table = replace(place, path=f"{layout.tables(coordination.url.root)}/{place.name}")
    performer = Performer(lambda: coordination, refuse_all, refuse_all)
    encoded = definition.encode_metadata(), definition.encode_columns()
    me = own_identity("").encode()
    outcome = performer.run(restore(Replica(table, report.replica), me, *encoded, parts, shared, bond))
    if isinstance(outcome, NotRestored):
        raise (Unavailable if outcome.again else BadInput)(f"table {place.name} is not restored: {outcome.reason}")
    return msgspec.structs.replace(report, first=outcome.first, already=outcome.already)


@contextmanager
def locked_folder(data: Path) -> Iterator[None]:
    """Hold the lock of a server's data folder.

    Raises
    ------
    BadInput
        There is no such folder.
    ReplicaBusy
        The server runs: stop it first.
    """
    if not data.is_dir():
        raise BadInput(f"there is no data folder {data}")
    lock = lock_data_folder(data)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def restoring_session(config: ServerConfig) -> Iterator[ZooKeeperCoordination]:
    """Give a session with coordination, as the server's configuration says; it ends with the block."""
    session = ZooKeeperCoordination(
        config.zookeeper, session_timeout_s=config.session_timeout_s, tls=Contexts(config.tls_files)
    )
    try:
        yield session
    finally:
        session.close()


def refuse_all(*asked: object) -> None:
    """Refuse effects on parts: a restore has none.

    Raises
    ------
    ReplitreeError
        Always.
    """
    raise ReplitreeError(f"a restore reads and writes coordination alone, and was asked for {asked}")
