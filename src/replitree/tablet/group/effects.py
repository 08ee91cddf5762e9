"""The requests of a tablet's procedures to blob groups, and the answers.

A *blob group* keeps blobs on several members and hides the members.  Every group guarantees:

* `Stored` is certain: the blob survives every failure that the group promises to survive.  Every other answer to a `Put`, also
  `Overtaken`, leaves it open: the blob may be found later, or never.
* After `FenceRaised` the group does not begin to store any blob of the fenced generations, or of earlier ones.
* A blob that an answer leaves out was never stored and never will be: every member that answers has raised the fence of the
  read first.  If the group can prove neither presence nor absence it answers `NotKnown`.  Damaged blobs count as unknown, never
  as absent.
* A blob that was read with `restore` is stored as if it had been put now.

An effect that can't be performed at all does not return: the interpreter closes the procedure, as a crash would.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec

from replitree.tablet.group.ids import BlobId, Channel, Generation, GenStep, GroupId, TabletId


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Forbids blobs up to a generation.  `issuer` names the candidate, so that of two with one generation only one wins."""

    generation: Generation
    issuer: str


class Put(msgspec.Struct, frozen=True):
    """Store a blob.  Outcome: `Stored`, `Overtaken`, `NotKnown`.  A struct, as `Write` is."""

    group: GroupId
    blob: BlobId
    data: bytes


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Forbid blobs and collections of generations up to the fence's.  Outcome: `FenceRaised`, `Overtaken`, `NotKnown`.

    Said again by the same issuer it is fine; of another issuer with the same generation one is overtaken, or both.
    """

    group: GroupId
    tablet: TabletId
    fence: Fence


@dataclass(frozen=True, slots=True)
class ReadFence:
    """Outcome: `FencedUpTo`, or `NotKnown`."""

    group: GroupId
    tablet: TabletId


@dataclass(frozen=True, slots=True)
class ReadBarrier:
    """Ask up to where a channel was collected.  Outcome: `CollectedUpTo`, `NotKnown`."""

    group: GroupId
    tablet: TabletId
    channel: Channel


@dataclass(frozen=True, slots=True)
class ReadBlobs:
    """Read blobs by id.  Outcome: `Blobs`, `Overtaken`, `NotKnown`.

    With `fence`, a member raises it before it answers; with `restore`, the group stores each blob that it finds on the
    members that lack it.
    """

    group: GroupId
    blobs: tuple[BlobId, ...]
    fence: Fence | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Store blobs anew wherever they are missing, as far as a member has them.

    Outcome: `BlobsRestored`, `Overtaken`, `NotKnown`.

    A member raises the fence before it answers.  A group of one member is not asked: no other member has what that one
    lacks.
    """

    group: GroupId
    blobs: tuple[BlobId, ...]
    fence: Fence


@dataclass(frozen=True, slots=True)
class Range:
    """Read all blobs from `first` to `last`, both included, of one channel.  Outcome and options: as of `ReadBlobs`."""

    group: GroupId
    first: BlobId
    last: BlobId
    fence: Fence | None = None
    restore: bool = False


@dataclass(frozen=True, slots=True)
class Discover:
    """Read the newest blob of a channel from `first` on, restored if there is a fence.  Outcome: as of `ReadBlobs`."""

    group: GroupId
    first: BlobId
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A command to delete blobs.

    Attributes
    ----------
    order
        Generation and number of the command: an older one than the last is ignored.
    barrier
        Blobs of this place and earlier ones go, unless they are kept.
    keep, dont_keep
        Blobs to be kept although the barrier passes them, and those that need not be kept any more.
    is_hard
        What is kept goes, too.
    """

    tablet: TabletId
    channel: Channel
    order: tuple[Generation, int]
    barrier: GenStep
    keep: tuple[BlobId, ...] = ()
    dont_keep: tuple[BlobId, ...] = ()
    is_hard: bool = False


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete blobs.  Outcome: `Collected`, `Overtaken`, `NotKnown`; the same command may be repeated."""

    group: GroupId
    collection: Collection


@dataclass(frozen=True, slots=True)
class Stored:
    """The blob is stored for good."""


@dataclass(frozen=True, slots=True)
class BlobsRestored:
    """The blobs that exist are stored for good; members in `lacking` did not confirm that they have all of them."""

    lacking: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class FenceRaised:
    """The fence holds."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Every member has taken the command."""


@dataclass(frozen=True, slots=True)
class FencedUpTo:
    """No quorum has a fence above `generation`.  Not `is_set`: no member that answered has a fence at all."""

    generation: Generation
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class CollectedUpTo:
    """No member that answered was told to delete what comes after `place`; one at least was told up to there."""

    place: GenStep


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs that exist, ascending by id; a blob that was asked for and is not among them was never stored.

    Without `restore` blobs that are in doubt, each for itself, are listed as `doubtful`; with it they end the read, and
    `lacking` are the members that may lack some.
    """

    found: tuple[tuple[BlobId, bytes], ...]
    doubtful: tuple[BlobId, ...] = ()
    lacking: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A newer candidate, or another one of the same generation, has been here: its generation."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Not known; `reason` is for people, `about` the one blob that can't be told, if it is one."""

    reason: str
    about: BlobId | None = None


GroupEffect: TypeAlias = Put | RaiseFence | ReadFence | ReadBarrier | ReadBlobs | Restore | Range | Discover | Collect

T = TypeVar("T")
Procedure: TypeAlias = Generator[Any, Any, T]
"""Yields effects, is sent their outcomes, and returns a value."""
