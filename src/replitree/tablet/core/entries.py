"""The format of log entries.

==============  =========  =======================================================================================
entry           id         what it is
==============  =========  =======================================================================================
`LogEntry`      step n/0   one commit of the state machine, or a snapshot of it
`LogEntry`      step n/1   a *sync entry*: nothing but how far the log is confirmed; step n is the last one used
`ZeroEntry`     step 0/0   opens a generation: which entries of its predecessor count
==============  =========  =======================================================================================

The payload is MessagePack of an array, its first item the kind; new fields go to the end and have defaults.  The same entry
always gives the same bytes.  Around it lies an envelope (`envelope`).
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from replitree.decoding import msgpack_decoder
from replitree.tablet.core.envelope import BadEntry, seal, unseal
from replitree.tablet.group.ids import ENTRY, LOG, SYNC, BlobId, GenStep, Step

MASK_BITS = 64


class LogEntry(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """One commit.

    Attributes
    ----------
    snapshot
        The last snapshot that was confirmed when the entry was formed.
    confirmed
        All steps of this generation up to here were committed when the entry was formed; 0: none.
    depends_on
        The steps of this generation, not yet confirmed, without which this one does not count; each is smaller than its own.
    references
        Blobs that belong to it: stored before, or together with it.
    is_snapshot
        Its content takes the place of everything before it.
    is_total
        A snapshot that needs no earlier entry, not even one that is lost.
    gc_discovered, gc_left
        Blobs that it created and that are needed; blobs that are needed no longer once it is committed.
    body
        What the state machine wrote, when there are no references; never of a snapshot.
    metadata
        (key, value) pairs beside the body, such as who has a lease.
    """

    snapshot: GenStep
    confirmed: Step
    depends_on: tuple[Step, ...] = ()
    references: tuple[BlobId, ...] = ()
    is_snapshot: bool = False
    is_total: bool = False
    gc_discovered: tuple[BlobId, ...] = ()
    gc_left: tuple[BlobId, ...] = ()
    body: bytes = b""
    metadata: tuple[tuple[int, bytes], ...] = ()


class ZeroEntry(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The first entry of a generation.

    Attributes
    ----------
    snapshot
        The last snapshot among the entries that count; it is confirmed by this entry.
    predecessor
        The last generation that has entries that count, and its last step such that it and all before it count; 0:0 when there
        is no such generation.
    tail_steps
        How many steps after `predecessor` the mask speaks of; what comes after them never counts.
    tail_mask
        Bit i, the least significant of the first word first: whether step ``predecessor.step + 1 + i`` counts.
    """

    snapshot: GenStep
    predecessor: GenStep
    tail_steps: int = 0
    tail_mask: tuple[int, ...] = ()


Entry: TypeAlias = LogEntry | ZeroEntry

BODY_APART = 1 << 16
"""Bytes from which on a body is not copied into the entry before that is sealed: MessagePack's longest kind of bytes begins."""

_NO_BODY = msgspec.msgpack.encode(b"")
_BIN32, _BODY = 0xC6, struct.Struct(">BI")
"""The MessagePack header of a byte string of that length."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgpack_decoder(Entry)


def encode(blob: BlobId, entry: Entry) -> bytes:
    """Return the bytes that are stored for an entry under its id."""
    wrong = flaw(blob, entry)
    assert wrong is None, wrong
    if isinstance(entry, ZeroEntry) or len(entry.body) < BODY_APART:
        return seal(blob, _encoder.encode(entry))
    # In parts, so that a large body is copied once, not twice.
    after = _encoder.encode(entry.metadata)
    plain = _encoder.encode(msgspec.structs.replace(entry, body=b""))
    # The body is the last field but one: around an empty one stands everything else, byte for byte.
    before = plain[: len(plain) - len(after) - len(_NO_BODY)]
    return seal(blob, before, _BODY.pack(_BIN32, len(entry.body)), entry.body, after)


def decode(blob: BlobId, data: bytes) -> Entry:
    """Return the entry that was stored under an id.

    Raises
    ------
    BadEntry
        It is damaged, or contradicts itself.
    UnsupportedFormat
        A newer version wrote it.
    """
    payload = unseal(blob, data)
    try:
        entry: Entry = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise BadEntry(f"log entry {blob} can't be read: {error}") from error
    # Bytes that are whole and say what no leader writes are damage as well: a recovery must not build on them.
    wrong = flaw(blob, entry)
    if wrong is not None:
        raise BadEntry(f"log entry {blob}: {wrong}")
    return entry


def flaw(blob: BlobId, entry: Entry) -> str | None:
    """Return what an entry may not be under this id, or None."""
    if blob.channel != LOG or blob.cookie not in (ENTRY, SYNC):
        return "not the id of a log entry"
    if (blob.step == 0) != isinstance(entry, ZeroEntry):
        return "step 0, and no other, opens a generation"
    if isinstance(entry, ZeroEntry):
        return _flaw_of_zero(blob, entry)
    if blob.cookie != SYNC:
        return _flaw_of_entry(blob, entry)
    plain = LogEntry(entry.snapshot, entry.confirmed)
    if entry != plain or entry.confirmed != blob.step or entry.snapshot > blob.place:
        return "a sync entry that says more than how far the log is confirmed"
    return None


def _flaw_of_entry(blob: BlobId, entry: LogEntry) -> str | None:
    is_plain = not (entry.depends_on or entry.references or entry.is_snapshot or entry.is_total)
    if is_plain and entry.confirmed < blob.step and entry.snapshot < (blob.generation, blob.step):
        return None  # as nearly all are
    foreign = [each for each in entry.references if each.tablet == blob.tablet and each.channel == LOG]
    for is_wrong, what in (
        (entry.confirmed >= blob.step, "confirmed by itself"),
        (entry.snapshot >= blob.place, "a snapshot before itself"),
        (any(not 0 < step < blob.step for step in entry.depends_on), "depends on what comes later"),
        (entry.is_total and not entry.is_snapshot, "total, but no snapshot"),
        (bool(entry.body and entry.references), "a body and references"),
        (bool(entry.body and entry.is_snapshot), "a snapshot with a body"),
        (bool(foreign), "refers to the log"),
    ):
        if is_wrong:
            return what
    return None


def _flaw_of_zero(blob: BlobId, entry: ZeroEntry) -> str | None:
    words, last = len(entry.tail_mask), entry.tail_steps - 1
    for is_wrong, what in (
        (blob.cookie != ENTRY, "a sync entry of step 0"),
        (entry.predecessor.generation >= blob.generation, "its own predecessor"),
        (entry.snapshot.generation > entry.predecessor.generation, "a snapshot after the predecessor"),
        (entry.tail_steps < 0 or words != -(-entry.tail_steps // MASK_BITS), "a mask of another length"),
    ):
        if is_wrong:
            return what
    if entry.tail_steps and entry.tail_mask[-1] >> (last % MASK_BITS) != 1:
        return "a mask that does not end with a step that counts"
    return None
