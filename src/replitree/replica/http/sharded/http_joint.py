"""Joint inserts over HTTP: prepare the rows of one shard, and commit those of all.

Every shard's rows, also those of the coordinator, are prepared by the same requests, so a client, or the tasks of a Spark job,
can send them all at once.  The commit carries no rows: what the replicas have answered goes to the coordinator as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec
import xxhash
from aiohttp import web

from replitree.errors import BadInput, ReadOnly, SchemaMismatch, TableNotFound
from replitree.protocol.core.effects import ClientAnswer, Duplicate, InDoubt, Inserted, MaybeInserted, NotInserted
from replitree.protocol.sharded.joint_insert import JointInserted
from replitree.protocol.sharded.places import shard_name, sharded_name
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.shard_map import SHARD_NUMBER_MAX, Shard
from replitree.replica.http.bodies import decode, is_quick
from replitree.replica.http.gate import Tables, seconds, shortened, whole_number
from replitree.replica.http.http_base import Handlers, json_response, read_body
from replitree.replica.http.http_insert import CommitBody, sealed_upload
from replitree.replica.http.http_merges import RewriteBody
from replitree.replica.http.insert_requests import InsertRequests, overwrite_of
from replitree.replica.http.received import read_whole
from replitree.replica.insert.group_commit import PendingInsert
from replitree.replica.insert.joint_groups import JointRows, Piece
from replitree.replica.insert.joint_inserts import JointCommit, joint_result, prepared_share
from replitree.replica.insert.prepared_rows import KEEP_S, KEEP_S_MAX
from replitree.replica.insert.quorums import Wish, wish_of
from replitree.replica.kit.payloads import Overwrite, Payload, StagedUpload
from replitree.replica.table.rewrites import RewriteWish
from replitree.replica.table.table_replica import TableReplica
from replitree.replica.uploads.upload_commits import UploadCommits
from replitree.wire.prepared_share import SHARDS_MAX, JointBody, decode_joint_body
from replitree.wire.sent_batch import SentBatch, sent_batch_of

T = TypeVar("T")

JOINT_THREADS = 8
"""Requests of joint inserts that are worked on at once: each waits for the disk, or for coordination."""


class JointHandlers(Handlers):
    """The handlers.

    Parameters
    ----------
    tables
        The server.
    inserts
        Has the limits of bodies.
    """

    def __init__(self, tables: Tables, inserts: InsertRequests) -> None:
        super().__init__(tables)
        self._inserts = inserts
        self._commits = UploadCommits()
        self._threads = ThreadPoolExecutor(JOINT_THREADS, "joint")

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/prepared", self._prepare_rows),
            web.post(f"{table}/uploads/{{upload}}/prepare", self._prepare_upload),
            web.post(f"{table}/rewrites/prepare", self._prepare_rewrite),
            web.post(f"{table}/prepared/{{staging}}", self._renew),
            web.delete(f"{table}/prepared/{{staging}}", self._give_up),
            web.get(f"{table}/prepared/{{staging}}/sum", self._sum),
            web.post(f"{table}/joint", self._commit),
            web.post(f"{table}/joint/overwrite", self._commit),
            web.post(f"{table}/joint/rewrite", self._commit),
            web.post(f"{table}/joint/rows", self._insert_rows),
        )

    def _shard(self, request: web.Request) -> TableReplica:
        """Return the shard that rows are for.

        Raises
        ------
        TableNotFound
            The client has split its rows for an earlier table of this name: another map may have the same version.
        """
        table, of = self._table(request), request.query.get("of", "")
        if of not in ("", table.definition.table_id):
            name = sharded_name(table.definition.name)
            raise TableNotFound(f"table {name!r} was dropped and created again: open it again; nothing was inserted")
        return table

    async def _in_thread(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do)

    # --- prepare ----------------------------------------------------------------------------------------------------------

    async def _prepare_rows(self, request: web.Request) -> web.Response:
        """Prepare the rows of an Arrow IPC stream."""
        query = request.query
        map_version, keep_s = _map_version(query), _keep_s(query)
        made = await self._rows(request, keep_s, coordinates=_coordinates(query))
        return _prepared(made, map_version, keep_s)

    async def _rows(self, request: web.Request, keep_s: float, *, coordinates: bool) -> Participant:
        """Prepare the rows of a request's body."""
        table, bodies, body = self._shard(request), self._inserts.bodies, await read_whole(request)
        extent = bodies.measure(body)
        await self._inserts.back_pressure(table)

        def prepare() -> Participant:
            rows = table.prepared_rows.taken(decode(body, extent), bodies.decoded_bytes_max)
            version = rows.definition.schema_version
            return table.prepared_rows.prepare(rows, version, keep_s, coordinates=coordinates)

        known = table.definition
        try:
            return await self._in_thread(prepare)
        except SchemaMismatch:
            # Another replica may have changed the columns a moment ago.
            if await asyncio.to_thread(table.definitions.refresh) is known:
                raise
            return await self._in_thread(prepare)

    async def _prepare_upload(self, request: web.Request) -> web.Response:
        """Prepare an upload; until it is given up, or its time is over, nothing else can commit it.

        A client whose answer was lost asks again, and gets the same one.
        """
        table, upload = self._shard(request), request.match_info["upload"]
        body = await read_body(request, CommitBody)

        def sealed() -> tuple[Payload, int]:
            payload = StagedUpload(sealed_upload(table, upload, body), body.manifests)
            return payload, table.inserts.version_of(body.manifests)

        return await self._prepare_files(request, table, upload, sealed)

    async def _prepare_rewrite(self, request: web.Request) -> web.Response:
        """Prepare what a client has made of parts of this shard, as `_prepare_upload`."""
        table, body = self._shard(request), await read_body(request, RewriteBody)
        wish = RewriteWish(body.upload, body.id, body.schema_version, body.results, body.inserts, None, body.tags)
        return await self._prepare_files(
            request, table, body.upload, lambda: (table.rewrites.sealed(wish), body.schema_version)
        )

    async def _prepare_files(
        self, request: web.Request, table: TableReplica, upload: str, sealed: Callable[[], tuple[Payload, int]]
    ) -> web.Response:
        """Prepare the files of an upload, which `sealed` verifies; it gives the version of their columns, too."""
        query = request.query
        map_version, keep_s = _map_version(query), _keep_s(query)

        def prepare() -> Participant:
            held = table.prepared_rows.of_upload(upload, keep_s)
            if held is not None:
                return held
            # The upload stays known, and is not removed, as long as what was made of it is held.
            beside: AbstractContextManager[object] = table.uploads.committing(upload)
            with table.uploads.committing(upload):
                payload, version = sealed()
                return table.prepared_rows.prepare(
                    payload,
                    version,
                    keep_s,
                    coordinates=_coordinates(query),
                    beside=beside,
                    moves=query.get("moves") == "1",
                )

        return _prepared(await self._in_thread(prepare), map_version, keep_s)

    async def _renew(self, request: web.Request) -> web.Response:
        """Keep what was prepared for some seconds more."""
        table, keep_s = self._table(request), _keep_s(request.query)
        table.prepared_rows.renew(request.match_info["staging"], keep_s)
        return json_response({"keep_s": keep_s})

    async def _give_up(self, request: web.Request) -> web.Response:
        """Give up what was prepared, now."""
        table, staging = self._table(request), request.match_info["staging"]
        became = await self._in_thread(lambda: table.prepared_rows.give_up(staging))
        return json_response({"outcome": became.value})

    async def _sum(self, request: web.Request) -> web.Response:
        """Say how many rows were prepared, and their sum, as the files have them."""
        table, staging = self._table(request), request.match_info["staging"]
        found = await self._in_thread(lambda: table.prepared_rows.sum_of(staging))
        return json_response({"rows": found.rows, "content": found.content})

    # --- commit -----------------------------------------------------------------------------------------------------------

    async def _commit(self, request: web.Request) -> web.Response:
        """Commit once, however often it is requested; a repeated request gets the answer of the first one."""
        table, token, wish = self._table(request), _named(request.query), wish_of(request.query)
        overwrite = overwrite_of(request.query.get("overwrite", ""))
        raw = await read_whole(request)
        body = decode_joint_body(raw)
        patience_s = 0.0 if wish is None else wish.patience_s
        key = (
            table.definition.table_id,
            xxhash.xxh3_128_hexdigest(b"\0".join((raw, repr((token, wish, overwrite)).encode()))),
        )

        async def commit() -> dict[str, object]:
            return await self._committed(table, body, token, wish, overwrite)

        async with self._inserts.in_time(_text(token), patience_s):
            return json_response(await self._commits.once(key, commit))

    async def _insert_rows(self, request: web.Request) -> web.Response:
        """Insert rows whose shards this server has: prepare them here and commit them, in one request."""
        table, token, wish = self._table(request), _named(request.query), wish_of(request.query)
        map_version = _map_version(request.query)
        if "overwrite" in request.query:
            raise BadInput("rows that take the place of others are prepared shard by shard, then committed")
        if wish is None and isinstance(token, str):
            return json_response(await self._grouped(request, token, map_version))
        if "shards" in request.query:
            raise BadInput("a batch, or an insert with a quorum, into several shards is prepared shard by shard")
        own = prepared_share(await self._rows(request, KEEP_S, coordinates=True), map_version)

        async def commit() -> dict[str, object]:
            try:
                return await self._committed(table, JointBody((own,)), token, wish)
            finally:
                # Nothing if the outcome has dealt with the rows: a client that tries again sends them again.
                await self._in_thread(lambda: table.prepared_rows.give_up(own.staging))

        async with self._inserts.in_time(_text(token), 0.0 if wish is None else wish.patience_s):
            # The commit goes on when its client does not wait any longer.
            return json_response(await self._commits.once((table.definition.table_id, own.staging), commit))

    async def _grouped(self, request: web.Request, token: str, map_version: int) -> dict[str, object]:
        """Insert the rows of a request's body together with those that others send at the same time."""
        table, bodies, mailbox = self._shard(request), self._inserts.bodies, self._inserts.mailbox
        shards = self._shards(table, request.query.get("shards", ""))
        body = await read_whole(request)
        extent = bodies.measure(body)
        for each, _ in shards:
            await self._inserts.back_pressure(each)
        waiter, began = mailbox.expect(), asyncio.get_running_loop().time()

        def take() -> PendingInsert:
            rows, pieces = decode(body, extent), list[Piece]()
            begin, counts = 0, [rows.num_rows if count is None else count for _, count in shards]
            if sum(counts) != rows.num_rows:
                raise BadInput(f"the shards have {sum(counts):,} rows, and the body has {rows.num_rows:,}")
            for (each, _), count in zip(shards, counts, strict=True):
                holder = each.prepared_rows
                pieces.append((holder, holder.taken(rows.slice(begin, count), bodies.decoded_bytes_max)))
                begin += count
            return table.joint_groups.submit(tuple(pieces), token, map_version, waiter.deliver)

        known = [each.definition for each, _ in shards]
        try:
            # A thread for few rows would cost more.
            quick = is_quick(extent, len(known[0].columns))
            pending = take() if quick else await self._in_thread(take)
        except SchemaMismatch:
            # Another replica may have changed the columns a moment ago.
            if [await asyncio.to_thread(each.definitions.refresh) for each, _ in shards] == known:
                raise
            pending = await self._in_thread(take)
        async with self._inserts.in_time(token):
            await waiter.answer
        asked: JointRows = pending.payload
        committed = asked.result()
        table.meter.answered(_answer(committed), committed.rows, asyncio.get_running_loop().time() - began)
        return joint_result(committed, table.replica, token)

    def _shards(self, first: TableReplica, text: str) -> list[tuple[TableReplica, int | None]]:
        """Return the shards that rows are of, and how many each has; None: all.

        Raises
        ------
        ReadOnly
            This server does not have one of them.
        BadInput
            The text says nothing of the kind.
        """
        if not text:
            return [(first, None)]
        found, name = list[tuple[TableReplica, int | None]](), sharded_name(first.definition.name)
        for each in text.split(","):
            number, _, rows = each.partition(":")
            shard, count = whole_number(number), whole_number(rows)
            if shard is None or shard > SHARD_NUMBER_MAX or not count or len(found) == SHARDS_MAX:
                raise BadInput(
                    f"shards={shortened(text)!r}: say the number of each shard, a colon, and how many rows it has"
                )
            try:
                found.append((self._tables.table(shard_name(name, Shard(shard))), count))
            except TableNotFound as error:
                raise ReadOnly(
                    f"this server does not have all shards of the insert ({error}); nothing was inserted"
                ) from error
        if found[0][0] is not first or len({id(table) for table, _ in found}) < len(found):
            raise BadInput("the shard that is asked comes first, and each shard once")
        return found

    async def _committed(
        self,
        table: TableReplica,
        body: JointBody,
        token: str | SentBatch,
        wish: Wish | None,
        overwrite: Overwrite = Overwrite.NOTHING,
    ) -> dict[str, object]:
        """Commit a joint insert, and wait for its quorum."""
        loop, waiter = asyncio.get_running_loop(), self._inserts.mailbox.expect()
        began = loop.time()
        committed = await self._in_thread(
            lambda: table.joint_inserts.commit(body, token, wish, waiter.deliver, overwrite)
        )
        answer = None if committed.pending is None else await waiter.answer
        table.meter.answered(answer or _answer(committed), committed.rows, loop.time() - began)
        return joint_result(committed, table.replica, _text(token), answer)


