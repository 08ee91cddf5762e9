"""What the mender asks of the memory, the disk and the store of its process.

The names of effects and stages follow one round: what is lacking, where it may be, what came of the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core.effects import Epoch, FetchPart
from replitree.protocol.program.stages import MemoryEffect
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer

PartContent: TypeAlias = tuple[str, str]
"""The name of a part, and the hash of the content that it is registered with."""

MarkedShares: TypeAlias = tuple[tuple[str, tuple[ShareId, ...]], ...]
"""Names of parts, and the shares that have this replica's marks for each."""


@dataclass(frozen=True, slots=True)
class BrokenNotes:
    """Which of this replica's registrations say that their part is broken here.

    Attributes
    ----------
    epoch
        Under which they were read.  Under another epoch they may be others: a commit whose answer was lost has taken place, or
        a recovery has copied the registrations of its source.
    parts
        The names of the parts.
    """

    epoch: Epoch | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitLacking(MemoryEffect):
    """Wait, while active, for registered parts that are not whole on disk, or for notes to change.  Outcome: `MendTurn`."""

    notes: BrokenNotes


@dataclass(frozen=True, slots=True)
class MendTurn:
    """What a mender works with.

    Attributes
    ----------
    parts
        What is not whole.  A part that an entry of the queue declares lost is left out: the execution publishes the empty part.
    sharer
        The replica as owner of shares; None for a table without an object store.
    """

    parts: tuple[PartContent, ...]
    sharer: Sharer | None = None


@dataclass(frozen=True, slots=True)
class PutBack(MemoryEffect):
    """Put parts back from copies on this disk.  Outcome: the names of those that are whole here now."""

    parts: tuple[PartContent, ...]


@dataclass(frozen=True, slots=True)
class SeekShares(MemoryEffect):
    """Outcome: the parts whose manifests are looked for in the object store now.

    Attributes
    ----------
    parts
        What no replica has sent.  A part that was looked for a moment ago is looked for later.
    """

    parts: tuple[PartContent, ...]


@dataclass(frozen=True, slots=True)
class TakeFromStore(MemoryEffect):
    """Publish the parts that one of their marked shares has.  Outcome: their names."""

    parts: tuple[PartContent, ...]
    marked: MarkedShares


@dataclass(frozen=True, slots=True)
class SeekFiles(MemoryEffect):
    """Outcome: the parts whose data files are looked for now, because neither this disk nor the store has their manifests.

    Attributes
    ----------
    parts
        What is still lacking.  A part that was looked for a moment ago is looked for later.
    """

    parts: tuple[PartContent, ...]


@dataclass(frozen=True, slots=True)
class WriteAnew(MemoryEffect):
    """Publish parts that are written anew of data files, on this disk or in a marked share.  Outcome: their names."""

    parts: tuple[PartContent, ...]
    marked: MarkedShares


@dataclass(frozen=True, slots=True)
class Losing(MemoryEffect):
    """Outcome: the parts that entries of the queue declare lost, each with the content of the empty part that it becomes."""


@dataclass(frozen=True, slots=True)
class TakeOut(MemoryEffect):
    """Set parts aside that were put back, as far as they still have this content: they are empty by now."""

    parts: tuple[PartContent, ...]


@dataclass(frozen=True, slots=True)
class WholeAgain(MemoryEffect):
    """Show parts again.  A part that was found broken meanwhile stays hidden, and lacking."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskAgain(MemoryEffect):
    """Outcome: the parts of which the other replicas were not asked lately to verify their own.

    Attributes
    ----------
    parts
        What is still lacking.
    """

    parts: tuple[PartContent, ...]


@dataclass(frozen=True, slots=True)
class HaveChecked(MemoryEffect):
    """Let other replicas verify their own parts, and get manifests that this disk does not have: readers choose parts by them.

    Attributes
    ----------
    parts, others
        What is lacking, and the names of all other replicas.
    sources
        The parts that others have registered with this content, with the names of these.
    """

    parts: tuple[PartContent, ...]
    others: tuple[str, ...]
    sources: tuple[FetchPart, ...]


@dataclass(frozen=True, slots=True)
class Telling(MemoryEffect):
    """Outcome: `TellTurn`; None while the process is not active.

    Attributes
    ----------
    missing
        The names of the parts that this round has looked for in vain.
    """

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TellTurn:
    """What there is to note.

    Attributes
    ----------
    epoch
        Under which it is noted.
    lacking
        The names of the parts that are not whole here.
    given_up
        Of those that were looked for in vain: what has been missing for long enough, and is certainly neither on this disk nor
        in the object store.
    """

    epoch: Epoch
    lacking: tuple[str, ...]
    given_up: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitLoss(MemoryEffect):
    """Wait, while active, until this replica can't get a part.  Outcome: `Loss`.

    Attributes
    ----------
    part
        The part.
    is_again
        This process has tried to declare the part lost before.  A checker waits until it would succeed: it explores the first
        try at any moment, and no more tries in vain.
    """

    part: str
    is_again: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """What a part is declared lost with: epoch and parent of the log's end; content and columns of the empty part."""

    epoch: Epoch
    parent: int
    empty: str
    schema_version: int


__all__ = [
    "AskAgain",
    "AwaitLacking",
    "AwaitLoss",
    "BrokenNotes",
    "HaveChecked",
    "Losing",
    "Loss",
    "MarkedShares",
    "MendTurn",
    "PartContent",
    "PutBack",
    "SeekFiles",
    "SeekShares",
    "TakeFromStore",
    "TakeOut",
    "TellTurn",
    "Telling",
    "WholeAgain",
    "WriteAnew",
]
