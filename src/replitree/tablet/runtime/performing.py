"""Blob groups as a leader sees them: whatever runs the procedures that ask them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from replitree.tablet.core.channels import Channels
from replitree.tablet.group.effects import Fence, NotKnown, Overtaken, Procedure, Put, Stored
from replitree.tablet.group.ids import BlobId, GroupId, TabletId

T = TypeVar("T")


class Groups(Protocol):
    """Blob groups of any kind: directories, other hosts, an object store, memory."""

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure to its end in this thread.  Any number of threads may do so at once."""

    def missed(self) -> Mapping[tuple[GroupId, int], int]:
        """Return for each member that did what it was asked last how many writes it may have missed so far."""


@runtime_checkable
class Group(Protocol):
    """One blob group that is open, and its name."""

    @property
    def groups(self) -> Groups:
        """The groups that run its procedures."""

    @property
    def group(self) -> GroupId:
        """Its name."""

    @property
    def forgot(self) -> str | None:
        """Why the group refuses every request: a member that took part has lost blobs; None while none has."""

    def readmit(self) -> bool:
        """Let members take part that were away and are back, or were made anew; tell whether there were any."""


@runtime_checkable
class JustOpened(Protocol):
    """A group that may have seen fences when it was opened."""

    def fence_seen(self, tablet: TabletId) -> Fence | None:
        """Return a tablet's fence as it was a moment ago; None if that is not known."""


def store(channels: Channels, blob: BlobId, data: bytes) -> Procedure[Stored | Overtaken | NotKnown]:
    """Store one blob where its channel lies."""
    outcome: Stored | Overtaken | NotKnown = yield Put(channels.group(blob.channel, blob.generation), blob, data)
    return outcome


def store_one(groups: Groups, channels: Channels, blob: BlobId, data: bytes) -> Stored | Overtaken | NotKnown:
    """Store one blob; whatever goes wrong leaves in doubt whether it is stored."""
    try:
        return groups.run(store(channels, blob, data))
    except Exception as error:  # noqa: BLE001 - who waits for the blob must hear something
        return NotKnown(f"{type(error).__name__}: {error}")


def store_all(
    groups: Groups, channels: Channels, blobs: Sequence[tuple[BlobId, bytes]]
) -> list[Stored | Overtaken | NotKnown]:
    """Store some blobs at once; return what became of each."""
    outcomes: list[Stored | Overtaken | NotKnown] = [NotKnown("not tried")] * len(blobs)

    def work(number: int) -> None:
        outcomes[number] = store_one(groups, channels, *blobs[number])

    # One of them in this thread: a snapshot of one piece starts no thread.
    others = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(1, len(blobs))]
    for thread in others:
        thread.start()
    if blobs:
        work(0)
    for thread in others:
        thread.join()
    return outcomes
