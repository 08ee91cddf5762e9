"""JSON files with a checksum of their own bytes.

The file is an object whose first field is ``format`` and whose second is ``checksum``: the XXH3-128 of the file's bytes without
the second field, 32 hexadecimal digits.  The checksum covers the format number, so a damaged number is not mistaken for a newer
format; a later format must keep these two fields as they are.
"""

from __future__ import annotations

import re

import msgspec
import xxhash

from replitree.storage.files.formats import format_of

_SEALED = re.compile(rb'(\{"format":[0-9]{1,9},)"checksum":"([0-9a-f]{32})",')
_FORMAT = re.compile(rb'\{"format":[0-9]{1,9},')


def seal(data: bytes) -> bytes:
    """Insert the checksum after the format, which must be the first field.

    Examples
    --------
    >>> seal(b'{"format":4,"rows":3}')
    b'{"format":4,"checksum":"864c37df1abec08b96809a4e93a5a14e","rows":3}'
    """
    first = _FORMAT.match(data)
    assert first is not None, "a sealed file begins with its format"
    return b'%b"checksum":"%b",%b' % (first[0], xxhash.xxh3_128_hexdigest(data).encode(), data[first.end() :])


def unseal(data: bytes, since: int) -> bytes:
    """Verify the checksum of a file and take it out.

    Parameters
    ----------
    since
        The first format that has a checksum; a file of an earlier one is returned as it is.

    Raises
    ------
    msgspec.DecodeError
        The bytes are not what the checksum says, or it is missing, or they are not JSON with a format.
    """
    found = _SEALED.match(data)
    rest = data if found is None else found[1] + data[found.end() :]
    # Without the field the bytes are those that were hashed: the checksum can't cover itself.
    if found is not None and xxhash.xxh3_128_hexdigest(rest).encode() != found[2]:
        raise msgspec.DecodeError("its bytes are not what its checksum says")
    # A checksum that was cut out, or a format number that was lowered, must not pass for an earlier version's file.
    if (format_of(rest) >= since) != (found is not None):
        raise msgspec.DecodeError("its checksum is missing, or its format has none")
    return rest
