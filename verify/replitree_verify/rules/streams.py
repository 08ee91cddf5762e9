"""What must hold of streams in every state: S1, S2 and S3.

The node of a stream is what the log says: it names the last insert of the stream that has not failed.  A stream that the table
forgets (a duty of the model) begins anew, so its earlier inserts bind no later one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import UNSET

from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.streams import NO_BATCH, StreamBatch, StreamValue, decode_stream
from replitree_verify.rules.quorum import failed_at, failed_between
from replitree_verify.world.history import Log

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def _covers(entry: GetEntry, batch: StreamBatch) -> bool:
    """Whether an insert is that of a batch, or of a later one of the same stream."""
    return entry.stream is not UNSET and entry.stream.stream == batch.stream and entry.stream.batch >= batch.batch


def repeats(entry: GetEntry, request: int, look: Look) -> bool:
    """Whether a request may be answered as a duplicate of an insert."""
    batch = look.model.batches.get(request)
    return look.model.tokens[request] in entry.blocks if batch is None else _covers(entry, batch)


def batches_are_inserted_once(look: Look) -> str | None:
    """S1: a batch of a query is in the log once, or again after its insert was given up."""
    seen: dict[StreamBatch, int] = {}
    for index, entry in look.log.inserts:
        if entry.stream is UNSET:
            continue
        first = seen.get(entry.stream)
        if first is not None and not failed_between(first, index, look.log) and not _forgets(look):
            batch = entry.stream
            return f"S1: batch {batch.batch} of stream {batch.stream} is in the log twice, at {first} and at {index}"
        seen[entry.stream] = index
    return None


def streams_name_their_last_inserts(look: Look) -> str | None:
    """S2: the last insert of a stream, unless it has failed, is the one that its node names, and a node names no other."""
    failed = failed_at(look.log)
    for stream, inserts in _inserts(look.log).items():
        value, (index, last) = _value(look.log, stream), inserts[-1]
        if value is None and not _forgets(look):
            return f"S2: the log has batches of stream {stream} at {[at for at, _ in inserts]}, and it has no node"
        if value is None or index in failed:
            continue
        if not _names(value, last):
            return (
                f"S2: stream {stream} stands at batch {value.batch} of {value.insert}, and {index} is its last insert"
            )
        # Those that had not failed when the last one came.
        good = [each.insert for at, each in inserts[:-1] if failed.get(at, index) >= index]
        before = value.before
        if before is not UNSET and before.batch != NO_BATCH and before.insert not in good[-1:]:
            return f"S2: {index} has moved stream {stream} from {before.insert}, and another insert came in between"
    for stream in look.log.streams:
        value = _value(look.log, stream)
        if value is not None and not any(value.insert == each.insert for _, each in _inserts(look.log).get(stream, ())):
            return f"S2: stream {stream} names the insert {value.insert}, which the log does not have"
    return None


def failed_batches_may_come_again(look: Look) -> str | None:
    """S3: when an insert of a stream is given up, the node names the last one before that did not fail.

    No later batch has come in between: then it would count as a duplicate when it is sent again.
    """
    failed = failed_at(look.log)
    for stream, inserts in () if _forgets(look) else _inserts(look.log).items():
        for (index, entry), (later, _) in pairwise(inserts):
            if later < failed.get(index, later):
                return f"S3: {later} was inserted into stream {stream} while {entry.insert}, which has failed since, was open"
    for stream, inserts in _inserts(look.log).items():
        value, good = _value(look.log, stream), [each for index, each in inserts if index not in failed]
        if value is None or inserts[-1][0] not in failed:
            continue
        if value.batch != NO_BATCH and not (good and _names(value, good[-1])) and not _forgets(look):
            return f"S3: {inserts[-1][0]} was given up, and stream {stream} stands at batch {value.batch} of {value.insert}"
    return None


OF_STREAMS = (batches_are_inserted_once, streams_name_their_last_inserts, failed_batches_may_come_again)
"""Looked at when the log gets an insert of a stream, or the end of a quorum."""


def _names(value: StreamValue, entry: GetEntry) -> bool:
    batch = entry.stream
    assert batch is not UNSET
    return (value.insert, value.query, value.batch) == (entry.insert, batch.query, batch.batch)


def _inserts(log: Log) -> dict[str, list[tuple[int, GetEntry]]]:
    found: dict[str, list[tuple[int, GetEntry]]] = {}
    for index, entry in log.inserts:
        if entry.stream is not UNSET:
            found.setdefault(entry.stream.stream, []).append((index, entry))
    return found


def _value(log: Log, stream: str) -> StreamValue | None:
    node = log.tree.get(layout.stream(log.table, layout.stream_id_of(stream)))
    return None if node is None else decode_stream(node.value, stream)


def _forgets(look: Look) -> bool:
    return any(duty.name in ("forget", "old-streams") for duty in look.model.duties)
