"""Snapshots of a running state machine, made while it goes on.

1. The state is taken when all commands up to some step are applied; it is a value, so commits go on.
2. Its bytes are stored in *pieces*, blobs of the data channel, at leisure.  The commands of all steps since are stored, too,
   whenever there are many, whether they are committed or not.
3. The entry of the snapshot refers to the pieces and to those commands, and to those that are left, which are stored together
   with it.  With that it needs nothing before it: it is total.

All that is stored before the entry belongs to the step after the last one that was sent when the snapshot was begun: so it lies
above every barrier.  A blob has `PIECE_BYTES` of the state, or `SINCE_BYTES` of commands and one command more.

The entry says how many commands are in the pieces, so that every command has the same number after a restart.  It names the
blobs that it made as discovered, and those of the snapshot before as left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from replitree.tablet.core.bodies import decode_commands, encode_commands
from replitree.tablet.core.commit import Draft, Ledger
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.envelope import BadEntry
from replitree.tablet.core.machine import Machine
from replitree.tablet.group.ids import BlobId, Channel, Cookie, GenStep, Step

State = TypeVar("State")

DATA = Channel(1)
"""Where pieces lie."""

PIECE_BYTES = 1 << 20

SINCE_BYTES = 8 << 20
"""From which on commands fill a blob."""

COMMANDS = 2
"""Key in an entry's metadata: the number of commands in the pieces, when one blob has those since."""

COMMANDS_AND_BLOBS = 3
"""Key of that number, and of how many blobs have the commands since, when it is more than one."""

_BYTES = 8
_COMMAND_BYTES = 5
"""Bytes that a command takes in a blob besides its own, at most."""


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
        The first cookie that this leader has not used in snapshots: no blob is ever named twice.
    piece_bytes
        The largest piece, in bytes.
    """
    begins = range(0, len(data), piece_bytes)
    return _named(ledger, first, [data[begin : begin + piece_bytes] for begin in begins])


def since_of(ledger: Ledger, commands: Sequence[bytes], first: int) -> tuple[tuple[BlobId, bytes], ...]:
    """Return the blobs of commands that come after a snapshot's state, in their order.

    Parameters
    ----------
    ledger
        As it was when the snapshot was begun; of those that are stored with its entry: as it is when that is sent.
    commands
        Which; none at all are in no blob.
    first
        As of `pieces_of`.
    """
    batches, size = list[list[bytes]](), SINCE_BYTES
    for command in commands:
        if size >= SINCE_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(command)
        size += bytes_of((command,))
    return _named(ledger, first, [encode_commands(batch) for batch in batches])


def bytes_of(commands: Sequence[bytes]) -> int:
    """Return how many bytes commands take in a blob, at most."""
    return sum(map(len, commands)) + _COMMAND_BYTES * len(commands)


def _named(ledger: Ledger, first: int, contents: Sequence[bytes]) -> tuple[tuple[BlobId, bytes], ...]:
    step = Step(ledger.last + 1)
    return tuple(
        (BlobId(ledger.tablet, DATA, ledger.generation, step, Cookie(number)), data)
        for number, data in enumerate(contents, first)
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """A snapshot of which a part is stored.

    Attributes
    ----------
    commands
        How many commands the state has seen.
    pieces
        Where it lies.
    since
        Where commands after it lie.
    """

    commands: int
    pieces: tuple[BlobId, ...] = ()
    since: tuple[BlobId, ...] = ()


def draft_of(ledger: Ledger, begun: Begun, rest: Sequence[bytes], left: Sequence[BlobId], first: int) -> Draft:
    """Return the snapshot to be committed as the next step.

    Parameters
    ----------
    ledger
        Of the leader; what is sent next is the snapshot.
    begun
        What is stored of it.
    rest
        All commands after that, up to the last step that was sent.
    left
        The blobs of the snapshot before.
    first
        As of `pieces_of`.
    """
    # At least one blob: its number tells pieces from commands when the snapshot is read.
    parallel = since_of(ledger, rest, first) or _named(ledger, first, [encode_commands(())])
    own = (*begun.pieces, *begun.since, *(blob for blob, _ in parallel))
    blobs = len(own) - len(begun.pieces)
    said = begun.commands.to_bytes(_BYTES, "big")
    # The number of blobs only where it is not one: earlier versions read such a snapshot, too.
    numbers = (COMMANDS, said) if blobs == 1 else (COMMANDS_AND_BLOBS, said + blobs.to_bytes(_BYTES, "big"))
    return Draft(
        references=(*begun.pieces, *begun.since),
        parallel=parallel,
        is_snapshot=True,
        is_total=True,
        gc_discovered=own,
        gc_left=tuple(left),
        metadata=(numbers,),
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
    metadata = dict(entry.metadata)
    # How many commands are in the pieces, and how many blobs have those since: an older snapshot has one such blob.
    both = metadata.get(COMMANDS_AND_BLOBS, b"")
    commands, blobs_since = int.from_bytes(both[:_BYTES], "big"), int.from_bytes(both[_BYTES:], "big")
    if COMMANDS in metadata:
        commands, blobs_since = int.from_bytes(metadata[COMMANDS], "big"), 1
    # The count comes from a stored entry: it is compared with the references before it cuts them.
    if missing or not 0 < blobs_since <= len(entry.references):
        raise BadEntry(f"the snapshot at {place} lacks {missing[0] if missing else 'what it stands for'}")
    pieces, since = entry.references[:-blobs_since], entry.references[-blobs_since:]
    state = machine.restore(b"".join(found[blob] for blob in pieces)) if pieces else machine.begin()
    for blob in since:
        for command in decode_commands(found[blob]):
            state, _ = machine.apply(state, command)
            commands += 1
    return state, commands
