"""Positions of a stream that reads a table, as Spark keeps them in the checkpoint of the query.

=====================================================  ===================================================================
offset                                                 what it says
=====================================================  ===================================================================
``{"v": 1, "start": "snapshot"}``                      the query has not begun: where it shall begin, as its options say.
                                                       Spark asks for it again at every start until batch 0 is committed,
                                                       so it is constant and says no index
``{"v": 1, "t": "9f….0", "i": 41}``                    everything below index 41 of the log of this table was read
``{"v": 1, "t": "9f….0", "i": 41, "f": 30, …}``        the same, and the batch that ends here begins at 30, whatever the
                                                       offset before it says.  ``start`` says how a query began, ``us`` the
                                                       time of the rows of a snapshot
=====================================================  ===================================================================

The end of a batch is in Spark's write-ahead log before the batch is read.  So where a query began is written down with batch 0,
and every repetition of that batch begins there, even if the options have changed since.

Spark compares offsets as text: the fields have one order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.errors import BadInput

VERSION = 1
SNAPSHOT = "snapshot"
Offset: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a query shall begin: ``snapshot``, ``earliest``, ``latest``, an index, a tag, or ``time:`` and a time."""

    where: str

    def encode(self) -> Offset:
        """Return the offset.

        Examples
        --------
        >>> Beginning("latest").encode()
        {'v': 1, 'start': 'latest'}
        """
        return {"v": VERSION, "start": self.where}


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands in the log of a table.

    Attributes
    ----------
    origin
        Which table: its id and incarnation.
    index
        Everything below it was read.
    begin
        Where the batch that ends here begins; None: where the one before it ends.
    where
        Of batch 0: the `Beginning` that was resolved.
    us
        Of a snapshot: the `_commit_timestamp` of its rows, in microseconds since 1970.
    """

    origin: str
    index: int
    begin: int | None = None
    where: str = ""
    us: int | None = None

    def encode(self) -> Offset:
        """Return the offset.

        Examples
        --------
        >>> Position("9f.0", 41).encode()
        {'v': 1, 't': '9f.0', 'i': 41}
        >>> Position("9f.0", 41, 30, "30").encode()
        {'v': 1, 't': '9f.0', 'i': 41, 'f': 30, 'start': '30'}
        """
        found: Offset = {"v": VERSION, "t": self.origin, "i": self.index}
        found |= {} if self.begin is None else {"f": self.begin}
        found |= {"start": self.where} if self.where else {}
        return found if self.us is None else found | {"us": self.us}

    @property
    def is_snapshot(self) -> bool:
        """Whether the batch that ends here is the table as it was at `begin`."""
        return self.where == SNAPSHOT


def decode_offset(offset: Mapping[str, Any]) -> Beginning | Position:
    """Read an offset of a checkpoint.

    Raises
    ------
    BadInput
        It is not one of these.

    Examples
    --------
    >>> decode_offset({"v": 1, "t": "9f.0", "i": 41, "f": 30, "start": "30"})
    Position(origin='9f.0', index=41, begin=30, where='30', us=None)
    >>> decode_offset({"v": 1, "start": "latest"})
    Beginning(where='latest')
    """
    fields = dict(offset)
    if fields.get("v") == VERSION:
        if fields.keys() == {"v", "start"} and isinstance(fields["start"], str):
            return Beginning(fields["start"])
        origin, index, begin, us = (fields.get(name) for name in ("t", "i", "f", "us"))
        numbers = isinstance(begin, int | None) and isinstance(us, int | None)
        if isinstance(origin, str) and isinstance(index, int) and numbers:
            return Position(origin, index, begin, str(fields.get("start", "")), us)
    raise BadInput(
        f"the checkpoint has an offset that is not one of this version of replitree, {fields}: another source wrote it, or a"
        " newer replitree. Begin with a new checkpoint, or upgrade"
    )


__all__ = ["SNAPSHOT", "Beginning", "Offset", "Position", "decode_offset"]
