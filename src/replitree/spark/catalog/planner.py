"""The planner: takes snapshots for Spark's catalog, keeps them, says which files of them a scan reads, and sends changes.

`load` takes one snapshot with a lease and keeps it under a handle; the JVM plans with that.  A later `load` asks a replica
whether that snapshot is still the one to read, and then gets the same handle, as long as the lease is fresh.  So a table that
does not change costs one short request for each load, none of them to coordination, and one lease in `LEASE_FRESH_S`.

Spark loads each table of a query two times or more.  At the level ``eventual`` the loads within `NEWEST_S` of a request share
its answer, unless the application has written more since then: a query asks once for each table.

`files` prunes the parts by a scan's condition, and makes their files openable for the JVM: verified paths of this machine, URLs
of this process's gateway for what is in a bucket, and on a cluster URLs that every executor opens.

Guarantees: all files of one handle are of one snapshot.  Parts are left out only when their statistics prove that they have no
row that the condition keeps; a condition that can't be read prunes nothing.

A read that Spark's Parquet scan can't do says why (`Loaded.other_way`), and has the options with which ``format("replitree")``
reads the same snapshot.  That reads the log's rows below an index, so such a snapshot is taken at the level ``sequential``.
A sharded table has no index: there such a read is at the snapshot's cut.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import xxhash
from pyspark.sql.types import StringType, StructField, StructType

from replitree.client.connection import Connection, connect
from replitree.client.read.scan import FRAME_LEASE_S
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.sharded.sharded_table import ShardedTable, tables_of
from replitree.client.sharded.union import ShardedSnapshot, newest_definition, not_yet, shards_of
from replitree.client.table import SNAPSHOT_S, Table
from replitree.client.transport.access import URL_VARIABLE
from replitree.client.transport.lease import keep_for_frame
from replitree.errors import BadInput, SnapshotExpired, TableNotFound, Unavailable
from replitree.protocol.sharded.places import is_shard_name, shard_number
from replitree.spark.catalog.definitions import alter, create
from replitree.spark.catalog.feed_range import range_options
from replitree.spark.catalog.history import history_rows
from replitree.spark.catalog.layouts import field_metadata, unreadable
from replitree.spark.catalog.partitions import drop_partitions, matching, partition_columns
from replitree.spark.catalog.procedures import PROCEDURES, call, described
from replitree.spark.catalog.requests import CatalogSettings, PlannerRequest
from replitree.spark.catalog.rewriting import ON_CLUSTERS, Rewriting
from replitree.spark.catalog.shard_files import labelled
from replitree.spark.catalog.shards import (
    FOR_CLUSTERS,
    TakenSnapshot,
    index_of,
    replicas_of,
    same_again,
    sharding,
    shown,
    take_snapshot,
    wanted_shards,
)
from replitree.spark.session.driver import driver_process
from replitree.spark.session.option_names import known_options
from replitree.spark.session.options import (
    FOLDER_VARIABLE,
    columns,
    flag,
    number,
    read_as_of,
    read_level,
    seconds,
    table_name,
)
from replitree.spark.session.types import spark_schema, spark_type
from replitree.spark.session.written import include_written, note_written
from replitree.spark.store.gateway import this_gateway
from replitree.spark.store.located import is_local_master
from replitree.spark.store.remote import remote_files, remote_options
from replitree.storage.schema.definition import Transform, TransformKind
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.retention import ttl_text
from replitree.storage.sql.predicate_parser import parse_predicate

LEASE_FRESH_S = FRAME_LEASE_S / 2
"""A kept snapshot is given again when its lease still lasts that long, in seconds."""

UNCHANGED_S = 2.0
"""How long a replica may take to say whether a kept snapshot is still the one to read, in seconds."""

NEWEST_S = 0.1
"""For how long a read at the level ``eventual`` takes a snapshot for the newest one after a replica was asked, in seconds."""

SNAPSHOTS_MAX = 64
"""Snapshots that are kept; the one that was given longest ago is forgotten first."""


BY_CATALOG = frozenset(
    {"table", "url", "tokenfile", "columns", "level", "minindex", "asof", "timestampasof", "final", "timeout"}
)
"""Options of ``format("replitree")`` with which the catalog reads as the source in Python does."""

CALENDAR = frozenset({TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR})
"""Transforms that Spark calls by a plural."""

CONDITIONS_MAX = 256
"""Conditions of one snapshot whose parts are remembered."""


@dataclass(frozen=True, slots=True)
class _KeptSnapshot:
    """A snapshot that is kept.

    Attributes
    ----------
    table
        The handle through which it was taken: it knows the replicas, so that a later load does not look them up.
    taken
        The snapshot, and of a sharded table its map; its leases are renewed no more.
    other_way
        Why Spark's scan can't read it; "" when it can.
    description
        What `load` answers for it, but for the handle.
    fresh_until
        Until when its lease is fresh (monotonic seconds).
    pruned
        The parts of each shard that can hold rows which a condition keeps, by the condition's text.
    """

    table: Table
    taken: TakenSnapshot
    other_way: str
    description: dict[str, Any]
    fresh_until: float
    pruned: dict[str, tuple[tuple[Snapshot, tuple[SnapshotPart, ...]], ...]] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot | ShardedSnapshot:
        """The snapshot."""
        return self.taken.snapshot

    @property
    def own(self) -> Snapshot:
        """The snapshot of a table that is not sharded.

        Raises
        ------
        BadInput
            It is.
        """
        if isinstance(self.snapshot, ShardedSnapshot):
            raise not_yet(self.snapshot.definition.name, "list its partitions, or drop some")
        return self.snapshot


class _Newest(NamedTuple):
    """The newest snapshot of a table that is kept.

    Attributes
    ----------
    handle
        Of the snapshot.
    asked_at
        When a replica was asked for it, in monotonic seconds.
    mutated
        The log index of the newest mutation whose rows the replica had to include, in each shard; -1: none.
    """

    handle: str
    asked_at: float
    mutated: tuple[int, ...]


class Planner:
    """Plans reads for one catalog.  Any thread may use it.

    Parameters
    ----------
    settings
        Of the catalog.
    """

    def __init__(self, settings: CatalogSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._held: OrderedDict[str, _KeptSnapshot] = OrderedDict()
        self._newest: dict[str, _Newest] = {}
        self._number = 0
        self._rewriting = Rewriting()
        # The JVM has started this process, so it is the same one for every request.
        self._driver = driver_process()

    def answer(self, request: PlannerRequest) -> Any:
        """Return the answer to a request, ready for JSON.

        Raises
        ------
        ReplitreeError
            It can't be answered; the message says what to do.
        """
        do, kept = request.do, self._kept

        def table() -> Table:
            return self._connected().table(request.table)

        def version_at(time: datetime) -> int | str:
            found = table()
            return found.cut_at(time) if isinstance(found, ShardedTable) else found.index_of(time)

        answers: dict[str, Callable[[], Any]] = {
            "tables": lambda: self._connected().tables(),
            "load": lambda: self.load(request),
            "named": lambda: self.named(request.options),
            "files": lambda: self.files(request.handle, request.where),
            "history": lambda: history_rows(table()),
            "range": lambda: range_options(request, version_at),
            "create": lambda: create(self._connected(), request),
            "drop": lambda: self.drop(request.table),
            "alter": lambda: alter(table(), request),
            "delete": lambda: table().delete(request.where).index,
            "truncate": lambda: table().truncate().index,
            "procedures": lambda: list(PROCEDURES),
            "procedure": lambda: described(request.procedure),
            "call": lambda: call(self._connected(), request.procedure, request.arguments),
            "partitions": lambda: matching(kept(request.handle).own, request.names, request.values),
            "drop_partitions": lambda: drop_partitions(table(), kept(request.handle).own, request.partitions),
            "begin_rewrite": lambda: self.begin_rewrite(request),
            "commit_rewrite": lambda: self.commit_rewrite(request),
            "end_rewrite": lambda: self._rewriting.end(request.rewrite),
        }
        if do not in answers:
            raise BadInput(f"the planner does not know {do!r}: are the jar and replitree of one version?")
        return answers[do]()

    def drop(self, name: str) -> Any:
        """Drop a table, and forget its newest snapshot.  Raises as `Connection.drop_table`."""
        with self._lock:
            self._newest.pop(name, None)
        return self._connected().drop_table(name)

    def load(self, request: PlannerRequest) -> dict[str, Any]:
        """Take a snapshot for a read, and describe it.

        Raises
        ------
        TableNotFound
            There is no such table.
        ReplitreeError
            An option is wrong, or no replica shows that snapshot.
        """
        handle, held = self._unchanged(request) or self._snapshot(self._connected().table(request.table), request)
        # The JVM has the description of what it knows.
        return {"handle": handle} if handle == request.known else {"handle": handle, **held.description}

    def named(self, given: Mapping[str, str]) -> dict[str, Any] | None:
        """Take a snapshot as options of ``format("replitree")`` say, and describe it with the columns that they name.

        Returns
        -------
        dict
            As `load`'s, with the table's name; None for the source in Python, which does the other reads, and says what is
            wrong with options.

        Raises
        ------
        ReplitreeError
            No replica shows that snapshot.
        """
        try:
            options = known_options(given)
            if not options.keys() <= BY_CATALOG or options.get("tokenfile", "") != self._settings.token_file:
                return None
            name = table_name(options)
            found = self.load(PlannerRequest(0, "load", name, options=options))
            if "columns" in options:
                every = StructType.fromJson(json.loads(found["schema"]))
                wanted = spark_schema(self._kept(found["handle"]).snapshot.definition, columns(options)).names
                found["schema"] = StructType([every[column] for column in wanted]).json()
        except (BadInput, TableNotFound):
            return None
        return found | {"table": name}

    def _unchanged(self, request: PlannerRequest) -> tuple[str, _KeptSnapshot] | None:
        """Return the newest snapshot of a table that is kept, when a read would get the same one: a replica says so."""
        options, now = request.read_options, time.monotonic()
        with self._lock:
            newest = self._newest.get(request.table)
        if newest is None or _as_of(options) is not None:
            return None
        known = self._find(newest.handle)
        if known is None:
            return None
        held = known[1]
        level, is_sharded = read_level(options), isinstance(held.table, ShardedTable)
        if self._reads_log(held, options) and level in (None, "eventual") and not is_sharded:
            level = "sequential"
        include_written(held.table, self._driver)
        min_index, timeout_s = number(options, "minindex"), min(seconds(options, SNAPSHOT_S), UNCHANGED_S)
        written, shards = [each.inserter.written for each in tables_of(held.table)], shards_of(held.snapshot)
        mutated = tuple(each.mutated for each in written)
        # A snapshot may have the entry of a mutation and not yet its rows.
        has_all = len(written) == len(shards) and all(
            (own.index if min_index is None else min_index) < shard.index and own.mutated <= before
            for own, shard, before in zip(written, shards, newest.mutated, strict=True)
        )
        if level in (None, "eventual", "consistent") and has_all and now < newest.asked_at + NEWEST_S:
            return known
        # A sharded table takes what a sharded table has given.
        snapshot: Any = held.snapshot
        try:
            is_same = held.table.is_unchanged(snapshot, min_index, level=level, timeout_s=timeout_s)
        except (TableNotFound, Unavailable):
            # The table was dropped, perhaps, and a new one of this name has fewer entries than the old one had.  Coordination
            # says which one there is, and all its replicas are asked.
            is_same = False
        if not is_same:
            return None
        with self._lock:
            self._newest[request.table] = _Newest(newest.handle, now, mutated)
        return known

    def _snapshot(self, table: Table, request: PlannerRequest) -> tuple[str, _KeptSnapshot]:
        """Return the snapshot of a read under its handle: one that is kept, when the table has the same parts, or a new one."""
        options, now = request.read_options, time.monotonic()
        level, as_of = read_level(options), _as_of(options)
        if as_of is None:
            include_written(table, self._driver)
        mutated = tuple(each.inserter.written.mutated for each in tables_of(table))
        take = partial(table.snapshot, number(options, "minindex"), as_of=as_of, timeout_s=seconds(options, SNAPSHOT_S))
        if self._find(f"{table.definition.table_id}/") is not None:
            # Without a lease first: most often the parts are those that are kept, and their lease is fresh.
            known = self._find(self._name(take(level=level))[0])
            if known is not None and not self._reads_log(known[1], options):
                if as_of is None:
                    with self._lock:
                        self._newest[request.table] = _Newest(known[0], now, mutated)
                return known
        held = self._described(table, take_snapshot(table, partial(take, level=level, lease_s=FRAME_LEASE_S)))
        reads_index = self._reads_log(held, options) and not isinstance(table, ShardedTable)
        if reads_index and as_of is None and level in (None, "eventual"):
            held.snapshot.close()
            held = self._described(table, TakenSnapshot(take(level="sequential", lease_s=FRAME_LEASE_S)))
        return self._keep(held, (now, mutated) if as_of is None else None)

    def _reads_log(self, held: _KeptSnapshot, options: dict[str, str]) -> bool:
        """Tell whether ``format("replitree")`` does the read, which reads exactly the log below an index."""
        return bool(held.other_way) or (flag(options, "final") and held.snapshot.definition.policy != PLAIN)

    def _described(self, table: Table, taken: TakenSnapshot) -> _KeptSnapshot:
        parts = [part for shard in shards_of(taken.snapshot) for part in shard.parts]
        other_way = unreadable(newest_definition(taken.snapshot), {part.manifest.schema_version for part in parts})
        if not self._is_local and any(part.manifest.share_id is not None for part in parts):
            other_way = 'objects in a store, for executors of a cluster: read by format("replitree")'
        elif not self._is_local and isinstance(table, ShardedTable):
            other_way = FOR_CLUSTERS
        description = self._description(table, taken, other_way)
        return _KeptSnapshot(table, taken, other_way, description, time.monotonic() + LEASE_FRESH_S)

    def _description(self, table: Table, taken: TakenSnapshot, other_way: str) -> dict[str, Any]:
        """Return what the JVM learns of a snapshot, but for its handle."""
        snapshot = taken.snapshot
        definition, version, shards = newest_definition(snapshot), self._name(snapshot)[1], shards_of(snapshot)
        fields = [
            StructField(column.name, spark_type(column.arrow_type), nullable=True, metadata=field_metadata(column))
            for column in definition.columns
        ]
        # With these options ``format("replitree")`` finds the table.
        named = {"table": table.name, "url": self._settings.url, "token_file": self._settings.token_file}
        properties = {
            "provider": "replitree",
            **shown(table, snapshot),
            "parts": str(sum(len(each.parts) for each in shards)),
            "rows": str(snapshot.rows),
            "bytes": str(snapshot.bytes),
            "order_by": ", ".join(definition.order_by),
            "policy": definition.policy.text,
            "storage": definition.storage,
            "keep": definition.keep,
            "feed": definition.feed,
            "ttl": ttl_text(definition.ttl),
            "bloom": ", ".join(definition.bloom),
            "schema_version": str(definition.schema_version),
        }
        # With which options the JVM opens the files.  They hold secrets.
        stored, read_options = shards[0].stored if shards else None, dict[str, str]()
        if not self._is_local:
            read_options = {} if other_way == FOR_CLUSTERS else remote_options(shards[0])
        elif stored is not None and not stored.is_folder:
            read_options = this_gateway().options
        return {
            "table_id": definition.table_id,
            "index": index_of(snapshot),
            "version": version,
            "replica": replicas_of(snapshot),
            "schema": StructType(fields).json(),
            "bytes": snapshot.bytes,
            "is_plain": definition.policy == PLAIN,
            "other_way": other_way,
            "partition_schema": StructType(
                [StructField(n, StringType()) for n in partition_columns(definition)]
            ).json(),
            "partition_by": [_in_spark(each) for each in definition.partition_by],
            "sharding": sharding(taken),
            "properties": {name: value for name, value in properties.items() if value},
            "read_options": read_options,
            "table_options": {name: value for name, value in named.items() if value},
            "snapshot_options": same_again(snapshot),
        }

    @property
    def _is_local(self) -> bool:
        """Whether the JVM that asks runs all tasks itself."""
        return is_local_master(self._settings.master)

    @staticmethod
    def _name(snapshot: Snapshot | ShardedSnapshot) -> tuple[str, str]:
        """Return what the handle of a snapshot begins with, and the version that names its rows."""
        shards = shards_of(snapshot)
        names = "\n".join(f"{each.definition.name}/{part.part}" for each in shards for part in each.parts)
        digest = xxhash.xxh3_64_hexdigest(f"{newest_definition(snapshot).schema_version}\n{names}".encode())
        version = f"{index_of(snapshot)}-{digest}"
        # Replicas take turns: of many shards hardly two snapshots were taken of the same ones.
        replica = snapshot.replica if isinstance(snapshot, Snapshot) else "shards"
        return f"{snapshot.definition.table_id}/{replica}/{version}/", version

    def _find(self, prefix: str) -> tuple[str, _KeptSnapshot] | None:
        """Return the newest snapshot that is kept, whose handle begins so, and whose lease is fresh."""
        now = time.monotonic()
        with self._lock:
            for handle, held in reversed(self._held.items()):
                if handle.startswith(prefix) and now < held.fresh_until:
                    self._held.move_to_end(handle)
                    return handle, held
        return None

    def _keep(self, held: _KeptSnapshot, asked: tuple[float, tuple[int, ...]] | None) -> tuple[str, _KeptSnapshot]:
        """Keep a snapshot, return it with its handle; `asked` is `_Newest`'s time and mutation, None for an older index."""
        with self._lock:
            self._number += 1
            handle = f"{self._name(held.snapshot)[0]}{self._number}"
            self._held[handle] = held
            if asked is not None:
                self._newest[held.table.name] = _Newest(handle, *asked)
            if len(self._held) > SNAPSHOTS_MAX:
                forgotten, other = self._held.popitem(last=False)
                newest = self._newest.get(other.table.name)
                if newest is not None and newest.handle == forgotten:
                    del self._newest[other.table.name]
        keep_for_frame((each.lease for each in shards_of(held.snapshot)), held.table.http)
        return handle, held

    def _kept(self, handle: str) -> _KeptSnapshot:
        """Return the snapshot of a handle; raise `SnapshotExpired` when it is kept no longer."""
        with self._lock:
            held = self._held.get(handle)
        if held is None:
            raise SnapshotExpired("this frame is older than what is kept of its table: make it again")
        return held

    def files(self, handle: str, where: str) -> list[tuple[str, int, int, str, int]]:
        """Return the data files that can hold rows which a condition keeps.

        Of each its path or URL, its bytes, its time of change in ms, its part, and its shard; -1: the table is not sharded.

        Raises
        ------
        SnapshotExpired
            The snapshot is kept no longer, or parts of it are gone.
        RowsUnavailable
            A part that is needed can't be read.
        """
        found = list[tuple[str, int, int, str, int]]()
        for snapshot, parts in _pruned(self._kept(handle), where):
            name = snapshot.definition.name
            number = shard_number(name) if is_shard_name(name) else -1
            for path, size, changed_ms, part in self._files(snapshot, parts):
                # Parts of two shards may have one name.
                found.append((path, size, changed_ms, part if number < 0 else labelled(number, part), number))
        return found

    def _files(self, snapshot: Snapshot, parts: Sequence[SnapshotPart]) -> list[tuple[str, int, int, str]]:
        """Return the data files of some parts of a snapshot, without its shard: see `files`."""
        if not self._is_local:
            snapshot.check()
            return [(url, size, 0, part) for part, url, size in remote_files(snapshot, parts)]
        found = list[tuple[str, int, int, str]]()
        others, at_gateway, known = list[SnapshotPart](), {}, {}
        stored = None if snapshot.stored is None or snapshot.stored.is_folder else snapshot.stored
        for part in parts:
            is_shared = part.manifest.share_id is not None and not part.lacking
            # Where this process does not reach the bucket, the files are fetched from a replica.
            if stored is None or not is_shared or stored.problem(part.manifest) is not None:
                others.append(part)
                continue
            for entry in part.manifest.files:
                name = f"{part.manifest.share_of(entry)}-{entry.name}"
                at_gateway[name] = stored.objects.file(part.manifest, entry, partial(snapshot.source.good_copy, part))
                known[name] = (entry.bytes, part.part)
        # The JVM reads parts in a bucket through this process, which verifies what it sends.
        if stored is not None and at_gateway:
            folder = this_gateway().publish(stored.objects.root, at_gateway)
            found += [(f"{folder}/{name}", size, 0, part) for name, (size, part) in known.items()]
        for file in snapshot.sound_files(others):
            status = file.path.stat()
            found.append((str(file.path), status.st_size, status.st_mtime_ns // 1_000_000, file.part))
        return found

    def begin_rewrite(self, request: PlannerRequest) -> dict[str, Any]:
        """Begin a statement that changes rows of a table, and describe it and what it reads.  Raises as `Rewriting.begin`."""
        table = self._connected().table(request.table)
        if isinstance(table, ShardedTable) and not self._is_local:
            raise not_yet(table.name, ON_CLUSTERS)
        begun = self._rewriting.begin(table, request.through)
        # Never fresh: another statement must not read it.
        taken = TakenSnapshot(begun.snapshot)
        held = _KeptSnapshot(table, taken, "", self._description(table, taken, ""), fresh_until=0.0)
        handle, _ = self._keep(held, None)
        return {"handle": handle, **held.description, **begun.described}

    def commit_rewrite(self, request: PlannerRequest) -> int | None:
        """Commit such a statement; later reads of the application show it.  Raises as `Rewriting.commit`."""
        committed = self._rewriting.commit(
            request.rewrite, request.statement, request.parts, request.written, request.isolation, request.told
        )
        for table_id, index in committed:
            note_written(table_id, index, self._driver)
        return committed[0][1] if committed else None

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                url = self._settings.url or os.environ.get(URL_VARIABLE) or os.environ.get(FOLDER_VARIABLE)
                if not url:
                    raise BadInput(
                        f"which cluster? Set {URL_VARIABLE} or {FOLDER_VARIABLE} before Spark starts, or"
                        " spark.sql.catalog.replitree.url in a new session: this one has the catalog with the settings of its"
                        " first use"
                    )
                self._connection = connect(url, token_file=self._settings.token_file or None)
            return self._connection


def _pruned(held: _KeptSnapshot, where: str) -> tuple[tuple[Snapshot, tuple[SnapshotPart, ...]], ...]:
    """Return the parts of each shard that can hold rows which a condition keeps.  Raises as `Planner.files`."""
    # A query asks several times with one condition: when Spark compares sizes, and when it plans the scan.
    known = held.pruned.get(where)
    if known is not None:
        return known
    try:
        predicate = parse_predicate(where, newest_definition(held.snapshot)) if where else None
    except BadInput:
        predicate = None
    shards = wanted_shards(held.taken, predicate)
    for each in shards:
        each.require(predicate)
    found = tuple(
        (each, tuple(part for part in each.parts if predicate is None or predicate.may_match(part.manifest)))
        for each in shards
    )
    if len(held.pruned) >= CONDITIONS_MAX:
        held.pruned.clear()
    held.pruned[where] = found
    return found


def _in_spark(transform: Transform) -> list[str | int]:
    """Return a partition transform as Spark has it: its name, its number if it takes one, and its column."""
    name = transform.kind.value
    number = () if transform.argument is None else (transform.argument,)
    return [f"{name}s" if transform.kind in CALENDAR else name, *number, transform.column]


def _as_of(options: dict[str, str]) -> int | str | None:
    """Return the index, the tag or the time that a read names, or None."""
    version = options.get("asof", "0")
    if not version.isdecimal() and not version[:1].isalpha() and "@" not in version:
        raise BadInput(
            f"VERSION AS OF takes a tag, or an index of the table's log, which DESCRIBE EXTENDED shows, not {version!r}"
        )
    return read_as_of(options)
