"""Taking inserts: checks before anything is written, groups, and the answer to each client.

Every insert has one block id: of its token when it has one, else of its content.  So the same rows sent twice are inserted
once, unless each time has a token of its own.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import xxhash

from replitree.errors import BadInput, OutcomeUnknown, ReadOnly, StoreError, TooManyParts
from replitree.protocol.effects import (
    BlockId,
    ClientAnswer,
    Duplicate,
    Epoch,
    Failed,
    Inserted,
    LogIndex,
    RequestId,
    StagingId,
)
from replitree.protocol.effects import OutcomeUnknown as UnknownAnswer
from replitree.protocol.insert import Inserter, Request, insert
from replitree.protocol.layout import Replica
from replitree.replica.group_commit import GroupCommitter, Pending
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.progress import Progress
from replitree.replica.runner import Performer
from replitree.replica.store_performer import StorePerformer
from replitree.storage.conform import conform
from replitree.storage.content_hash import content_hash
from replitree.storage.definition import TableDefinition
from replitree.storage.disk import PartStore
from replitree.storage.encode import stage_table
from replitree.storage.manifest import PartManifest

TOKEN_LENGTH_MAX = 1024
COUNT_CACHE_S = 0.1
DELAY_S_MAX = 1.0

Deliver = Callable[[Pending], None]
"""Tells the one who asked that a request has its answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """Part files that a client staged: their folder, checked and synced, and their manifests."""

    folder: Path
    manifests: tuple[PartManifest, ...]


class Host(Protocol):
    """What inserts need of the replica that takes them."""

    replica: Replica
    definition: TableDefinition
    performer: Performer
    store: PartStore
    store_performer: StorePerformer
    progress: Progress
    metrics: Metrics
    log: Log
    me: bytes
    incarnation: str

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""

    def why_not_active(self) -> str:
        """Return why the replica takes no inserts."""

    def trouble(self, reason: str) -> None:
        """Report that the replica must activate again."""

    def disk_failed(self, reason: str) -> None:
        """Report that the disk took no more."""


def token_block(token: str) -> BlockId:
    """Return the block id of a client's token.

    Raises
    ------
    BadInput
        The token is empty or longer than `TOKEN_LENGTH_MAX` characters.
    """
    if not 1 <= len(token) <= TOKEN_LENGTH_MAX:
        raise BadInput(f"the token has {len(token)} characters: use 1 to {TOKEN_LENGTH_MAX}")
    return BlockId(f"t-{xxhash.xxh3_128_hexdigest(token.encode())}")


def content_block(hashes: Sequence[str]) -> BlockId:
    """Return the block id of rows from the content hashes of their parts."""
    return BlockId(
        f"c-{hashes[0] if len(hashes) == 1 else xxhash.xxh3_128_hexdigest(','.join(sorted(hashes)).encode())}"
    )


