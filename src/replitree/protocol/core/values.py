"""Values of nodes: each has the number of its format, and what a newer replitree wrote is refused, not misread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from replitree.errors import UnsupportedFormat


class Value(Protocol):
    """A decoded value."""

    @property
    def format(self) -> int:
        """The number of its format."""


V = TypeVar("V", bound=Value)


def text_of(value: bytes, where: str) -> str:
    """Return the value of a node that is plain text.

    Parameters
    ----------
    value, where
        The node's value, and its path, for errors.

    Raises
    ------
    UnsupportedFormat
        It is not UTF-8: this project did not write it.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnsupportedFormat(f"{where} is not text ({error}); upgrade this replica or restore the node") from error


def decode_value(decode: Callable[[bytes], V], raw: bytes, where: str, newest: int) -> V:
    """Read the value of a node.

    Parameters
    ----------
    decode, raw
        How to read it, and its bytes.
    where
        The node's path, for errors.
    newest
        The newest format that is known.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    try:
        value = decode(raw)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat(f"{where} can't be read ({error}); upgrade this replica") from error
    if value.format > newest:
        raise UnsupportedFormat(f"{where} has format {value.format}, this replitree knows {newest}; upgrade it")
    return value
