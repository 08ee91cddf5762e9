"""Snapshots of a running state machine, made while it goes on.

1. The state is taken when all commands up to some step are applied; it is a value, so commits go on.
2. Its bytes are stored in *pieces*, blobs of the data channel, at leisure.
3. The entry of the snapshot refers to the pieces, and to one more blob that is stored together with it: the commands of all
   steps since, whether they are committed or not.  With that it needs nothing before it: it is total.

The entry says how many commands are in the pieces, so that every command has the same number after a restart.  It names the
blobs that it made as discovered, and those of the snapshot before as left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from replitree.tablet.bodies import decode_commands, encode_commands
from replitree.tablet.commit import Draft, Ledger
from replitree.tablet.entries import LogEntry
from replitree.tablet.envelope import BadEntry
from replitree.tablet.ids import BlobId, Channel, Cookie, GenStep, Step
from replitree.tablet.machine import Machine

State = TypeVar("State")

DATA = Channel(1)
"""Where pieces lie."""

PIECE_BYTES = 1 << 20

COMMANDS = 2
"""Key of the number of commands in an entry's metadata."""

_BYTES = 8


def pieces_of(
    ledger: Ledger, data: bytes, first: int = 1, piece_bytes: int = PIECE_BYTES
) -> tuple[tuple[BlobId, bytes], ...]:
    """Return the blobs of a snapshot that is begun now.

    Parameters
    ----------
    ledger
        Of the leader.
    data
        The snapshot.
    first
        The first cookie that this leader has not used in pieces: no blob is ever named twice.
    piece_bytes
        The largest piece, in bytes.
    """
    begins = range(0, len(data), piece_bytes)
    return tuple(
        (
            BlobId(ledger.tablet, DATA, ledger.generation, ledger.last, Cookie(number)),
            data[begin : begin + piece_bytes],
        )
        for number, begin in enumerate(begins, first)
    )


def draft_of(
    ledger: Ledger, pieces: Sequence[BlobId], commands: int, since: Sequence[bytes], left: Sequence[BlobId]
) -> Draft:
    """Return the snapshot to be committed as the next step.

    Parameters
    ----------
    ledger
        Of the leader; what is sent next is the snapshot.
    pieces
        Where the state lies.
    commands
        How many commands it has seen.
    since
        All commands after it, up to the last step that was sent.
    left
        The blobs of the snapshot before.
    """
    rest = BlobId(ledger.tablet, DATA, ledger.generation, Step(ledger.last + 1), Cookie(0))
    return Draft(
        references=tuple(pieces),
        parallel=((rest, encode_commands(since)),),
        is_snapshot=True,
        is_total=True,
        gc_discovered=(*pieces, rest),
        gc_left=tuple(left),
        metadata=((COMMANDS, commands.to_bytes(_BYTES, "big")),),
    )


def restored(
    machine: Machine[State], entry: LogEntry, place: GenStep, blobs: Sequence[tuple[BlobId, bytes]]
) -> tuple[State, int]:
    """Return the state that a snapshot stands for, and how many commands it has seen.

    Raises
    ------
    BadEntry
        A blob is missing, or the entry is not one of these.
    """
    found = dict(blobs)
    missing = [blob for blob in entry.references if blob not in found]
    said = dict(entry.metadata).get(COMMANDS)
    if missing or said is None or not entry.references:
        raise BadEntry(f"the snapshot at {place} lacks {missing[0] if missing else 'what it stands for'}")
    *pieces, rest = entry.references
    state = machine.restore(b"".join(found[blob] for blob in pieces)) if pieces else machine.begin()
    since = decode_commands(found[rest])
    for command in since:
        state, _ = machine.apply(state, command)
    return state, int.from_bytes(said, "big") + len(since)
