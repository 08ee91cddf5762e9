"""What those do that open a group, and the operator: procedures, on those of `replitree.tablet`."""

from __future__ import annotations

from dataclasses import dataclass

from replitree.errors import StoreError
from replitree.protocol.program.stages import Then
from replitree.tablet.group import openings, replacing
from replitree.tablet.group.effects import Blobs, Fence, Procedure, Put, Range, Stored
from replitree.tablet.group.ids import BlobId, Generation
from replitree.tablet.group.member import Reply
from replitree.tablet.group.openings import Opening
from replitree.tablet.group.quorum import carry_out
from replitree.tablet.group.replacing import Replacement
from replitree_verify.openings.model import FIRST, GROUP, LAST, QUORUM, Opener

Life = Procedure[Then | None]


@dataclass(frozen=True, slots=True)
class Opened:
    """The group is open, or is so in another way.  Outcome: none."""

    opening: Opening


@dataclass(frozen=True, slots=True)
class Recovered:
    """Everything was read, and the fence holds.  Outcome: none."""

    found: tuple[BlobId, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A client hears that the blob is stored.  Outcome: none."""


@dataclass(frozen=True, slots=True)
class AskOpening:
    """Outcome: the `Opening` as it is, and which directories the group's file names now."""


@dataclass(frozen=True, slots=True)
class GivesUp:
    """It did not work.  Outcome: none."""

    reason: str


@dataclass(frozen=True, slots=True)
class Replied:
    """What became of a request to one member.  Outcome: none."""

    reply: Reply


def fence_of(seat: Opener) -> Fence:
    """Return what a seat fences with: it forbids the blobs of earlier generations."""
    # A fence keeps its own generation out, too: one below that of the seat, whose blobs must pass.
    return Fence(Generation(seat.generation - 1), f"c{seat.generation}")


def open_group(seat: Opener, incarnations: tuple[str, ...]) -> Life:
    """Open the group."""
    try:
        opening = yield from openings.open_group(QUORUM, incarnations)
    except StoreError as error:
        yield GivesUp(str(error))
        return None
    yield Opened(opening)
    # A stage of its own: how the group was opened is forgotten, and states that differ in that alone are one.
    return Then(recover, (seat,))


def recover(seat: Opener) -> Life:
    """Read everything: a member that answers raises the fence first."""
    found = yield from carry_out(QUORUM, Range(GROUP, FIRST, LAST, fence_of(seat), restore=True))
    if not isinstance(found, Blobs):
        yield GivesUp(str(found))
        return None
    yield Recovered(tuple(blob for blob, _ in found.found))
    if not seat.stores:
        return None
    return Then(readmit if seat.readmits else store, (seat,))


def readmit(seat: Opener) -> Life:
    """Let members in that were away and are back, or were made anew."""
    opening, incarnations = yield AskOpening()
    again = yield from openings.readmit(QUORUM, opening, incarnations)
    yield Opened(again)
    return Then(store, (seat,))


def store(seat: Opener) -> Life:
    """Store a blob, and tell a client."""
    outcome = yield from carry_out(QUORUM, Put(GROUP, seat.blob, b"x"))
    yield Acknowledged() if isinstance(outcome, Stored) else GivesUp(str(outcome))
    return None


def replace_member(wanted: Replacement) -> Life:
    """Make a member anew."""
    try:
        yield from replacing.make_anew(wanted)
    except StoreError as error:
        yield GivesUp(str(error))
    return None


def look_again(opening: Opening, incarnations: tuple[str, ...]) -> Life:
    """Look how the members stand."""
    yield Opened((yield from openings.look_again(opening, incarnations)))
    return None


def ask_admitted() -> Life:
    """Ask one member of a group that is open."""
    yield Replied((yield from openings.ask_admitted()))
    return None
