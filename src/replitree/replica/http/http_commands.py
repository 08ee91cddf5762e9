"""Commands over HTTP: mutate, drop, alter, set storage, keep, feed, tag, consume, views, optimize, detach, freeze.

A command is answered when this replica has executed it, or when `wait_s` is over: then the answer says that it is in the log
and not finished yet.  What went into the log is never called failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import msgspec
from aiohttp import web

from replitree.errors import BadInput, ReplicaBehind, ReplicaUnavailable
from replitree.protocol.core.effects import EntryId, LogIndex
from replitree.protocol.core.parts import Part
from replitree.protocol.upkeep.consumers import HOLD_BYTES_MAX, HOLD_S
from replitree.replica.http.gate import DIGITS_MAX, WAIT_S_DEFAULT, number, seconds, shortened, wait_until, whole_number
from replitree.replica.http.http_base import Handlers, json_response, read_body
from replitree.replica.http.snapshot_requests import version_here
from replitree.replica.parts.became import merge_outcome, mutations, outcome_of
from replitree.replica.parts.commands import Appended, DropWish, MutationWish, ScopeThere
from replitree.replica.parts.merges import OptimizeWish
from replitree.replica.table.consuming import ConsumerWish
from replitree.replica.table.table_replica import TableReplica
from replitree.replica.table.views import ViewWish

LOOK_AGAIN_S = 0.1
"""How long an optimize waits for parts that are busy before it looks again."""

FREEZE_LEASE_S = 600.0


_Block = Annotated[int, msgspec.Meta(gt=-(10**DIGITS_MAX), lt=10**DIGITS_MAX)]


class MutationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a mutation: a statement, or its pieces; `scopes`: by the name of the shard, what its replica has found."""

    sql: str | None = None
    kind: str | None = None
    where: str | None = None
    assignments: tuple[tuple[str, str], ...] = ()
    partition: str | None = None
    id: str | None = None
    scopes: dict[str, ScopeThere] = {}


class DropBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a drop."""

    partition: str | None = None
    blocks: tuple[_Block, _Block] | None = None
    all: bool = False
    detach: bool = False
    id: str | None = None


class AlterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an alter."""

    sql: str
    id: str | None = None


class StorageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a change of storage."""

    storage: str
    id: str | None = None


class KeepBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a change of the retention; "": as each replica's own setting says."""

    keep: str
    id: str | None = None


class SetFeedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a change of how long the change feed is kept; "": it is off."""

    feed: str
    id: str | None = None


class TtlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a change of when rows are removed; "": never."""

    ttl: str
    id: str | None = None


class BloomBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a change of the columns that have Bloom filters."""

    columns: tuple[str, ...]
    id: str | None = None


class OptimizeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of an optimize."""

    partition: str | None = None
    final: bool = False


class FreezeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a freeze; `index`: what the table was there, instead of now."""

    name: str
    note: str = ""
    index: int | None = None


class TagBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a tag: its name, the id of the command, and the version; the table after `min_index` and now without one."""

    name: str
    id: str
    as_of: int | None = None
    min_index: int = 0


class ConsumerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a consumer: its name, the id of the command, where it begins, and its limits in seconds and bytes.

    It is made where the log below `min_index` is executed.
    """

    name: str
    id: str
    index: int
    min_index: int = 0
    snapshot: bool = False
    hold_s: float = HOLD_S
    bytes_max: int = HOLD_BYTES_MAX


class MovedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a move of a consumer: everything below the index was read."""

    index: int


class ViewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a creation; `backfill`: whether the rows that the source has already come, too."""

    name: str
    target: str
    select: dict[str, str]
    where: str = ""
    group_by: tuple[str, ...] = ()
    backfill: bool = True
    id: str | None = None


class DropViewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a drop."""

    id: str | None = None


