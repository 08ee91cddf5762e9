"""Parsing of what a server says about itself, for the commands that show or judge it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from replitree.decoding import converted
from replitree.errors import NotAuthorized

T = TypeVar("T")


class PostponedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a queue that could not be executed yet.

    Attributes
    ----------
    index, reason
        Which, and why.
    tries, since_s
        How often it was tried, and for how many seconds.
    is_told
        It waits for another replica, and is tried again as soon as that one is done.
    """

    index: int
    reason: str = ""
    tries: int = 0
    since_s: float | None = None
    is_told: bool = False


class MoveWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """A part that could not be moved yet: why, and how often it was tried."""

    part: str
    reason: str = ""
    tries: int = 0


class MoveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replica is with moving parts between its disk and an object store.

    Attributes
    ----------
    storage
        The policy that it works by.
    problem
        Why it can't; empty: it can.
    parts_left, bytes_left
        Parts that are not where they belong.
    running, waiting
        What is moved now, and what could not be moved yet.
    """

    storage: str
    problem: str = ""
    parts_left: int = 0
    bytes_left: int = 0
    running: tuple[str, ...] = ()
    waiting: tuple[MoveWaiting, ...] = ()


class ExpiryRound(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica found at its last look for rows whose time is over, and removed.

    Attributes
    ----------
    at, bound
        When it looked, and the moment before which rows went, both in UTC.
    where
        The condition of a row that went.
    partitions, partitions_dropped
        Some of the partitions that were dropped, and how many were.
    parts_touched
        How many parts of other partitions could have rows that were deleted.
    index
        Where the last command is in the log; None: nothing was to be removed.
    """

    at: str
    bound: str
    where: str = ""
    partitions: tuple[str, ...] = ()
    partitions_dropped: int = 0
    parts_touched: int = 0
    index: int | None = None


class ExpiryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of the rows that it removes because their time is over.

    Attributes
    ----------
    ttl
        When rows are removed.
    reason
        Why it removes none now; empty: it does.
    interval_s
        Seconds from one removal to the next; 0: it never removes any.
    last
        What it found last; None: it has not looked since it began.
    """

    ttl: str
    reason: str = ""
    interval_s: int = 0
    last: ExpiryRound | None = None


def check_token(heard: Sequence[object]) -> None:
    """Raise when all servers that answered refused the token: then their state is unknown, and not that they are down.

    Parameters
    ----------
    heard
        What each server that was reached answered, or the error that it answered with.

    Raises
    ------
    NotAuthorized
        All of them refused it.
    """
    refused = [each for each in heard if isinstance(each, NotAuthorized)]
    if refused and len(refused) == len(heard):
        raise refused[0]


def piece(value: object, kind: type[T], otherwise: T) -> T:
    """Return a piece of an answer as it is meant; what another version means by it is left out, and no failure.

    >>> piece({"p": "no"}, dict[str, int], {})
    {}
    """
    try:
        return converted(value or (), kind)
    except msgspec.ValidationError:
        # A replica of another version may mean something else by this field.
        return otherwise


def expiry_in(value: object) -> ExpiryStatus | None:
    """Return what a replica says of the removal of rows; None when it says nothing, as one whose rows stay."""
    try:
        return converted(value, ExpiryStatus | None)
    except msgspec.ValidationError:
        return None


def moves_in(value: object) -> MoveStatus | None:
    """Return what a replica says of its moves; None when it says nothing, as one whose table has no store."""
    try:
        return converted(value, MoveStatus | None)
    except msgspec.ValidationError:
        return None
