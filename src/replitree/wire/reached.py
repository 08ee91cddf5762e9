"""How far back a search for a time has come: what a replica answers, and what the client goes on from."""

from __future__ import annotations

import msgspec


class Reached(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a search for the last entry that was written at or before a time has found.

    Attributes
    ----------
    index
        The index that comes after that entry; None: not found.
    below
        Every entry from there on, up to where the search began, was written later.
    written_ms
        When the entry at `below` was written, in milliseconds since 1970 by coordination's clock; 0: unknown.
    """

    index: int | None = None
    below: int
    written_ms: int = 0


__all__ = ["Reached"]
