"""Mutants of accepted losses: what an operator was not asked for is given up, nobody hears of it, or it comes back.

And one of a recovery that takes for lost what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replitree.tablet.core import election, losses
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.election import NotElected, Won, choose_generation, open_generation
from replitree.tablet.core.entries import ZeroEntry, encode
from replitree.tablet.core.losses import Assessment, LossRecord, assess
from replitree.tablet.core.recovery import MissingEntries, RecoveredLog, recover
from replitree.tablet.group import quorum
from replitree.tablet.group.effects import Fence, NotKnown, Procedure, Put
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Generation, GenStep, Step, log_entry
from replitree_verify.tablets.mutants.mutant import Mutant

_write_down, _raise_fences = losses._write_down, losses._raise_fences  # noqa: SLF001 - mutants reach into what they break
_verdict = quorum._verdict  # noqa: SLF001 - as above
_restore_kept, _compare = losses._restore_kept, losses._compare  # noqa: SLF001 - as above


def _not_done(*_: object) -> Procedure[None]:
    yield from ()


def _not_awaited(channels: Channels, generation: Generation, record: LossRecord) -> Procedure[None]:
    yield from _write_down(channels, generation, record)


def _recorded_last(
    channels: Channels, issuer: str, agreed: Assessment, record: LossRecord
) -> Procedure[Won | NotElected]:
    generation = yield from choose_generation(channels)
    if not isinstance(generation, int):
        return NotElected(None, generation)
    fence = Fence(Generation(generation - 1), issuer)
    for step in (
        _raise_fences(channels, fence),
        _compare(channels, fence, agreed),
        _restore_kept(channels, fence, agreed),
    ):
        refused = yield from step
        if refused is not None:
            return NotElected(generation, refused)
    opened = yield from open_generation(channels, generation, RecoveredLog(agreed.accepted))
    refused = yield from _write_down(channels, generation, record)
    return opened if refused is None else NotElected(generation, refused)


def _unfenced(channels: Channels, _: Fence | None, agreed: Assessment) -> Procedure[Any]:
    """Look again while others write."""
    found = yield from assess(channels)
    return None if found == agreed else NotKnown("it has changed")


def _whole_generation_counts(
    channels: Channels, generation: Generation, recovered: RecoveredLog
) -> Procedure[Won | NotElected]:
    """Let the first generation count up to its third step, should anybody find it."""
    zero = ZeroEntry(NOTHING, GenStep(Generation(1), Step(3)))
    blob = log_entry(channels.tablet, generation, Step(0))
    yield Put(channels.group(LOG, generation), blob, encode(blob, zero))
    return Won(generation, recovered, zero)


def _less_stays(channels: Channels, generation: Generation, recovered: RecoveredLog) -> Procedure[Won | NotElected]:
    return (yield from open_generation(channels, generation, RecoveredLog(recovered.accepted[:-1])))


def _one_damaged_copy_is_enough(
    numbers: quorum.Quorum, views: Sequence[quorum.MemberView | None], blob: BlobId
) -> bytes | NotKnown | None:
    """Take a blob for unreadable when one copy is, whatever the others are."""
    if any(view is not None and view.is_unsure(blob) for view in views):
        return NotKnown(f"a copy of {blob} is damaged")
    return _verdict(numbers, views, blob)


def _whatever_is_readable(channels: Channels, fence: Fence | None) -> Procedure[Any]:
    found = yield from recover(channels, fence)
    return RecoveredLog(found.readable) if isinstance(found, MissingEntries) else found


LOSS_MUTANTS = (
    Mutant("loss-not-compared", "loss_serving", "L1", ((losses, "_compare", _not_done),)),
    Mutant("less-stays-than-agreed", "loss_serving", "L1", ((losses, "open_generation", _less_stays),)),
    Mutant(
        "damage-spoils-other-copies", "damaged_confirmed", "I15", ((quorum, "_verdict", _one_damaged_copy_is_enough),)
    ),
    Mutant("loss-not-recorded", "loss", "L2", ((losses, "_write_down", _not_done),)),
    Mutant("loss-record-not-awaited", "loss_faults", "L2", ((losses, "_write_down", _not_awaited),)),
    Mutant("loss-recorded-last", "loss_candidate", "L2", ((losses, "accept", _recorded_last),)),
    Mutant("loss-accepted-by-a-candidate", "loss_candidate", "L2", ((election, "recover", _whatever_is_readable),)),
    Mutant("silence-is-loss", "loss_away", "L3", ((quorum.Quorum, "read", property(lambda each: each.cover)),)),
    Mutant("loss-not-mended", "loss_thin", "L4", ((losses, "_restore_kept", _not_done),)),
    Mutant("lost-entry-comes-back", "loss_away", "L4", ((losses, "open_generation", _whole_generation_counts),)),
    Mutant(
        "loss-without-fence",
        "loss_serving",
        "L1",
        (
            (losses, "_raise_fences", _not_done),
            (losses, "_compare", _unfenced),
            (losses, "_restore_kept", _not_done),
        ),
    ),
)
