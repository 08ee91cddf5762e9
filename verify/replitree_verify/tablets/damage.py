"""Damage to what a member holds: a copy that can't be read, or that it can't even tell any more to have had."""

from __future__ import annotations

from dataclasses import replace

from replitree.tablet.group.ids import LOG, BlobId
from replitree.tablet.group.member import Holdings, without_blobs


def can_be_read(held: Holdings, blob: BlobId) -> bool:
    """Whether a member has a whole copy of a blob."""
    index = held.index(blob)
    return index is not None and held.data[index] is not None


def rotting(held: Holdings, *, has_zeros: bool) -> tuple[BlobId, ...]:
    """Return what may become unreadable: entries and what they refer to; zero entries only if asked for."""
    return tuple(
        blob
        for blob, data in zip(held.names, held.data, strict=True)
        if data is not None and (blob.step or (has_zeros and blob.channel == LOG))
    )


def with_hidden(held: Holdings, first: BlobId, last: BlobId) -> Holdings:
    """Return what is held when the frames of some blobs are so damaged that the member can't tell which blobs they were."""
    gone = (blob for blob in held.names if first <= blob <= last)
    return replace(without_blobs(held, gone), doubts=tuple(sorted({*held.doubts, (first, last)})))
