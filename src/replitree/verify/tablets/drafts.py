"""What the leaders of a model commit."""

from __future__ import annotations

from replitree.tablet.commit import Draft, Ledger
from replitree.tablet.ids import BlobId, Channel, Cookie, Generation, Step
from replitree.verify.tablets.model import TABLET, Kind


def draft_of(ledger: Ledger, kind: Kind, number: int) -> Draft:
    """Return the n-th thing that a leader commits."""
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
        case Kind.READ:
            raise AssertionError("a read forms no entry")


def body_id(generation: int, step: int) -> BlobId:
    """Return the id of the blob that an entry refers to, if it does."""
    return BlobId(TABLET, Channel(1), Generation(generation), Step(step), Cookie(0))
