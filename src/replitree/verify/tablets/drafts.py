"""What the leaders of a model commit."""

from __future__ import annotations

from replitree.tablet.commit import Draft, Ledger
from replitree.tablet.ids import BlobId, Channel, Cookie, Step
from replitree.verify.tablets.model import Kind


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
            blob = BlobId(ledger.tablet, Channel(1), ledger.generation, step, Cookie(0))
            return Draft(parallel=((blob, body),))
        case Kind.SNAPSHOT:
            return Draft(is_snapshot=True)
        case Kind.TOTAL:
            return Draft(is_snapshot=True, is_total=True)
        case Kind.READ:
            raise AssertionError("a read forms no entry")
