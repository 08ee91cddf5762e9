"""Insert into a sharded table: the rows of each shard are prepared at one replica of it, then one commit brings them all.

How, in order:

1. the rows are split by the map;
2. for each shard that gets some, a replica of it stages them: in one request if they are few, else as an upload;
3. the replica that has the rows of the first shard commits, for all of them.

Few rows are prepared and committed by one request, if they are of one shard, or if one server has a replica of each of their
shards and the insert has no quorum.  Where that fails for several shards, the steps above are taken.  Only the last inserts.
What becomes of it:

==================================================  ====================================================================
answer                                              what happens
==================================================  ====================================================================
inserted, duplicate                                 done
the map has changed, or a shard of it was removed   everything is split and prepared again, by the new map
a participant is gone                               the rows of its shard are prepared again
`Unavailable`: certainly nothing was inserted       the rows of the first shard are prepared at another replica, which commits
no answer, or "unknown"                             the same, and the insert is *in doubt* from now on
too few replicas, the quorum was not reached        raised (not in doubt)
time is up                                          `OutcomeUnknown` when in doubt, otherwise the last error
==================================================  ====================================================================

Going on after a doubt is right because every try has the same token, which is one over all shards: a replica that finds it
taken answers "duplicate".  Without a token of the caller, it is a hash of the rows in the order in which they were given.

The rows of one insert are held until it is over, because a changed map needs them once more
(`replitree.client.sharded.insert.held_rows`).

*Uploads.*  The tasks of a Spark job stage the rows of each shard in an upload at one replica, and the driver begins with step 2
(`JointInserter.commit_uploads`).  It has no rows that it could prepare anew: when the map has changed, or a replica with an
upload is gone, nothing was inserted, and the job stages everything again.

A batch of a stream is named by its number in the place of a token.

An overwrite is prepared and committed by requests of their own, however few its rows are: its commit concerns all shards, and
no server may have joined other clients' rows to it.

*Views.*  What materialised views make of the rows is computed here, split by the maps of their targets, and prepared in the
shards of these: the commit brings it together with the rows (`replitree.protocol.sharded.views`).  Such an insert takes the
steps above, never the one request.  A map with other views counts as changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import msgspec
import pyarrow as pa

from replitree.client.insert.insert import REQUEST_BYTES_MAX, REQUEST_ROWS_MAX, STORED_BYTES_PER_S, TableInserter
from replitree.client.insert.terms import InsertResult, Terms, Written
from replitree.client.sharded.insert.held_rows import HeldRows
from replitree.client.sharded.insert.one_server import OneServer
from replitree.client.sharded.insert.split_rows import At, FilledUpload, RowSplitter, SplitRows
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.transport.catalog import Catalog, ReplicaInfo
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.client.transport.routing import ATTEMPT_S_MAX, Router
from replitree.errors import (
    BadInput,
    OutcomeUnknown,
    QuorumNotReached,
    ReplicaUnavailable,
    ReplitreeError,
    TableNotFound,
    TooFewReplicas,
    TooManyParts,
    Unavailable,
)
from replitree.protocol.sharded.places import shard_name, shard_number, sharded_name
from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.parts.content_hash import content_hash, joined_hash
from replitree.storage.rewrite.slices import cut
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.shard_definition import shard_definition
from replitree.wire import tracing
from replitree.wire.prepared_share import FilledView
from replitree.wire.sent_batch import SentBatch

KEEP_S = 600.0
"""How long a replica keeps few rows that it has prepared, in seconds: longer than the other shards take, and their commit."""

KEEP_S_MAX = 3_600.0
"""The longest that it keeps any, in seconds."""

PAUSE_S = 0.05
"""Pause before the next try of a commit, in seconds."""

ABANDON_S = 5.0
"""How long a replica may take to give up what it has prepared, in seconds; it does so by itself in time."""

_Asked: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JointInsertResult(InsertResult):
    """What became of an insert into a sharded table.

    Attributes
    ----------
    index
        None: each shard has a number line of its own.
    shards
        (name of the shard, index of its entry) of each shard that got rows, and of an overwrite of all shards; None: the entry
        has left the log.
    """

    shards: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class _PreparedShare:
    """What a replica has prepared of one shard; `told` is what it answered, which the commit hands over as it is."""

    at: At
    replica: ReplicaInfo
    told: _Asked


class _ShardEntry(msgspec.Struct, frozen=True):
    shard: str
    index: int | None = None


class _Committed(msgspec.Struct, frozen=True):
    outcome: str
    rows: int = 0
    shards: tuple[_ShardEntry, ...] = ()
    settled: int | None = None
    shard: str = ""
    replica: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Doubt:
    """What has happened to an insert so far."""

    token: str | SentBatch
    last: ReplitreeError = field(default_factory=lambda: ReplicaUnavailable("no replica could be asked in time"))
    is_open: bool = False

    def end(self, timeout_s: float) -> ReplitreeError:
        """Return the error to raise when the time is over."""
        if self.is_open:
            return OutcomeUnknown(
                f"the rows may have been inserted: no replica could say so in {timeout_s:.0f} s ({self.last}). Repeat the"
                f" insert with the same name ({_text(self.token)}): they will not be inserted twice.",
                _text(self.token),
            )
        if isinstance(self.last, AnswerLost):
            return ReplicaUnavailable(f"{self.last}; is the replica stopped? Try again later")
        return self.last


class JointInserter:
    """Inserts into one sharded table.  Any thread may use it.

    Parameters
    ----------
    definition
        The sharded table.
    catalog, http
        The directory of the replicas, and the connection to them.
    written
        Takes note of what is inserted into a shard.
    inserter
        Returns what inserts into another sharded table, by its name.

    Attributes
    ----------
    splitter
        Splits rows by the map, and computes what views make of them.
    """

    def __init__(
        self,
        definition: TableDefinition,
        catalog: Catalog,
        http: HttpClient,
        written: Callable[[Shard], Written],
        inserter: Callable[[str], JointInserter],
    ) -> None:
        self._definition = definition
        self._catalog = catalog
        self._http = http
        self._written = written
        self.splitter = RowSplitter(definition, catalog, inserter)
        self._inserters: dict[Shard, tuple[Router, TableInserter]] = {}
        self._beside, self._server = SideBySide(), OneServer()
        self._filling = BoundedSemaphore(os.cpu_count() or 1)

    def insert(self, data: Any, terms: Terms) -> JointInsertResult:
        """Insert rows: see `ShardedTable.insert`."""
        schema = self._definition.arrow_schema
        held = HeldRows((each.rows for each in cut(data, self._definition, terms.zone)), schema)
        if not held.rows.num_rows:
            return JointInsertResult(None, 0, "empty", terms.token)
        token = terms.batch or terms.token or f"content-{content_hash(held.rows, schema)}"
        with tracing.begin("insert", kind="client") as span:
            span.note(table=self._definition.name, token=terms.token)
            done = self._insert_rows(held, token, terms)
            span.note(outcome=done.outcome, rows=done.rows)
            return done

    def fill(self, rows: pa.Table, view: FilledView, token: str, timeout_s: float) -> JointInsertResult:
        """Insert the rows from before a materialised view, in the definition's schema, and mark it as filled: once.

        Raises
        ------
        BadInput
            The view was filled or dropped meanwhile; nothing was inserted.
        OutcomeUnknown, Unavailable
            As of `insert`.
        """
        held = HeldRows((rows,), self._definition.arrow_schema)
        return self._insert_rows(held, token, Terms(token, timeout_s), view)

    def _insert_rows(
        self, held: HeldRows, token: str | SentBatch, terms: Terms, fills: FilledView | None = None
    ) -> JointInsertResult:
        deadline = time.monotonic() + terms.timeout_s
        while True:
            split = self.splitter.split(held, self, fills, fires_views=terms.fires_views)
            if not held.is_in_memory:
                # The time limit is for waiting; writing files is work.
                deadline = time.monotonic() + terms.timeout_s
            if len(split.versions) > 1 and (terms.quorum is not None or terms.overwrite is not None):
                problem = (
                    ", whose rows can't wait for a quorum: insert without a quorum"
                    if terms.overwrite is None
                    else ", whose targets would keep the rows of what is replaced: drop the views first, or delete and insert"
                )
                raise BadInput(f"table {self._definition.name} has materialised views{problem}; nothing was inserted")
            few = split.plain_rows
            is_one = few is not None and len(few) == 1 and _is_small(held.rows) and terms.overwrite is None
            try:
                done = (self._insert_one if is_one else self._insert)(split, token, terms, deadline)
            except TableNotFound:
                # A shard of the map may have been removed since: then the map is another one, and nothing was inserted.
                if self.splitter.read().version == split.versions[""]:
                    raise
                continue
            if done is not None:
                break
            self.splitter.read()
        return self._result(done, held.rows.num_rows, split, terms)

    def commit_uploads(
        self, filled: Mapping[Shard, FilledUpload], version: int, terms: Terms
    ) -> JointInsertResult | None:
        """Insert what is in uploads by one commit: all or nothing.

        Parameters
        ----------
        filled
            At least one upload; each of one shard, which gets all its rows.
        version
            Of the map by which the rows were split.
        terms
            How to insert.  Without a token, the parts' contents name the insert.

        Returns
        -------
        None: the map has another version by now, nothing was inserted, and the uploads are given up.

        Raises
        ------
        OutcomeUnknown
            The rows may have been inserted: insert them again with the same token.
        Unavailable
            Certainly nothing was inserted, as after every other error; what was prepared is given up.
        """
        token = terms.batch or terms.token or _content_of(filled)
        pieces = {At("", shard): filled[shard] for shard in sorted(filled)}
        split, deadline, doubt = (
            SplitRows(pieces, {"": version}, {"": self}),
            time.monotonic() + terms.timeout_s,
            _Doubt(token),
        )
        shares: dict[At, _PreparedShare] = {}
        try:
            for share in self._prepare(split, list(pieces), deadline):
                shares[share.at] = share
            while (found := self._commit(split, shares, terms, deadline, doubt)) is None:
                # Equal requests have one answer, so asking again is right after every failure.
                if time.monotonic() + PAUSE_S > deadline:
                    raise doubt.end(terms.timeout_s)
                time.sleep(PAUSE_S)
            # The token is looked at first: whatever the answer is, a doubt is over.
            doubt.is_open = False
            if found.outcome == "participant_gone":
                raise ReplicaUnavailable(
                    f"nothing was inserted: replica {found.replica} of shard {found.shard} does not have what was staged there"
                    f" any more ({found.reason}); run the job again"
                )
            # What a duplicate was prepared of is given up; if it is the insert itself, its replicas know that it was taken.
            if found.outcome == "inserted":
                shares.clear()
        finally:
            if not doubt.is_open:
                self._abandon(list(shares.values()))
        if found.outcome == "map_changed":
            return None
        rows = sum(manifest.rows for each in filled.values() for manifest in each.manifests)
        return self._result(found, rows, split, terms)

    def _result(self, done: _Committed, rows: int, split: SplitRows, terms: Terms) -> JointInsertResult:
        """Note what was inserted, and return it."""
        first, own = min(split.pieces).shard, list[tuple[str, int | None]]()
        for entry in done.shards:
            name, shard = sharded_name(entry.shard), shard_number(entry.shard)
            is_own = name == self._definition.name
            # The coordinator tells where the quorum ended in its own log, by one commit for all shards.
            settled = done.settled if is_own and shard == first else None
            split.tables["" if is_own else name].note(shard, entry.index, settled)
            if is_own:
                own.append((entry.shard, entry.index))
        return JointInsertResult(None, rows, done.outcome, terms.token, shards=tuple(own))

    def note(self, shard: Shard, index: int | None, settled: int | None) -> None:
        """Take note of an entry of an insert, and of the end of its quorum."""
        self._written(shard).add(index, settled)

    def _insert_one(self, split: SplitRows, token: str | SentBatch, terms: Terms, deadline: float) -> _Committed | None:
        """Insert few rows of one shard, prepared and committed by one request; None: the map has another version by now."""
        (((_, shard), rows),) = split.pieces.items()
        router, inserter = self.inserter_of(shard)
        # Another table of this name may have a map of the same version.
        of = f"map_version={split.versions['']}&of={inserter.definition.table_id}"
        assert isinstance(rows, pa.Table)
        body, said = _stream_of(rows), f"{of}&{_query(token, terms)}"
        route = f"/v1/tables/{quote(self._name(shard))}/joint/rows?{said}"

        def send(replica: ReplicaInfo, left: float) -> _Committed:
            answer = self._http.request(replica.address, "POST", route, body, timeout_s=left, purpose="insert")
            found = answer.decode(_Committed)
            if found.outcome == "participant_gone":
                raise ReplicaUnavailable(found.reason)
            return found

        left = max(0.0, deadline - time.monotonic())
        found = router.ask(send, timeout_s=left, token=_text(token), attempt_s=_attempt_s(terms))
        return None if found.outcome == "map_changed" else found

    def _insert(self, split: SplitRows, token: str | SentBatch, terms: Terms, deadline: float) -> _Committed | None:
        """Prepare and commit rows that were split by one version of each map; None: one is another by now."""
        pieces, shares, doubt = split.pieces, dict[At, _PreparedShare](), _Doubt(token)
        whole = self._insert_whole(split, terms, deadline, doubt)
        if whole is not None and whole.outcome != "participant_gone":
            return None if whole.outcome == "map_changed" else whole
        try:
            while True:
                missing, began = [at for at in pieces if at not in shares], time.monotonic()
                for share in self._prepare(split, missing, deadline):
                    shares[share.at] = share
                # Only few rows are not written into files, and they take no time to speak of.
                deadline += time.monotonic() - began if split.bytes > REQUEST_BYTES_MAX else 0
                found = self._commit(split, shares, terms, deadline, doubt)
                if found is not None and found.outcome != "participant_gone":
                    if found.outcome == "inserted":
                        shares.clear()
                    else:
                        # What was prepared for a duplicate is given up; if it is the insert itself, its replicas know that it
                        # was taken.  Of a changed map: the token is looked at first, and what is on its way has the same map.
                        doubt.is_open = False
                    return None if found.outcome == "map_changed" else found
                if found is not None:
                    doubt.last = ReplicaUnavailable(found.reason)
                # Without an answer it is the coordinator, which has the first share.
                named = None if found is None else found.shard
                gone = next((at for at, each in shares.items() if each.told.get("shard") == named), min(pieces))
                self._abandon([shares.pop(gone)])
                split.router(gone)[0].forget()
                if time.monotonic() + PAUSE_S > deadline:
                    raise doubt.end(terms.timeout_s)
                time.sleep(PAUSE_S)
        except ReplitreeError as error:
            # A shard could not be prepared any more; what was in doubt before still is.
            if doubt.is_open and not isinstance(error, OutcomeUnknown):
                doubt.last = error
                raise doubt.end(terms.timeout_s) from error
            raise
        finally:
            # After a doubt the commit may be on its way: then these stay for their replicas, which know.
            if not doubt.is_open:
                self._abandon(list(shares.values()))

    def _insert_whole(self, split: SplitRows, terms: Terms, deadline: float, doubt: _Doubt) -> _Committed | None:
        """Insert few rows of several shards by one request.

        None: they wait for a quorum, are a batch of a stream, take the place of others, or views have rows; or no server has
        all of them, or it can't tell.
        """
        few, is_plain = split.plain_rows, terms.quorum is None and terms.batch is None and terms.overwrite is None
        if few is None or not is_plain:
            return None
        pieces = {at.shard: few[at] for at in sorted(few)}
        rows = pa.concat_tables(pieces.values())
        if not _is_small(rows):
            return None
        first = min(pieces)
        replica = self._server.find([self.inserter_of(shard)[0] for shard in pieces])
        if replica is None:
            return None
        counts = ",".join(f"{shard}:{piece.num_rows}" for shard, piece in pieces.items())
        of = f"map_version={split.versions['']}&of={self.inserter_of(first)[1].definition.table_id}"
        said = f"{of}&shards={counts}"
        route = f"/v1/tables/{quote(self._name(first))}/joint/rows?{said}&{_query(doubt.token, terms)}"
        found = self._ask_commit(replica, route, _stream_of(rows), terms, deadline, doubt)
        if found is None or found.outcome == "participant_gone":
            self._server.failed(replica)
        return found

    # --- preparing ----------------------------------------------------------------------------------------------------

    def _prepare(self, split: SplitRows, wanted: list[At], deadline: float) -> Iterator[_PreparedShare]:
        """Prepare the rows, or the uploads, of some shards side by side.

        Raises
        ------
        ReplitreeError
            Those of one can't be prepared; what the others have prepared is given up.
        """

        def prepare(at: At) -> _PreparedShare | ReplitreeError:
            try:
                return self._prepare_one(split, at, max(0.1, deadline - time.monotonic()))
            except ReplitreeError as error:
                return error

        found = self._beside.each(prepare, wanted)
        shares = [each for each in found if isinstance(each, _PreparedShare)]
        problem = next((each for each in found if isinstance(each, ReplitreeError)), None)
        if problem is not None:
            self._abandon(shares)
            raise problem
        yield from shares

    def _prepare_one(self, split: SplitRows, at: At, seconds: float) -> _PreparedShare:
        (router, inserter), rows = split.router(at), split.pieces[at]
        name, version = inserter.definition.name, split.versions[at.table]
        keep_s = min(KEEP_S_MAX, KEEP_S + split.bytes / STORED_BYTES_PER_S)
        said = {"map_version": str(version), "keep_s": f"{keep_s:g}", "of": inserter.definition.table_id}
        said |= {"coordinates": "true"} if at == min(split.pieces) else {}
        query = urlencode(said)
        if not isinstance(rows, FilledUpload) and _is_small(rows):
            body, route = _stream_of(rows), f"/v1/tables/{quote(name)}/prepared?{query}"

            def send(replica: ReplicaInfo, left: float) -> _PreparedShare:
                answer = self._http.request(replica.address, "POST", route, body, timeout_s=left, purpose="insert")
                return _PreparedShare(at, replica, answer.decode(dict[str, Any]))

            return router.ask(send, timeout_s=seconds)
        if isinstance(rows, FilledUpload):
            filled = rows
        else:
            # Each has a slice in memory.
            with self._filling:
                filled = FilledUpload(*inserter.fill(cut(rows, inserter.definition), seconds))
        upload, path = filled.upload, f"{filled.upload.route}/prepare?{query}"
        wish: Mapping[str, Any] = {"manifests": filled.manifests, "pieces": upload.pieces, "tags": upload.tags}
        if filled.rewrite is not None:
            wish, path = filled.rewrite, f"/v1/tables/{quote(name)}/rewrites/prepare?{query}"
        described = msgspec.json.encode(wish)

        def take(replica: ReplicaInfo, left: float) -> _PreparedShare:
            answer = self._http.request(replica.address, "POST", path, described, timeout_s=left)
            return _PreparedShare(at, replica, answer.decode(dict[str, Any]))

        return Router(self._catalog, name, upload.replica.name).ask(take, timeout_s=seconds, attempt_s=seconds)

    def _abandon(self, shares: list[_PreparedShare]) -> None:
        """Let replicas give up what they have prepared; one that does not answer does so by itself in time."""

        def give_up(share: _PreparedShare) -> None:
            name, staging = (quote(str(share.told.get(key))) for key in ("shard", "staging"))
            route = f"/v1/tables/{name}/prepared/{staging}"
            with suppress(ReplitreeError):
                self._http.request(share.replica.address, "DELETE", route, timeout_s=ABANDON_S)

        self._beside.each(give_up, shares)

    # --- committing ---------------------------------------------------------------------------------------------------

    def _commit(
        self,
        split: SplitRows,
        shares: Mapping[At, _PreparedShare],
        terms: Terms,
        deadline: float,
        doubt: _Doubt,
    ) -> _Committed | None:
        """Ask the coordinator to commit; None: it did not, or can't tell, and another one is to be asked."""
        first, *others = sorted(shares)
        ordered = [split.pieces[at] for at in (first, *others)]
        since = [each.since for each in ordered if isinstance(each, FilledUpload) and each.rewrite is not None]
        wish: dict[str, Any] = {"prepared": [shares[at].told for at in (first, *others)]}
        wish |= {"since": since} if since else {}
        wish |= {"fills": split.fills} if split.fills is not None else {}
        own, body = shares[first], msgspec.json.encode(wish)
        # A server of an earlier version does not know the other routes; it would not replace anything.
        step = "joint/rewrite" if since else "joint" if terms.overwrite is None else "joint/overwrite"
        route = f"/v1/tables/{quote(self._name(first.shard))}/{step}?{_query(doubt.token, terms)}"
        return self._ask_commit(own.replica, route, body, terms, deadline, doubt)

    def _ask_commit(
        self,
        replica: ReplicaInfo,
        route: str,
        body: bytes | pa.Buffer,
        terms: Terms,
        deadline: float,
        doubt: _Doubt,
    ) -> _Committed | None:
        """Send a request that commits; None as of `_commit`."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise doubt.end(terms.timeout_s)
        try:
            seconds = min(left, _attempt_s(terms))
            answer = self._http.request(replica.address, "POST", route, body, timeout_s=seconds, purpose="insert")
            return answer.decode(_Committed)
        except (AnswerLost, OutcomeUnknown) as error:
            doubt.is_open, doubt.last = True, error
        except ReplitreeError as error:
            is_final = not isinstance(error, Unavailable) or isinstance(
                error, TooFewReplicas | QuorumNotReached | TooManyParts
            )
            if is_final and not doubt.is_open:
                raise
            doubt.last = error
        return None

    # --- the shards ---------------------------------------------------------------------------------------------------

    def _name(self, shard: Shard) -> str:
        return shard_name(self._definition.name, shard)

    @property
    def definition(self) -> TableDefinition:
        """The sharded table."""
        return self._definition

    def inserter_of(self, shard: Shard) -> tuple[Router, TableInserter]:
        """Return what finds the replicas of a shard, and what fills uploads for it."""
        found = self._inserters.get(shard)
        if found is None:
            router = Router(self._catalog, self._name(shard))
            inserter = TableInserter(
                shard_definition(self._definition, shard), self._catalog, self._http, router, self._written(shard)
            )
            # Of two threads that make one at once either will do.
            found = self._inserters[shard] = (router, inserter)
        return found


def _content_of(filled: Mapping[Shard, FilledUpload]) -> str:
    """Return the token of an insert that has none: the same parts in the same shards have the same."""
    hashes = [manifest.content_hash for _, each in sorted(filled.items()) for manifest in each.manifests]
    return f"content-{joined_hash(hashes)}"


def _is_small(rows: pa.Table) -> bool:
    return bool(rows.num_rows <= REQUEST_ROWS_MAX and rows.nbytes <= REQUEST_BYTES_MAX)


def _stream_of(rows: pa.Table) -> pa.Buffer:
    """Return rows as the body of a request."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue()


def _text(token: str | SentBatch) -> str:
    return token.name if isinstance(token, SentBatch) else token


def _query(token: str | SentBatch, terms: Terms) -> str:
    named = token.said() if isinstance(token, SentBatch) else {"token": token}
    said = {**named, **({} if terms.quorum is None else terms.quorum.said())}
    said |= {} if terms.overwrite is None else {"overwrite": terms.overwrite}
    return urlencode(said, quote_via=quote, safe="")


def _attempt_s(terms: Terms) -> float:
    """Return how long one replica may be silent, in seconds."""
    return ATTEMPT_S_MAX if terms.quorum is None else max(ATTEMPT_S_MAX, terms.quorum.answered_s)
