"""Carry the moves of a sharded table on: read the rows of buckets at their source, and let their target prepare them.

What may happen, and in which order, `replitree.protocol.sharded.moves.carry` says; this module performs it.  Any process may
carry the moves of a table on, also several at once.  One that dies leaves nothing that the next one does not find.

A batch has all rows of one move in some partitions: as many partitions as together have about `BATCH_ROWS` rows.  What is
copied and what is deleted is chosen by one and the same condition.  Before a batch is laid, its rows are counted at the source
and summed up as they are read there, and the target does both with the files that it has staged.

Absent on purpose: threads.  A move takes as long as it takes, and other clients read and write meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec
import pyarrow as pa

from replitree.client.insert.terms import Written
from replitree.client.read.snapshot import Snapshot, rows_unavailable
from replitree.client.sharded.sharded_catalog import sharded
from replitree.client.table import Table
from replitree.client.transport.routing import Router
from replitree.errors import ReplitreeError, SnapshotExpired, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.core.run import translate
from replitree.protocol.sharded.feed import REMOVAL, is_moved
from replitree.protocol.sharded.moves.batch import Laid, Laying, RowsRemoval, RowsSum
from replitree.protocol.sharded.moves.carry import (
    AwaitHolders,
    AwaitInserts,
    DescribeRemoval,
    GiveUpBatch,
    MoverEnd,
    NothingLeft,
    NotPrepared,
    PrepareBatch,
    carry_moves,
)
from replitree.protocol.sharded.moves.course import MovesFound
from replitree.protocol.sharded.moves.progress import Batch
from replitree.protocol.sharded.places import shard_name
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.shard_map import Move, Shard
from replitree.storage.rewrite.rows_sum import RowsSummer
from replitree.storage.rewrite.slices import cut
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.shard_definition import shard_definition
from replitree.storage.sql.bucket_condition import bucket_condition
from replitree.storage.sql.mutation import delete_where
from replitree.wire.prepared_share import PreparedShare

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog
    from replitree.client.transport.http import HttpClient, HttpResponse

BATCH_ROWS = 4_000_000
"""A batch gets further partitions until it has so many rows."""

BATCH_PARTITIONS_MAX = 64
"""Partitions of a batch at most: each is an entry of the commit that shows it."""

BATCH_BYTES_MAX = 256 << 10
"""Bytes of all these entries' conditions at most, unless one alone is longer: the commit must stay below 512 KiB."""

KEEP_S = 600.0
"""How long a replica keeps what it has prepared, in seconds."""

LEASE_S = 60.0
"""For how long a replica keeps the parts of the source that are read, after each renewal, in seconds."""

LOOK_S = 0.05
"""Pause between two looks at what is waited for, in seconds."""

HOLDERS_S = 1.0
"""How often it is looked whether replicas that have a batch are active, in seconds."""

RETRY_S = 1.0
"""Pause after a batch could not be prepared, in seconds."""


@dataclass(frozen=True, slots=True)
class MoveTerms:
    """How moves are carried on.

    Attributes
    ----------
    timeout_s
        How long a replica may take to answer, and how long all replicas that have the rows of a batch may be away before it is
        taken back, in seconds.
    tell
        Told in a sentence what happens.
    failures_max
        After how many batches in a row that could not be prepared it gives up.
    """

    timeout_s: float = 60.0
    tell: Callable[[str], None] = lambda _: None
    failures_max: int = 30


