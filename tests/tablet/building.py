"""Short names for what tests of tablets are made of."""

from __future__ import annotations

from replitree.tablet.group.ids import BlobId, Channel, Cookie, Generation, GenStep, GroupId, Step, TabletId, log_entry

TABLET = TabletId(7)
GROUP = GroupId("g")


def entry_id(generation: int, step: int, cookie: int = 0) -> BlobId:
    """Name a log entry."""
    return log_entry(TABLET, Generation(generation), Step(step), Cookie(cookie))


def data_id(generation: int, step: int, cookie: int = 0, channel: int = 1) -> BlobId:
    """Name a blob of a data channel."""
    return BlobId(TABLET, Channel(channel), Generation(generation), Step(step), Cookie(cookie))


def at(generation: int, step: int) -> GenStep:
    """Name a place."""
    return GenStep(Generation(generation), Step(step))
