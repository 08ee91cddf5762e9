"""Pieces of what a server says about itself, as whoever shows or judges them takes them from its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from replitree.errors import NotAuthorized

T = TypeVar("T")


class Postponed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a queue that could not be executed yet.

    Attributes
    ----------
    index, reason
        Which, and why.
    tries, since_s
        How often it was tried, and for how many seconds.
    """

    index: int
    reason: str = ""
    tries: int = 0
    since_s: float | None = None


def check_token(heard: Sequence[object]) -> None:
    """Do nothing, unless all who answered refused the token: then it is unknown how they are, and not that they are down.

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
        return msgspec.convert(value or (), kind)
    except msgspec.ValidationError:
        return otherwise
