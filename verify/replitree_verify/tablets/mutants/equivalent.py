"""Changes of the production code that change nothing: `docs/tablet-mutations.md` says why, and no model finds anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from replitree.tablet.core import commit, election
from replitree.tablet.core.commit import Ledger, Pending
from replitree.tablet.core.entries import ZeroEntry
from replitree.tablet.core.recovery import Accepted
from replitree.tablet.core.zero import zero_of
from replitree.tablet.group import quorum
from replitree.tablet.group.effects import FenceRaised, GroupEffect, NotKnown, Overtaken, Procedure, RaiseFence, Stored
from replitree.tablet.group.ids import BlobId, GenStep, Step
from replitree_verify.tablets.mutants.mutant import Mutant

_put, _carry_out, _commit = quorum.put, quorum.carry_out, commit._commit  # noqa: SLF001 - mutants reach into what they break


def _put_again(numbers: quorum.Quorum, blob: BlobId, data: bytes) -> Procedure[Stored | Overtaken | NotKnown]:
    """Send a blob once more when the fence has refused it."""
    outcome = yield from _put(numbers, blob, data)
    return (yield from _put(numbers, blob, data)) if isinstance(outcome, Overtaken) else outcome


def _named_when_committed(ledger: Ledger, before: Sequence[Pending]) -> tuple[Ledger, tuple[Step, ...]]:
    """Name a snapshot as soon as it is committed, although what is before it may not be."""
    after, steps = _commit(ledger, before)
    named = [each.step for each in after.pending if each.step in steps and each.entry.is_snapshot]
    place = max([after.snapshot, *(GenStep(after.generation, step) for step in named)])
    return structs.replace(after, snapshot=place), steps


def _not_fenced_at_once(numbers: quorum.Quorum, effect: GroupEffect) -> Procedure[Any]:
    """Leave the fence to the reads that follow."""
    return FenceRaised() if isinstance(effect, RaiseFence) else (yield from _carry_out(numbers, effect))


def _no_mask(accepted: Accepted) -> ZeroEntry:
    entry = zero_of(accepted)
    return ZeroEntry(entry.snapshot, entry.predecessor)


_PUT_AGAIN = ((quorum, "put", _put_again),)
NAMED_WHEN_COMMITTED = ((commit, "_commit", _named_when_committed),)

EQUIVALENTS = (
    Mutant("refused-put-repeated", "take_over", "", _PUT_AGAIN),
    Mutant("refused-put-repeated", "deposed", "", _PUT_AGAIN),
    Mutant("refused-put-repeated", "store_take_over", "", _PUT_AGAIN),
    Mutant("snapshot-named-when-committed", "snapshot_named", "", NAMED_WHEN_COMMITTED),
    Mutant("snapshot-named-when-committed", "snapshot_collected", "", NAMED_WHEN_COMMITTED),
    Mutant("mask-left-out-of-chains", "pipeline", "", ((election, "zero_of", _no_mask),)),
    Mutant("reads-of-too-few", "take_over", "", ((quorum.Quorum, "cover", property(lambda _: 1)),)),
    Mutant("fence-of-too-few", "same_generation", "", ((quorum.Quorum, "fence", property(lambda _: 1)),)),
    Mutant("fence-left-to-reads", "take_over", "", ((quorum, "carry_out", _not_fenced_at_once),)),
)
"""Each with a model in which it would be seen if it did anything; `invariant` is empty."""
