"""The state as pieces of bytes, which can be made and stored while the state goes on changing.

`freeze` copies the lists of entries, not the entries, which never change: for a million nodes that takes some ten milliseconds.
The pieces that are made of it later hold the state of that moment.

The first piece has the numbers of the state, how many entries each table has, and the digest; each of the others has up to
`PIECE_ENTRIES` entries of one table, as keys and values.  A snapshot that lacks a piece, or has another one, is never restored.

Tables that follow from the others are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from replitree.decoding import msgpack_decoder
from replitree.errors import UnsupportedFormat
from replitree.keeper.core import quota
from replitree.keeper.core.batch import BadBatch
from replitree.keeper.core.paths import ROOT, name_of, parent_of
from replitree.keeper.core.state import RULES, State, Table
from replitree.keeper.core.wire import stat_of

FORMAT: Final = 1

PIECE_ENTRIES: Final = 4_096
"""Entries of one piece."""

_TABLES: Final = ("nodes", "counters", "acls", "lifetimes", "sessions")


class _Head(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    format: int
    rules: int
    generation: int
    requests: int
    opened: int
    now_ms: int
    secret: bytes
    digest: int
    counts: list[int]


class _Piece(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    table: int
    keys: list[bytes | int]
    values: list[bytes | int]


class Frozen(NamedTuple):
    """A state at one moment; it does not change when the state does."""

    head: _Head
    entries: list[tuple[list[Any], list[Any]]]


def freeze(state: State) -> Frozen:
    """Return a state as it is between two frames."""
    tables: list[Table] = [getattr(state, name) for name in _TABLES]
    head = _Head(
        FORMAT,
        RULES,
        state.generation,
        state.requests,
        state.opened,
        state.now_ms,
        state.secret,
        state.digest,
        [len(table) for table in tables],
    )
    return Frozen(head, [(list(table), list(table.values())) for table in tables])


def pieces(frozen: Frozen) -> Iterator[bytes]:
    """Encode a frozen state, one piece for each that is asked for."""
    encoder = msgspec.msgpack.Encoder()
    yield encoder.encode(frozen.head)
    for table, (keys, values) in enumerate(frozen.entries):
        for at in range(0, len(keys), PIECE_ENTRIES):
            yield encoder.encode(_Piece(table, keys[at : at + PIECE_ENTRIES], values[at : at + PIECE_ENTRIES]))


def restore(stored: Iterable[bytes]) -> State:
    """Return the state of a snapshot's pieces.

    Raises
    ------
    UnsupportedFormat
        A newer version wrote it.
    BadBatch
        Pieces are missing, or not what was written.
    """
    state, head = State(), None
    try:
        for piece in stored:
            if head is None:
                head = _head(piece)
            else:
                _add(state, msgpack_decoder(_Piece).decode(piece))
    except (msgspec.MsgspecError, IndexError, ValueError) as error:
        raise BadBatch(f"a snapshot of the keeper can't be read: {error}") from error
    if head is None or head.counts != [len(getattr(state, name)) for name in _TABLES] or head.digest != state.digest:
        raise BadBatch("a snapshot of the keeper is not whole: its counts or its digest differ from its entries")
    state.generation, state.requests, state.opened = head.generation, head.requests, head.opened
    state.now_ms, state.secret = head.now_ms, head.secret
    _derive(state)
    state.settle()
    return state


def _head(piece: bytes) -> _Head:
    version = msgpack_decoder(list[Any]).decode(piece)[0]
    if version != FORMAT:
        raise UnsupportedFormat(
            f"a snapshot of the keeper has format {version}, this version reads {FORMAT}: upgrade it"
        )
    head = msgpack_decoder(_Head).decode(piece)
    if head.rules != RULES:
        raise UnsupportedFormat(
            f"a snapshot of the keeper has rules {head.rules}, this version knows {RULES}: upgrade it"
        )
    return head


def _add(state: State, piece: _Piece) -> None:
    table: Table = getattr(state, _TABLES[piece.table])
    for key, value in zip(piece.keys, piece.values, strict=True):
        state.put(table, key, value)
    state.settle()


def _derive(state: State) -> None:
    for path, record in state.nodes.items():
        if path == ROOT:
            continue
        state.put_in(state.children, parent_of(path), name_of(path), is_in=True)
        if owner := stat_of(record).owner:
            state.put_in(state.ephemerals, owner, path, is_in=True)
        if quota.is_limit(path):
            state.put(state.limited, quota.subject(path, quota.LIMITS), True)