class CommandHandlers(Handlers):
    """The handlers."""

    def routes(self) -> tuple[web.RouteDef, ...]:
        """Return the routes."""
        table = "/v1/tables/{table}"
        return (
            web.post(f"{table}/mutations", self._mutate),
            web.get(f"{table}/commands/{{index}}", self._command),
            web.get(f"{table}/shards/commands/{{id}}", self._in_shards),
            web.post(f"{table}/shards/scope", self._scope),
            web.get(f"{table}/mutations", self._mutations),
            web.delete(f"{table}/mutations/{{index}}", self._kill),
            web.post(f"{table}/drop", self._drop),
            web.post(f"{table}/alter", self._alter),
            web.post(f"{table}/storage", self._set_storage),
            web.post(f"{table}/keep", self._set_keep),
            web.post(f"{table}/feed", self._set_feed),
            web.post(f"{table}/ttl", self._set_ttl),
            web.post(f"{table}/ttl/plan", self._plan_ttl),
            web.post(f"{table}/bloom", self._set_bloom),
            web.post(f"{table}/optimize", self._optimize),
            web.post(f"{table}/merges/{{wish:pause|resume}}", self._pause_or_resume),
            web.post(f"{table}/tags", self._tag),
            web.delete(f"{table}/tags/{{name}}", self._delete_tag),
            web.post(f"{table}/consumers", self._make_consumer),
            web.put(f"{table}/consumers/{{name}}", self._move_consumer),
            web.delete(f"{table}/consumers/{{name}}", self._drop_consumer),
            web.post(f"{table}/views", self._create_view),
            web.post(f"{table}/views/{{name}}/drop", self._drop_view),
            web.post(f"{table}/views/{{name}}/backfill", self._fill_view),
            web.get(f"{table}/streams", self._streams),
            web.delete(f"{table}/streams/{{stream}}", self._forget_stream),
            web.get(f"{table}/detached", self._detached),
            web.get(f"{table}/detached/{{name}}/rows", self._detached_rows),
            web.delete(f"{table}/{{kind:detached|frozen}}/{{name}}", self._remove),
            web.post(f"{table}/freeze", self._freeze),
            web.get(f"{table}/frozen", self._frozen),
        )

    # --- entries of the log ---

    async def _mutate(self, request: web.Request) -> web.Response:
        """Append a DELETE or UPDATE to the log, and wait until it is done."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, MutationBody)
        wish = MutationWish(body.sql, body.kind, body.where, body.assignments, body.partition)
        appended = await asyncio.to_thread(table.commands.mutate, wish, body.id, body.scopes)
        return json_response(await _became(table, appended, wait_s))

    async def _drop(self, request: web.Request) -> web.Response:
        """Drop or detach a partition, the blocks of some inserts, or everything."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, DropBody)
        wish = DropWish(body.partition, body.blocks, body.all, body.detach)
        # A drop keeps aside the parts that this replica has, so all of them must be here first.
        if body.detach:
            end = await table.end_of_log.ask(table.context.config.session_timeout_s)
            if not await wait_until(table, lambda: table.progress.index >= end, wait_s):
                raise ReplicaUnavailable(
                    f"nothing was dropped: replica {table.replica.name} has executed the log up to {table.progress.index}, not "
                    f"yet to {end}, and it keeps aside only what it has; wait longer or ask another replica"
                )
        appended = await asyncio.to_thread(table.commands.drop, wish, body.id)
        return json_response(await _became(table, appended, wait_s))

    async def _alter(self, request: web.Request) -> web.Response:
        """Change the columns."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, AlterBody)
        appended, version = await asyncio.to_thread(table.commands.alter, body.sql, body.id)
        return json_response({**await _became(table, appended, wait_s), "schema_version": version})

    async def _set_storage(self, request: web.Request) -> web.Response:
        """Change the storage policy."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, StorageBody)
        appended, definition = await asyncio.to_thread(table.commands.set_storage, body.storage, body.id)
        return json_response({**await _became(table, appended, wait_s), "storage": definition.storage})

    async def _set_keep(self, request: web.Request) -> web.Response:
        """Change for how long parts stay that have left the table."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, KeepBody)
        appended, _ = await asyncio.to_thread(table.commands.set_keep, body.keep, body.id)
        return json_response(await _became(table, appended, wait_s))

    async def _set_feed(self, request: web.Request) -> web.Response:
        """Change for how long the change feed is kept."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, SetFeedBody)
        appended, _ = await asyncio.to_thread(table.commands.set_feed, body.feed, body.id)
        return json_response(await _became(table, appended, wait_s))

    async def _set_ttl(self, request: web.Request) -> web.Response:
        """Change when rows are removed."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, TtlBody)
        appended, _ = await asyncio.to_thread(table.commands.set_ttl, body.ttl, body.id)
        return json_response(await _became(table, appended, wait_s))

    async def _plan_ttl(self, request: web.Request) -> web.Response:
        """Say what would be removed now by a `ttl`."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, TtlBody)
        end = await table.end_of_log.ask(table.context.config.session_timeout_s)
        if not await wait_until(table, lambda: table.progress.index >= end, wait_s):
            raise ReplicaUnavailable(
                f"replica {table.replica.name} has executed the log up to {table.progress.index}, not yet to {end}; ask another"
                " replica"
            )
        plan = await asyncio.to_thread(table.expiry.plan, body.ttl)
        return json_response(plan.summary())

    async def _set_bloom(self, request: web.Request) -> web.Response:
        """Change the columns that have Bloom filters."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, BloomBody)
        appended, _ = await asyncio.to_thread(table.commands.set_bloom, body.columns, body.id)
        return json_response(await _became(table, appended, wait_s))

    async def _command(self, request: web.Request) -> web.Response:
        """Say what became of the command at an index, when it is executed here or the time is up."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        return json_response(await _outcome(table, _index_of(request, "a command"), wait_s))

    async def _in_shards(self, request: web.Request) -> web.Response:
        """Say where the command with an id is in the log of each shard."""
        table, command = self._table(request), EntryId(request.match_info["id"])
        return json_response({"shards": await asyncio.to_thread(table.commands.in_shards, command)})

    async def _scope(self, request: web.Request) -> web.Response:
        """Say which partitions of this shard a mutation concerns; nothing: all."""
        table = self._table(request)
        body = await read_body(request, MutationBody)
        wish = MutationWish(body.sql, body.kind, body.where, body.assignments, body.partition)
        found = await asyncio.to_thread(table.commands.scope, wish)
        return json_response({} if found is None else {"scope": msgspec.to_builtins(found)})

    async def _kill(self, request: web.Request) -> web.Response:
        """Give a mutation up: parts that it has not reached stay as they are."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        index = _index_of(request, "a mutation: `replitree table mutations` lists them")
        # Another replica may have put it into the log a moment ago.
        if index < await table.end_of_log.ask(table.context.config.session_timeout_s):
            await wait_until(table, lambda: table.progress.index > index, wait_s)
        killed = await asyncio.to_thread(table.commands.kill, index)
        finished = await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
        return json_response({"index": index, "killed": killed, "finished": finished})

    async def _mutations(self, request: web.Request) -> web.Response:
        """List the mutations that are under way."""
        progress = self._table(request).progress

        def is_held(part: Part) -> bool:
            return progress.held.covering(part) is not None

        return json_response({"mutations": await asyncio.to_thread(mutations, progress, is_held)})

    # --- tags ---

    async def _tag(self, request: web.Request) -> web.Response:
        """Give a version of the table a name that keeps its parts."""
        table, wait_s = self._table(request), request.query.get("wait_s", str(WAIT_S_DEFAULT))
        body = await read_body(request, TagBody)
        wanted = {"level": "linearizable", "min_index": str(body.min_index)}
        asked = wanted if body.as_of is None else {"as_of": str(body.as_of)}
        index = await version_here(table, {**asked, "wait_s": wait_s})
        tag = await asyncio.to_thread(table.tagging.make, body.name, index, EntryId(body.id))
        return json_response({"index": tag.index})

    async def _delete_tag(self, request: web.Request) -> web.Response:
        """Delete a tag."""
        deleted = await asyncio.to_thread(self._table(request).tagging.delete, request.match_info["name"])
        return json_response({"deleted": deleted})

    # --- consumers ---

    async def _make_consumer(self, request: web.Request) -> web.Response:
        """Create a consumer of the change feed."""
        table, wait_s = self._table(request), request.query.get("wait_s", str(WAIT_S_DEFAULT))
        body = await read_body(request, ConsumerBody)
        if body.index < 0 or body.hold_s <= 0 or body.bytes_max <= 0:
            raise BadInput("a consumer begins at an index of the log, 0 or above, and its limits are above 0")
        await version_here(table, {"as_of": str(max(body.index, body.min_index)), "wait_s": wait_s})
        index = LogIndex(body.index)
        wish = ConsumerWish(body.name, EntryId(body.id), index, body.snapshot, body.hold_s, body.bytes_max)
        made = await asyncio.to_thread(table.consuming.make, wish)
        return json_response({"index": made.index})

    async def _move_consumer(self, request: web.Request) -> web.Response:
        """Move a consumer to a later position."""
        table, name = self._table(request), request.match_info["name"]
        body = await read_body(request, MovedBody)
        # What this replica has pulled is certainly in the log; otherwise the log's end is asked for.
        if body.index > table.progress.index:
            end = await table.end_of_log.ask(table.context.config.session_timeout_s)
            if body.index > end:
                raise BadInput(f"consumer {name} was not moved to {body.index}: the log ends at {end}")
        moved = await asyncio.to_thread(table.consuming.move, name, LogIndex(body.index))
        return json_response({"index": moved.index})

    async def _drop_consumer(self, request: web.Request) -> web.Response:
        """Drop a consumer: the feed keeps nothing for it any more."""
        dropped = await asyncio.to_thread(self._table(request).consuming.drop, request.match_info["name"])
        return json_response({"dropped": dropped})

    # --- materialised views ---

    async def _create_view(self, request: web.Request) -> web.Response:
        """Create a materialised view of the table."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, ViewBody)
        wish = ViewWish(body.name, body.target, body.select, body.where, body.group_by, body.backfill)
        wanted, index = await asyncio.to_thread(table.views.create, wish, body.id)
        return json_response({"id": wanted, **await _outcome(table, index, wait_s)})

    async def _drop_view(self, request: web.Request) -> web.Response:
        """Drop a materialised view."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, DropViewBody)
        wanted, index = await asyncio.to_thread(table.views.drop, request.match_info["name"], body.id)
        return json_response({"id": wanted, **await _outcome(table, index, wait_s)})

    async def _fill_view(self, request: web.Request) -> web.Response:
        """Fill a view's target with the rows from before the view."""
        table, name = self._table(request), request.match_info["name"]
        wait_s = request.query.get("wait_s", str(WAIT_S_DEFAULT))
        created = await asyncio.to_thread(table.views.created_at, name)
        if created is None:
            return json_response({"outcome": "duplicate", "index": None, "rows": 0})
        await version_here(table, {"as_of": str(created), "wait_s": wait_s})
        return json_response(await asyncio.to_thread(table.views.fill, name, created))

    # --- streams ---

    async def _streams(self, request: web.Request) -> web.Response:
        """List the streams of the table, with the last batch of each."""
        return json_response({"streams": await asyncio.to_thread(self._table(request).streams.all)})

    async def _forget_stream(self, request: web.Request) -> web.Response:
        """Forget a stream: its next batch is a new one."""
        forgotten = await asyncio.to_thread(self._table(request).streams.forget, request.match_info["stream"])
        return json_response({"forgotten": forgotten})

    # --- merges ---

    async def _optimize(self, request: web.Request) -> web.Response:
        """Propose merges, wait for them, and look again while parts are busy with something else."""
        table, wait_s = self._table(request), seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        body = await read_body(request, OptimizeBody)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        end = await table.end_of_log.ask(table.context.config.session_timeout_s)
        await wait_until(table, lambda: table.progress.index >= end, wait_s)
        wish = OptimizeWish(body.partition, body.final, end)
        indexes: tuple[LogIndex, ...] = ()
        is_executed = table.progress.is_executed
        while True:
            indexes += await asyncio.to_thread(table.commands.optimize, wish)
            left_s = max(0.0, deadline - loop.time())
            finished = await wait_until(table, lambda: all(map(is_executed, indexes)), left_s)  # noqa: B023 - called at once
            merges = [merge_outcome(table.progress, index) for index in indexes]
            # Others changed the parts of these before they were merged.
            late = sorted(_partitions(merge for merge in merges if merge["applied"] is False))
            made = [merge for merge in merges if merge["applied"] is not False]
            indexes = tuple(
                index for index, merge in zip(indexes, merges, strict=True) if merge["applied"] is not False
            )
            wish = replace(wish, done=_partitions(merge for merge in made if merge["applied"]))
            busy = await asyncio.to_thread(table.merges.busy, wish)
            if not (busy or late) or loop.time() >= deadline:
                break
            await asyncio.sleep(LOOK_AGAIN_S)
        # Why not everything is merged; the client hears the first reason.
        name, place, partition = table.replica.table.name, table.progress.place, body.partition
        reasons: list[str] = []
        if not finished and table.maker.is_paused:
            reasons.append(f"merges are paused on {table.replica.name}: `replitree table resume-merges {name}`")
        reasons += [str(merge["reason"]) for merge in made if merge["reason"]]
        reasons += [f"parts of partition {each} are busy" for each in sorted(busy)]
        reasons += [f"others changed the parts of partition {each} before they were merged" for each in late]
        if not made and partition is not None and place is not None and not place.parts.in_partition(partition):
            reasons.append(f"it has no partition {partition!r}; `replitree table partitions` lists them")
        reason, is_all = reasons[0] if reasons else "", finished and not (busy or late)
        return json_response({"merges": made, "finished": is_all, "reason": reason})

    async def _pause_or_resume(self, request: web.Request) -> web.Response:
        """Stop or start merges of this table on this replica."""
        paused = request.match_info["wish"] == "pause"
        self._table(request).pause_merges(paused=paused)
        return json_response({"merges_paused": paused})

    # --- on this disk ---

    async def _detached(self, request: web.Request) -> web.Response:
        """List the parts that this replica keeps aside."""
        found = await asyncio.to_thread(self._table(request).store.attachable)
        rows = [
            {
                "name": each.name,
                "part": each.part,
                "partition": each.manifest.partition,
                "rows": each.rows,
                "bytes": each.bytes,
            }
            for each in found
        ]
        return json_response({"detached": rows})

    async def _detached_rows(self, request: web.Request) -> web.Response:
        """Return the rows of a detached part as an Arrow IPC stream."""
        import pyarrow as pa

        rows = await asyncio.to_thread(self._table(request).commands.detached_rows, request.match_info["name"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return web.Response(body=sink.getvalue().to_pybytes(), content_type="application/vnd.apache.arrow.stream")

    async def _freeze(self, request: web.Request) -> web.Response:
        """Keep the parts of the table as they are now, as hard links on this disk."""
        table, wanted = self._table(request), number(request.query, "min_index", 0)
        body = await read_body(request, FreezeBody)
        wait_s = seconds(request.query, "wait_s", WAIT_S_DEFAULT)
        if not await wait_until(table, lambda: table.progress.index >= wanted, wait_s):
            raise ReplicaBehind(
                f"replica {table.replica.name} has executed the log up to {table.progress.index}, and what is to be frozen goes"
                f" up to {wanted}: nothing was frozen; allow more time, or freeze at another replica"
            )
        return json_response(await asyncio.to_thread(_freeze, table, body))

    async def _frozen(self, request: web.Request) -> web.Response:
        """List the frozen snapshots on this disk."""
        table = self._table(request)
        rows = await asyncio.to_thread(lambda: [_frozen_row(table, name) for name in table.store.frozen()])
        return json_response({"frozen": rows})

    async def _remove(self, request: web.Request) -> web.Response:
        """Delete a detached part, or a frozen snapshot."""
        store = self._table(request).store
        remove = store.remove_detached if request.match_info["kind"] == "detached" else store.remove_frozen
        await asyncio.to_thread(remove, request.match_info["name"])
        return json_response({})


def _index_of(request: web.Request, what: str) -> LogIndex:
    found = whole_number(request.match_info["index"])
    if found is None:
        raise BadInput(f"{shortened(request.match_info['index'])!r} is not the index of {what}")
    return LogIndex(found)


async def _became(table: TableReplica, appended: Appended, wait_s: float) -> dict[str, object]:
    """Say what became of a command, as `_outcome`; of a shard also where it is in the others."""
    answer = {"id": appended.id, **await _outcome(table, appended.index, wait_s)}
    if appended.shards:
        answer["shards"] = appended.shards
    return answer


async def _outcome(table: TableReplica, index: LogIndex, wait_s: float) -> dict[str, object]:
    """Wait until a command is executed here, and say what became of it."""
    await wait_until(table, lambda: table.progress.is_executed(index), wait_s)
    return outcome_of(table.progress, index)


def _partitions(merges: Iterable[dict[str, object]]) -> frozenset[str]:
    """Return the partitions of merges, as far as it is remembered which they are of: of thousands, only of the last."""
    return frozenset(str(merge["partition"]) for merge in merges if "partition" in merge)


def _freeze(table: TableReplica, body: FreezeBody) -> dict[str, object]:
    """Link the parts of a snapshot; a lease keeps them meanwhile."""
    taken = table.snapshots.take(None if body.index is None else LogIndex(body.index), FREEZE_LEASE_S)
    assert taken.lease is not None
    try:
        table.store.freeze(taken.parts, body.name, table.definition, taken.index, body.note)
    finally:
        table.old_parts.release(taken.lease)
    return _frozen_row(table, body.name)


def _frozen_row(table: TableReplica, name: str) -> dict[str, object]:
    snapshot = table.store.frozen_snapshot(name)
    return {
        "name": name,
        "index": snapshot.index,
        "note": snapshot.note,
        "parts": len(snapshot.parts),
        "rows": sum(part.rows for part in snapshot.parts),
        "bytes": sum(part.bytes for part in snapshot.parts),
        "path": str(table.store.frozen_path(name)),
    }
