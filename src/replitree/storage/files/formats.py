"""The number of its format that every stored value has: what a newer replitree wrote is refused, and not misread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from replitree.decoding import JsonDecoder, json_decoder
from replitree.errors import UnsupportedFormat

T = TypeVar("T")


class _Format(msgspec.Struct, frozen=True):
    format: int


_decoder = json_decoder(_Format)


def format_of(data: bytes | str) -> int:
    """Return the number of a stored value's format.  Raises `msgspec.DecodeError` or `UnicodeDecodeError` if it has none."""
    return _decoder.decode(data).format


def refuse_newer(data: bytes | str, what: str, newest: int) -> None:
    """Do nothing with a stored value of a format that this replitree knows.

    Parameters
    ----------
    data, what
        Its bytes or text, and what names it in errors.
    newest
        The newest format that is known.

    Raises
    ------
    UnsupportedFormat
        A newer replitree wrote it.
    msgspec.DecodeError, UnicodeDecodeError
        It says of no format.
    """
    found = format_of(data)
    if found > newest:
        raise _unknown(what, found, newest)


def decode_known(decoder: JsonDecoder[T], data: bytes | str, what: str, formats: Sequence[int]) -> T:
    """Read a stored value of one of the formats that this replitree knows.

    Parameters
    ----------
    decoder, data
        How to read it, and its bytes or text.
    what
        Names it in errors, as in ``a mutation``.
    formats
        Those that are known, ascending.

    Raises
    ------
    UnsupportedFormat
        A newer replitree wrote it, or none did.
    """
    try:
        # The number alone first: a newer format may have fields of other types, which would read as damage.
        found = _decoder.decode(data).format
        if found in formats:
            return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(f"{what} can't be read ({error}); was it written by replitree?") from error
    raise _unknown(what, found, formats[-1])


def _unknown(what: str, found: int, newest: int) -> UnsupportedFormat:
    return UnsupportedFormat(f"{what} has format {found}, this replitree knows up to {newest}: upgrade it")