class Inserts:
    """Takes the inserts of one table replica.

    Parameters
    ----------
    host
        The replica.
    rows_max, bytes_max
        Limits of one group.
    """

    def __init__(self, host: Host, rows_max: int, bytes_max: int) -> None:
        self._host = host
        self._numbers = itertools.count()
        self._groups = itertools.count()
        self._answers: dict[RequestId, Pending] = {}
        self._lock = threading.Lock()
        self._parts_count, self._parts_counted_at = 0, 0.0
        name = host.definition.name
        self._committer = GroupCommitter(name, self._commit, self._unanswered, rows_max, bytes_max)
        self._uploads = GroupCommitter(f"{name}-uploads", self._commit, self._unanswered, rows_max, bytes_max)

    def delay_s(self) -> float:
        """Return how many seconds an insert has to wait because a partition has many parts.

        Raises
        ------
        TooManyParts
            A partition has so many parts that inserts are refused.
        """
        settings = self._host.definition.settings
        now = time.monotonic()
        if now - self._parts_counted_at > COUNT_CACHE_S:
            self._parts_count, self._parts_counted_at = self._host.progress.partition_parts_max(), now
        count = self._parts_count
        if count >= settings.parts_max:
            raise TooManyParts(
                f"table {self._host.definition.name}: a partition has {count} parts, the limit parts_max is "
                f"{settings.parts_max}; insert larger blocks, use fewer partitions, or raise the limit"
            )
        if count < settings.parts_delay:
            return 0.0
        return DELAY_S_MAX * (count - settings.parts_delay + 1) / (settings.parts_max - settings.parts_delay)

    def forget_count(self) -> None:
        """Count the parts anew at the next insert."""
        self._parts_counted_at = 0.0

    def rows(self, data: pa.Table, token: str | None, deliver: Deliver) -> Pending:
        """Queue rows for the next group.

        Raises
        ------
        SchemaMismatch, BadInput
            The rows or the token can't be taken.
        ReadOnly
            The replica takes no inserts now.
        """
        table = conform(data, self._host.definition)
        if table.num_rows == 0:
            raise BadInput("the insert has no rows")
        block = token_block(token) if token is not None else content_block((content_hash(table, table.schema),))
        return self._submit(self._committer, block, table, table.num_rows, table.nbytes, deliver)

    def upload(self, upload: Upload, token: str | None, deliver: Deliver) -> Pending:
        """Queue an upload; it becomes an insert of its own.

        Raises
        ------
        BadInput
            The parts are not of this table's current columns, or the token can't be taken.
        ReadOnly
            The replica takes no inserts now.
        """
        version = self._host.definition.schema_version
        if any(manifest.schema_version != version for manifest in upload.manifests):
            raise BadInput(f"the upload was written for other columns; the table's columns have version {version}")
        hashes = tuple(manifest.content_hash for manifest in upload.manifests)
        block = token_block(token) if token is not None else content_block(hashes)
        rows = sum(manifest.rows for manifest in upload.manifests)
        return self._submit(self._uploads, block, upload, rows, 0, deliver)

    def close(self, timeout_s: float) -> bool:
        """Take no more inserts and finish those that wait; False when that took longer than `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        return all(
            committer.close(max(0.0, deadline - time.monotonic())) for committer in (self._committer, self._uploads)
        )

    def _submit(
        self, committer: GroupCommitter, block: BlockId, payload: object, rows: int, size: int, deliver: Deliver
    ) -> Pending:
        if self._host.active_epoch() is None:
            raise ReadOnly(self._host.why_not_active())
        alone = committer is self._uploads
        pending = Pending(RequestId(next(self._numbers)), block, payload, rows, size, alone, deliver)
        if not committer.submit(pending):
            raise ReadOnly("the replica is shutting down or has too many inserts waiting; try another replica")
        return pending

    def _commit(self, group: Sequence[Pending]) -> None:
        """Insert one group by the protocol's procedure."""
        host = self._host
        epoch = host.active_epoch()
        if epoch is None:
            raise ReadOnly(host.why_not_active())
        pointer = host.progress.pointer
        log_from = pointer.index if pointer is not None else LogIndex(host.replica.table.base)
        inserter = Inserter(host.replica, host.me, log_from, host.definition.schema_version)
        staging = StagingId(f"{host.incarnation}-{next(self._groups)}")
        with self._lock:
            self._answers.update({pending.id: pending for pending in group})
        try:
            with host.store_performer.holding(staging, {pending.id: pending.payload for pending in group}):
                requests = tuple(Request(pending.id, pending.block) for pending in group)
                host.performer.run(insert(inserter, epoch, staging, requests))
        finally:
            with self._lock:
                for pending in group:
                    self._answers.pop(pending.id, None)
        host.metrics.groups.labels(host.definition.name).inc()

    def answer(self, request: RequestId, answer: ClientAnswer) -> None:
        """Give a client its answer; the first one counts."""
        pending = self._answers.get(request)
        if pending is not None:
            pending.give(answer)
        if isinstance(answer, Failed | UnknownAnswer):
            self._host.trouble("an insert could not be finished")

    def _unanswered(self, left: Sequence[Pending], problem: BaseException | None) -> None:
        """Answer what a procedure left open: after a refusal to begin "failed", after anything else "unknown"."""
        if isinstance(problem, ReadOnly):
            answer: ClientAnswer = Failed(str(problem))
        else:
            answer = UnknownAnswer()
            self._host.log.error("insert ended without an answer", problem=repr(problem), requests=len(left))
            self._host.trouble("an insert's outcome is unknown")
        for pending in left:
            pending.give(answer)

    def stage(self, staging: StagingId, payloads: Sequence[object]) -> tuple[PartManifest, ...]:
        """Write a group's payloads as the parts of a staging id."""
        first = payloads[0]
        try:
            if isinstance(first, Upload):
                self._host.store.adopt_staging(first.folder, staging)
                return tuple(sorted(first.manifests, key=lambda manifest: manifest.partition))
            tables = [payload for payload in payloads if isinstance(payload, pa.Table)]
            folder = self._host.store.staging_path(staging)
            return stage_table(pa.concat_tables(tables), self._host.definition, folder)
        except StoreError as error:
            self._host.disk_failed(str(error))
            raise


def result_of(answer: ClientAnswer, rows: int, token: str) -> dict[str, object]:
    """Return what a client is told of its insert, or raise it.

    Raises
    ------
    ReadOnly
        Certainly nothing was inserted.
    OutcomeUnknown
        The rows may be in the table.
    """
    match answer:
        case Inserted(index):
            return {"outcome": "inserted", "index": index, "rows": rows}
        case Duplicate(index):
            return {"outcome": "duplicate", "index": index, "rows": rows}
        case Failed(reason):
            raise ReadOnly(f"nothing was inserted: {reason}")
        case UnknownAnswer():
            raise OutcomeUnknown("the rows may be in the table; repeat the insert with the same token", token)
