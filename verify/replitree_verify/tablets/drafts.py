"""What the leaders of a model commit."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from replitree.tablet.core import snapshots
from replitree.tablet.core.collecting import Collecting
from replitree.tablet.core.collection import said_again
from replitree.tablet.core.commit import Draft, Ledger
from replitree.tablet.core.snapshots import Begun
from replitree.tablet.group.ids import BlobId, Channel, Cookie, Generation, Step
from replitree_verify.tablets.model import TABLET, Kind

STATE_COOKIE = Cookie(1)
"""Of the blob of a snapshot, where data is collected."""


@dataclass(frozen=True, slots=True)
class Leader:
    """What a leader knows; `collecting` is None where data is not collected."""

    ledger: Ledger
    collecting: Collecting | None = None


def draft_of(leader: Leader, kind: Kind, number: int) -> Draft:
    """Return the n-th thing that a leader commits; where data is collected, with what it says of blobs."""
    ledger, collecting = leader.ledger, leader.collecting
    if collecting is None:
        return _plain(ledger, kind, number)
    # A snapshot takes the place of pending entries, too, so it says again what they say of blobs.
    needed, left = said_again(collecting.garbage, [each.entry for each in ledger.pending])
    match kind:
        case Kind.REFERENCE:
            plain = _plain(ledger, kind, number)
            return structs.replace(plain, gc_discovered=tuple(blob for blob, _ in plain.parallel))
        case Kind.LEAVE:
            return structs.replace(_plain(ledger, Kind.PLAIN, number), gc_left=needed[:1])
        case Kind.SNAPSHOT | Kind.TOTAL:
            return structs.replace(_plain(ledger, kind, number), gc_discovered=needed, gc_left=left)
        case Kind.STATE:
            return snapshots.draft_of(ledger, Begun(number), (), needed, STATE_COOKIE)
        case _:
            return _plain(ledger, kind, number)


def _plain(ledger: Ledger, kind: Kind, number: int) -> Draft:
    step = Step(ledger.last + 1)
    body = f"{ledger.generation} {number}".encode()
    match kind:
        case Kind.PLAIN:
            return Draft(body)
        case Kind.FREE:
            return Draft(body, depends_on=())
        case Kind.REFERENCE:
            return Draft(parallel=((body_id(ledger.generation, step), body),))
        case Kind.SNAPSHOT:
            return Draft(is_snapshot=True)
        case Kind.TOTAL:
            return Draft(is_snapshot=True, is_total=True)
        case Kind.STATE:
            return Draft(parallel=((body_id(ledger.generation, step), body),), is_snapshot=True, is_total=True)
        case Kind.READ | Kind.LEAVE | Kind.COLLECT:
            raise AssertionError(f"{kind.value} forms no entry here")


def must_wait(leader: Leader, kind: Kind) -> bool:
    """Whether a commit has to wait: a total snapshot must not rely on a blob that is on its way."""
    is_on_its_way = any(blob.channel for each in leader.ledger.pending for blob in each.missing)
    return leader.collecting is not None and kind in {Kind.TOTAL, Kind.STATE} and is_on_its_way


def body_id(generation: int, step: int) -> BlobId:
    """Return the id of the blob that an entry refers to, if it does."""
    return BlobId(TABLET, Channel(1), Generation(generation), Step(step), Cookie(0))


def state_id(generation: int, step: int) -> BlobId:
    """Return the id of the blob that has the state of a snapshot, where data is collected."""
    return body_id(generation, step)._replace(cookie=STATE_COOKIE)