class MoveCarrier:
    """Carries the moves of one sharded table on.

    Parameters
    ----------
    catalog, http
        The directory of the replicas, and the connection to them.
    name
        The sharded table.
    terms
        How.
    """

    def __init__(self, catalog: Catalog, http: HttpClient, name: str, terms: MoveTerms | None = None) -> None:
        self._catalog = catalog
        self._http = http
        self._name = name
        self._terms = terms or MoveTerms()
        self._place = layout.sharded(catalog.root, name)
        # How many rows of a move a part has: a part never changes.
        self._counts: dict[tuple[str, str, str], int] = {}
        # The insert that is waited for, when a replica that has its rows was seen last, and when that was looked at.
        self._laid = ("", 0.0, 0.0)
        self._failures = 0

    def run(self) -> MoverEnd:
        """Carry the moves on until they have ended.

        Raises
        ------
        Unavailable
            Batches could not be prepared again and again; says why.  Nothing is lost: run it again.
        CoordinationUnavailable
            ZooKeeper can't be reached.
        """
        steps = self.steps()
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            ended: MoverEnd = stop.value
            return ended

    def steps(self) -> Generator[None, Any, MoverEnd]:
        """Carry the moves on, and pause before each step: a caller that stops leaves what a process that dies would leave."""
        return translate(carry_moves(self._place, f"{self._place}/commands"), self._perform)

    def _perform(self, effect: Any) -> Generator[None, Any, object]:
        yield
        match effect:
            case PrepareBatch(found):
                return self._prepared(found)
            case GiveUpBatch(laying):
                self._give_up(laying.prepared)
                if laying.difference:
                    self._failed(Unavailable(laying.difference))
                return None
            case DescribeRemoval(found, source, target):
                move = next(each for each in found.map.moves if (each.source, each.target) == (source, target))
                definition = shard_definition(sharded(self._catalog, self._name).definition, source)
                command = delete_where(bucket_condition(definition, found.map, move.runs), definition)
                return RowsRemoval(fx.EntryId(f"{REMOVAL}{uuid4().hex}"), command.text, definition.schema_version)
            case AwaitHolders(laid):
                return self._awaits_holders(laid)
            case AwaitInserts(opened):
                self._terms.tell(f"waiting for inserts whose quorum is open: {len(opened)}")
                time.sleep(LOOK_S)
                return None
        performed: object = self._catalog.perform(effect)
        return performed

    def _awaits_holders(self, laid: Laid) -> bool:
        """Wait until more replicas may have a batch; return whether to wait longer.

        Replicas whose queue is long take their time, and to copy the rows again would only make it longer.  So a batch is taken
        back only when no replica that has its rows was active for as long as `MoveTerms.timeout_s`.
        """
        batch, now = laid.batch, time.monotonic()
        insert, since, looked = self._laid
        if insert != batch.insert:
            self._terms.tell(
                f"{batch.rows:,} rows lie at shard {batch.target}, at {len(laid.quorum.replicas)} of {batch.quorum} replicas"
            )
            self._laid = batch.insert, now, now
        elif now - looked > HOLDERS_S:
            holders = {*laid.quorum.replicas, batch.replica}
            there = {each.name for each in self._catalog.replicas(shard_name(self._name, batch.target)) if each.active}
            self._laid = insert, now if holders & there else since, now
            if now - self._laid[1] > self._terms.timeout_s:
                self._terms.tell(
                    f"no replica of shard {batch.target} that has the rows is active: the batch is taken back"
                )
                return False
        time.sleep(LOOK_S)
        return True

    # --- preparing --------------------------------------------------------------------------------------------------------

    def _prepared(self, found: MovesFound) -> Laying | NothingLeft | NotPrepared:
        """Prepare a batch; after failures in a row the last one is raised."""
        try:
            prepared = self._next_batch(found)
        except (Unavailable, SnapshotExpired) as error:
            self._failed(error)
            return NotPrepared(str(error))
        if not (isinstance(prepared, Laying) and prepared.difference):
            self._failures = 0
        return prepared

    def _failed(self, error: ReplitreeError) -> None:
        """Wait before a batch is prepared again; after failures in a row raise the last one."""
        self._failures += 1
        if self._failures >= self._terms.failures_max:
            raise error
        self._terms.tell(f"a batch could not be prepared, and is tried again: {error}")
        time.sleep(RETRY_S)

    def _next_batch(self, found: MovesFound) -> Laying | NothingLeft:
        definition = sharded(self._catalog, self._name).definition
        for move in found.map.moves:
            condition = bucket_condition(definition, found.map, move.runs)
            source = self._table(definition, move.source)
            with source.snapshot(level="linearizable", lease_s=LEASE_S, timeout_s=self._terms.timeout_s) as snapshot:
                if snapshot.unread:
                    first = snapshot.unread[0]
                    raise rows_unavailable(first.part, source.name, first.why)
                chosen, rows = self._chosen(snapshot, condition)
                if rows:
                    return self._lay(found, move, definition, chosen, condition, rows)
        return NothingLeft()

    def _chosen(self, snapshot: Snapshot, condition: str) -> tuple[Snapshot, int]:
        """Return a snapshot of the partitions of a batch, and how many rows of it match; 0: the source has none left."""
        partitions: dict[str, list[Any]] = {}
        partitions_max = min(BATCH_PARTITIONS_MAX, max(1, BATCH_BYTES_MAX // len(condition)))
        for part in snapshot.parts:
            partitions.setdefault(parse_part(part.part).partition, []).append(part)
        chosen, rows, taken = list[Any](), 0, 0
        for name in sorted(partitions):
            here = sum(self._count(replace(snapshot, parts=(part,)), condition) for part in partitions[name])
            if here:
                chosen += partitions[name]
                rows, taken = rows + here, taken + 1
            if rows >= BATCH_ROWS or taken == partitions_max:
                break
        return replace(snapshot, parts=tuple(chosen)), rows

    def _count(self, one: Snapshot, condition: str) -> int:
        key = one.definition.name, one.parts[0].part, condition
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = one.scan(where=condition).count()
        return found

    def _lay(
        self, found: MovesFound, move: Move, definition: TableDefinition, chosen: Snapshot, condition: str, rows: int
    ) -> Laying:
        """Let a replica of the target prepare rows, and describe what is laid of them."""
        target = self._table(definition, move.target)
        self._terms.tell(f"{rows:,} rows go from shard {move.source} to shard {move.target}")
        schema = definition.arrow_schema
        summer = RowsSummer()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in chosen.scan(where=condition).batches():
                summer.update(batch.cast(schema))
                yield batch.cast(schema)

        reader = pa.RecordBatchReader.from_batches(schema, batches())
        upload, manifests = target.inserter.fill(cut(reader, target.definition), self._terms.timeout_s)
        said = {"map_version": str(found.map_version), "keep_s": f"{KEEP_S:g}", "of": target.definition.table_id}
        said |= {"moves": "1"}
        body = msgspec.json.encode({"manifests": manifests})

        def take(replica: Any, left: float) -> PreparedShare:
            path = f"{upload.route}/prepare?{urlencode(said)}"
            return self._http.request(replica.address, "POST", path, body, timeout_s=left).decode(PreparedShare)

        seconds = self._terms.timeout_s
        share = Router(self._catalog, target.name, upload.replica.name).ask(take, timeout_s=seconds, attempt_s=seconds)
        prepared = _participant(found, move.target, share)
        partitions = tuple(part.partition for part in share.parts)
        quorum = len(self._catalog.replicas(target.name)) // 2 + 1
        batch = Batch(
            move.source,
            move.target,
            partitions,
            share.replica,
            prepared.staging,
            share.log_from,
            quorum,
            share.rows,
            sum(part.bytes for part in share.parts),
        )
        if not is_moved(prepared.staging):
            self._give_up(prepared)
            raise Unavailable(
                f"{share.replica} is of a version that shows moved rows in the change feed: upgrade all servers"
            )
        try:
            answer = self._ask_of(prepared, "GET", "/sum")
        except ReplitreeError:
            self._give_up(prepared)
            raise
        return Laying(batch, prepared, RowsSum(rows, summer.hexdigest()), answer.decode(RowsSum))

    def _give_up(self, prepared: Participant) -> None:
        """Let a replica give up what it has prepared; one that does not answer does so by itself in time."""
        try:
            self._ask_of(prepared, "DELETE")
        except ReplitreeError as error:
            self._terms.tell(f"{prepared.replica.name} did not give up what it has prepared: {error}")

    def _ask_of(self, prepared: Participant, method: str, what: str = "") -> HttpResponse:
        """Ask the replica that has prepared rows for them.

        Raises
        ------
        Unavailable
            It does not answer, or does not host the shard any more.
        """
        replica = prepared.replica
        addresses = {each.name: each.address for each in self._catalog.replicas(replica.table.name)}
        address = addresses.get(replica.name)
        if address is None:
            raise Unavailable(f"{replica.name} does not host {replica.table.name} any more")
        route = f"/v1/tables/{quote(replica.table.name)}/prepared/{quote(prepared.staging)}{what}"
        return self._http.request(address, method, route, timeout_s=self._terms.timeout_s)

    def _table(self, definition: TableDefinition, shard: Shard) -> Table:
        return Table(shard_definition(definition, shard), self._catalog, self._http, Written())


def _participant(found: MovesFound, shard: Shard, share: PreparedShare) -> Participant:
    """Return what a replica has prepared, as the protocol has it."""
    replica = layout.at_pointer(Replica(found.shard(shard), share.replica), share.log_from)
    parts = tuple(fx.StagedPart(each.partition, each.rows, each.bytes, each.content_hash) for each in share.parts)
    start = fx.LogIndex(share.log_from)
    return Participant(replica, fx.Epoch(share.epoch), fx.StagingId(share.staging), parts, start, share.schema_version)
