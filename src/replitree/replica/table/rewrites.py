"""Rewrites: a client makes parts of others that it has read, and this replica puts them into the log.

The order; the client may die at any step, and what it leaves is removed in time:

1. *begin*   the client hears where the table stands; the parts get a lease and are *reserved*: as long as the lease lasts, this
             replica proposes no merge of them
2. *make*    somewhere else: the results, each under its source's name, and new parts, in the data files of an upload, or in
             the object store (`replitree.replica.uploads.stored_uploads`).  Of files that tasks of Spark have sent here, this
             replica makes them (`Rewrites.adopt`)
3. *commit*  every file is verified, of objects what is looked at of any upload; then the stages of
             `replitree.protocol.program.rewriter`

A rewrite whose entry does not apply has changed nothing (`ConcurrentChange`): its client begins again.

Absent on purpose: proof that the rows are what they should be.  A client that has the cluster's token may insert and delete
as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replitree.errors import (
    BadInput,
    ConcurrentChange,
    OutcomeUnknown,
    ReadOnly,
    ReplitreeError,
    SchemaMismatch,
    StoreError,
)
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MergeEntry, Unchanged
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.program.rewriter import accept_rewrite, judge_rewrite
from replitree.protocol.program.stages import Accept, Accepted, AwaitPulled, MemoryEffect, Release, ReportTrouble, Then
from replitree.protocol.propose.propose import Forgotten, find_command
from replitree.protocol.propose.rewrite import Rewriting
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.payloads import StagedRewrite
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.merges import Merges
from replitree.replica.perform.append_doubt import AppendDoubt
from replitree.replica.perform.appending import forgotten
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.store_performer import StorePerformer
from replitree.replica.table.snapshots import Snapshots
from replitree.replica.uploads.stored_uploads import REWRITE_PARTS_MAX
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.files.durable import rename
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from replitree.storage.rewrite.row_level import StatementParts

PLACE_NAMES = 3
"""Names in the place of a file that a task has sent."""


@dataclass(frozen=True, slots=True)
class BegunRewrite:
    """What a client may rewrite: parts at `index`, where the inserts `opened` were open; `lease` keeps them."""

    index: fx.LogIndex
    opened: tuple[fx.LogIndex, ...]
    parts: tuple[str, ...]
    lease: str


@dataclass(frozen=True, slots=True)
class RewriteWish:
    """What a client has made.

    Attributes
    ----------
    upload, id
        Where the files are, and the id of the command.
    schema_version
        With which columns they were written.
    results
        The manifest of what takes the place of each source; None: it loses all its rows.
    inserts
        The manifests of new parts.
    unchanged
        What it relies on besides its sources.
    tags
        Of files that are in the object store: what it said of them when they were put, by the part's name and the file's.
    """

    upload: str
    id: str
    schema_version: int
    results: Mapping[str, PartManifest | None]
    inserts: tuple[PartManifest, ...]
    unchanged: Unchanged | None
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SentFiles:
    """The files of a statement that its tasks have sent.

    Attributes
    ----------
    upload
        Where they are.
    schema_version
        With which columns they were written.
    hashes
        The content hash of each part that the statement has read.
    files, new
        Their places, ``<attempt>/<partition>/<file>``: of the rows that each of these parts has afterwards, and of new rows.
    is_stored
        Other tasks have put theirs into the object store: these are to become pieces beside them.
    """

    upload: str
    schema_version: int
    hashes: Mapping[str, str]
    files: Mapping[str, Sequence[str]]
    new: Sequence[str]
    is_stored: bool = False


class Rewrites:
    """Takes the rewrites of one table replica.  The methods block; they are called in threads of their own.

    Parameters
    ----------
    merges
        Leaves out of merges what is being rewritten.
    snapshots
        What clients read.
    uploads
        Where their files arrive.
    performer
        Stages them.
    storage
        The table's object store, where files may be instead.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        merges: Merges,
        snapshots: Snapshots,
        uploads: Uploads,
        performer: StorePerformer,
        storage: FollowedStorage,
    ) -> None:
        self._context = context
        self._store, self._progress, self._old_parts = parts.store, parts.progress, parts.old_parts
        self._availability = availability
        self._merges = merges
        self._snapshots = snapshots
        self._uploads = uploads
        self._performer = performer
        self._storage = storage
        # The requests of inserts have numbers above 0.
        self._numbers = (fx.RequestId(-number) for number in count(1))

    # --- begin ----------------------------------------------------------------------------------------------------------------

    def is_merged(self, sources: Sequence[str] | None, partitions: Sequence[str] | None) -> bool:
        """Whether no merge is under way of what a client wants to rewrite."""
        with self._progress.changed:
            merges = [item for item in self._progress.queue() if isinstance(item.entry, MergeEntry)]
        removed = (part for item in merges for part in item.change.removed)
        return not any(_is_meant(part, sources, partitions) for part in removed)

    def begin(
        self, index: fx.LogIndex, sources: Sequence[str] | None, partitions: Sequence[str] | None, lease_s: float
    ) -> BegunRewrite:
        """Reserve parts for a rewrite.

        Parameters
        ----------
        index
            The end of the log, up to which this replica has executed everything.
        sources
            The parts, from an earlier read; None: all, or all of some `partitions`.
        lease_s
            For how long, and again after each renewal of the lease.

        Raises
        ------
        ConcurrentChange
            One of the parts has left the table.
        SnapshotExpired, ReplicaUnavailable
            As `Snapshots.take`.
        """
        taken = self._snapshots.take(index, lease_s)
        assert taken.lease is not None
        found = tuple(name for name in taken.parts if _is_meant(parse_part(name), sources, partitions))
        gone = next((name for name in sources or () if name not in found), None)
        if gone is not None:
            self._old_parts.release(taken.lease)
            raise ConcurrentChange(f"{gone} has left the table since it was read; read it again")
        self._merges.reserve(taken.lease, map(parse_part, found))
        return BegunRewrite(index, self._progress.open_at(index), found, taken.lease)

    # --- make ---------------------------------------------------------------------------------------------------------------

    def adopt(self, sent: SentFiles) -> StatementParts:
        """Make results and new parts of files that tasks have sent, in their upload; what of it is not named goes.

        Pieces beside those of other tasks lie here until the commit puts them, under names that no other task has got.

        Raises
        ------
        BadInput, SchemaMismatch
            They can't become parts of the table, or are not here; nothing was changed.
        NoSuchUpload
            There is no such upload.
        ReadOnly, Unavailable
            Nothing can be put into the store now.
        """
        from replitree.storage.rewrite.row_level import statement_parts

        definition = self._context.definitions.at(sent.schema_version)
        if not sent.files.keys() <= sent.hashes.keys():
            raise BadInput("the files of a part come with the content hash of that part")

        def put(name: str, made: Path, manifest: PartManifest) -> None:
            if sent.is_stored:
                pieces[name] = made, manifest
                return
            for file in manifest.files:
                rename(made / file.name, self._uploads.file_path(sent.upload, name, file.name))

        pieces = dict[str, tuple[Path, PartManifest]]()
        with self._uploads.committing(sent.upload), self._uploads.scratch(sent.upload) as scratch:
            files = {part: [self._place(sent, place) for place in some] for part, some in sent.files.items()}
            new = [self._place(sent, place) for place in sent.new]
            parts = statement_parts(definition, sent.hashes, files, new, scratch / "made", put)
            named = self._named(sent.upload, pieces)
        results = {part: manifest and named.get(part, manifest) for part, manifest in parts.results.items()}
        inserts = {partition: named.get(partition, manifest) for partition, manifest in parts.inserts.items()}
        return msgspec.structs.replace(parts, results=results, inserts=inserts)

    def _named(self, upload: str, pieces: Mapping[str, tuple[Path, PartManifest]]) -> dict[str, PartManifest]:
        """Move the files of pieces to where those of tasks arrive that do not reach the store; return their manifests."""
        if not pieces:
            return {}
        if self._storage.sharing is None:
            raise BadInput("the table has no object store any more: run the statement again")
        counts = {name: len(manifest.files) for name, (_, manifest) in pieces.items()}
        names = self._storage.sharing.uploads.begin(upload, counts, is_rewrite=True)
        named = {
            name: manifest.named_in(names[name].share, names[name].first) for name, (_, manifest) in pieces.items()
        }
        for name, (made, manifest) in pieces.items():
            for old, new in zip(manifest.files, named[name].files, strict=True):
                rename(made / old.name, self._uploads.file_path(upload, name, new.name))
        return named

    def _place(self, sent: SentFiles, place: str) -> Path:
        names = place.split("/")
        path = self._uploads.staged_path(sent.upload, *names) if len(names) == PLACE_NAMES else None
        if path is None or not path.exists():
            raise BadInput(f"{place} was not sent: run the statement again")
        return path

    # --- commit ---------------------------------------------------------------------------------------------------------------

    def commit(self, wish: RewriteWish, wait_s: float) -> fx.LogIndex:
        """Put a rewrite into the log, and wait up to `wait_s` seconds until it is known whether it counts; return its index.

        Raises
        ------
        BadInput, SchemaMismatch, CorruptPart
            It can't be one; nothing was changed.
        NoSuchUpload
            Its files are not here, and no rewrite has its id.
        ConcurrentChange
            It does not count.
        ReadOnly
            It is certainly not in the log.
        OutcomeUnknown
            It may be in the table; ask again with the same id.
        """
        definition = self._checked(wish)
        with self._uploads.committing(wish.upload):
            payload = self._sealed(wish, definition)
            context, request = self._context, next(self._numbers)
            staging = fx.StagingId(f"{context.identity.incarnation}-w{-int(request)}")
            rewriting = Rewriting(fx.EntryId(wish.id), wish.schema_version, wish.unchanged)
            accept = Then(accept_rewrite, (context.replica, request, rewriting))
            return _index_of(self._drive(wish.id, accept, {request: payload}, staging, wait_s), wish.id)

    def sealed(self, wish: RewriteWish) -> StagedRewrite:
        """Verify the files of a rewrite over shards, which is committed with those of others; errors as of `commit`.

        The caller keeps the upload from being discarded.
        """
        return self._sealed(wish, self._checked(wish))

    def _checked(self, wish: RewriteWish) -> TableDefinition:
        """Return the table with the columns of a rewrite; raise `BadInput` if it can't be one."""
        definition = self._context.definitions.at(wish.schema_version)
        if not 1 <= len(wish.results) + len(wish.inserts) <= REWRITE_PARTS_MAX:
            raise BadInput(f"a rewrite has 1 to {REWRITE_PARTS_MAX} parts: rewrite in smaller steps")
        if len({manifest.partition for manifest in wish.inserts}) != len(wish.inserts):
            raise BadInput("a rewrite brings one new part for each partition at most")
        for source, manifest in wish.results.items():
            if manifest is not None and manifest.partition != parse_part(source).partition:
                raise BadInput(
                    f"the result of {source} is of partition {manifest.partition}: its rows are a new part there"
                )
        made = [manifest for manifest in (*wish.results.values(), *wish.inserts) if manifest is not None]
        if any(manifest.schema_version != wish.schema_version for manifest in made):
            raise BadInput("the parts of a rewrite are of one schema version")
        return definition

    def earlier(self, wish: RewriteWish, wait_s: float) -> fx.LogIndex | None:
        """Look whether a rewrite with this id is in the log, and counts; return its index.  Raises as `commit`."""
        context = self._context
        # Without an epoch, an earlier commit of this replica may still be under way.
        self._availability.epoch()
        context.performer.perform(fx.Sync(layout.blocks(context.replica.table)))
        found = context.performer.look_up(find_command(context.replica.table, fx.EntryId(wish.id)))
        if found is None:
            return None
        if isinstance(found, Forgotten):
            raise forgotten(wish.id)
        judge = Then(judge_rewrite, (context.replica, next(self._numbers), found.index, None))
        return _index_of(self._drive(wish.id, judge, {}, fx.StagingId(""), wait_s), wish.id)

    def _sealed(self, wish: RewriteWish, definition: TableDefinition) -> StagedRewrite:
        """Verify the files of a rewrite, and make the parts that have no rows."""
        from replitree.storage.parts.upload_check import UploadCheck
        from replitree.storage.rewrite.empty import empty_part

        folder = self._uploads.folder(wish.upload)
        made = {source: manifest for source, manifest in wish.results.items() if manifest is not None}
        emptied = [source for source in wish.results if source not in made]
        # An earlier try may have made them.
        for source in emptied:
            shutil.rmtree(folder / source, ignore_errors=True)
        named = {**made, **{manifest.partition: manifest for manifest in wish.inserts}}
        if any(manifest.share_id is not None for manifest in named.values()):
            if self._storage.sharing is None:
                raise BadInput("the table has no object store: send the files")
            self._storage.sharing.uploads.seal_named(wish.upload, named, wish.tags)
        elif named:
            self._uploads.seal_named(wish.upload, named, self._store)
            check = UploadCheck()
            for name, manifest in named.items():
                check.part(folder / name, manifest, definition)
        for source in emptied:
            partition = parse_part(source).partition
            made[source] = empty_part(definition, partition, folder, prefix="empty_")
            rename(folder / f"empty_{partition}", folder / source)
        return StagedRewrite(folder, made, wish.inserts)

    def _drive(
        self,
        command: str,
        then: Then,
        payloads: dict[fx.RequestId, StagedRewrite],
        staging: fx.StagingId,
        wait_s: float,
    ) -> fx.ClientAnswer:
        """Run stages until a rewrite is answered, and return the answer.

        Raises
        ------
        OutcomeUnknown
            They ended without an answer, after something was sent.
        """
        context, held = self._context, ExitStack()
        accepted = Accepted(context.identity.encode(), self._availability.epoch(), context.progress.pointer, staging)

        def remember(effect: MemoryEffect) -> object:
            match effect:
                case Accept():
                    held.enter_context(self._performer.holding(staging, payloads))
                    return accepted
                case AwaitPulled(index):
                    context.pull_signal.hurry()
                    return self._progress.await_pulled(index, wait_s)
                case Release():
                    self._performer.forget(staging)
                    held.close()
                case ReportTrouble():
                    self._availability.trouble(Evidence.UNKNOWN, "the answer to a rewrite's commit was lost")
            return None

        # The caller answers the client with what the last stage returns.
        doubt = AppendDoubt(lambda effect: None if isinstance(effect, fx.Answer) else context.performer.perform(effect))
        doubt.may_be_in_log = then.stage is judge_rewrite
        with held:
            try:
                answer: fx.ClientAnswer = Driver(context.performer, remember, doubt.perform).finish(then)
            except (ReplitreeError, OSError) as error:
                if not doubt.may_be_in_log:
                    # If the disk fails, the next activation sweeps the folder.
                    with suppress(StoreError, OSError):
                        self._performer.discard(staging)
                    raise
                self._availability.trouble(Evidence.UNKNOWN, "a rewrite has ended without an answer")
                reason = f"the rewrite may be in the table ({error}); ask again with the same id"
                raise OutcomeUnknown(reason, command) from error
        return answer


def _is_meant(part: Part, sources: Sequence[str] | None, partitions: Sequence[str] | None) -> bool:
    return (sources is None or part.name in sources) and (partitions is None or part.partition in partitions)


def _index_of(answer: fx.ClientAnswer, command: str) -> fx.LogIndex:
    """Return the index of a rewrite that counts, or raise what its client hears."""
    match answer:
        case fx.Inserted(index):
            return index
        case fx.Duplicate():
            raise forgotten(command)
        case fx.NotInserted(reason, fx.Why.CHANGED):
            raise ConcurrentChange(reason)
        case fx.NotInserted(reason, fx.Why.REQUEST):
            raise BadInput(reason)
        case fx.NotInserted(reason) if "columns were changed" in reason:
            raise SchemaMismatch(f"nothing was changed: {reason}")
        case fx.NotInserted(reason):
            raise ReadOnly(f"nothing was changed: {reason}")
    raise OutcomeUnknown("the rewrite may be in the table; ask again with the same id", command)