def _keep_s(query: Mapping[str, str]) -> float:
    keep_s = seconds(query, "keep_s", KEEP_S, KEEP_S_MAX)
    if not keep_s:
        raise BadInput("keep_s=0: say for how many seconds what was prepared is kept")
    return keep_s


def _named(query: Mapping[str, str]) -> str | SentBatch:
    """Return what names the whole insert: a token, or the batch of a stream that it is."""
    batch, token = sent_batch_of(query), query.get("token", "")
    if batch is None and not token:
        raise BadInput("a joint insert needs a token: it stands for the whole insert, whichever shards get its rows")
    return token if batch is None else batch


def _text(token: str | SentBatch) -> str:
    return token.name if isinstance(token, SentBatch) else token


def _map_version(query: Mapping[str, str]) -> int:
    """Return the version of the map by which rows were split.  All shares of an insert must have the same."""
    text = query.get("map_version", "")
    found = whole_number(text)
    if found is None:
        raise BadInput(f"map_version={shortened(text)!r}: say by which version of the map the rows were split")
    return found


def _coordinates(query: Mapping[str, str]) -> bool:
    return query.get("coordinates") == "true"


def _prepared(made: Participant, map_version: int, keep_s: float) -> web.Response:
    share = prepared_share(made, map_version)
    return json_response({**msgspec.to_builtins(share), "rows": share.rows, "keep_s": keep_s})


def _answer(committed: JointCommit) -> ClientAnswer:
    """Return what the metrics count: an outcome that is no answer of an insert counts as nothing inserted."""
    match committed.outcome:
        case JointInserted(written=written, is_duplicate=is_duplicate):
            index = written[0][1] if written else None
            return Duplicate(index) if is_duplicate or index is None else Inserted(index)
        case InDoubt():
            return MaybeInserted()
        case NotInserted() as refused:
            return refused
    return NotInserted("a joint insert did not take place")


__all__ = ["JointHandlers"]
