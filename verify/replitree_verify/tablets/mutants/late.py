"""Mutants of what is looked at between states and after them: windows, marks that never sink, reads, successors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from replitree.tablet.core import commit, election, entries, probing, zero
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.commit import Ledger
from replitree.tablet.core.entries import ZeroEntry
from replitree.tablet.group import member, quorum
from replitree.tablet.group.effects import Collection, Fence, FencedUpTo, NotKnown, Overtaken, Procedure, ReadFence
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Generation, GenStep, Step, log_entry
from replitree.tablet.group.member import Barrier, Done, Holdings, Reply
from replitree_verify.tablets import members
from replitree_verify.tablets.model import TABLET
from replitree_verify.tablets.mutants.equivalent import NAMED_WHEN_COMMITTED
from replitree_verify.tablets.mutants.mutant import Mutant

NOTHING_IS_FORGOTTEN = (members, "is_dead", lambda *_: False)
"""What usually can't change anything any more may do so in a mutant."""


_form, _confirm, _zero_of = commit.form, commit._confirm, zero.zero_of  # noqa: SLF001
_advanced, _member_sweep, _write = member.advanced, member._sweep, member._write  # noqa: SLF001 - mutants reach into what they break


def _fence_ends_with_the_zero_entry(
    held: Holdings, blobs: tuple[tuple[BlobId, bytes], ...], restorer: Fence | None
) -> tuple[Holdings, Reply]:
    """Take blobs of fenced generations again once the next one has begun."""
    fence = held.fence(TABLET)
    if fence is None or held.index(log_entry(TABLET, Generation(fence.generation + 1), Step(0))) is None:
        return _write(held, blobs, restorer)
    after, reply = _write(replace(held, fences=()), blobs, restorer)
    return replace(after, fences=held.fences), reply


def _snapshot_named_at_once(ledger: Ledger, draft: commit.Draft) -> Any:
    ledger, blobs = _form(ledger, draft)
    if draft.is_snapshot:
        ledger = structs.replace(ledger, snapshot=GenStep(ledger.generation, ledger.last))
    return ledger, blobs


def _not_counted(ledger: Ledger, draft: commit.Draft) -> Any:
    formed, blobs = _form(ledger, draft)
    return structs.replace(formed, flying=ledger.flying, flying_bytes=ledger.flying_bytes), blobs


def _snapshot_named_when_idle(ledger: Ledger, draft: commit.Draft) -> Any:
    """Name the snapshot only when nothing is on its way."""
    formed, blobs = _form(structs.replace(ledger, snapshot=NOTHING) if ledger.pending else ledger, draft)
    return structs.replace(formed, snapshot=ledger.snapshot), blobs


def _mask_too_long(accepted: Any) -> ZeroEntry:
    entry = _zero_of(accepted)
    if not accepted:
        return entry
    steps = entry.tail_steps + 1
    return ZeroEntry(entry.snapshot, entry.predecessor, steps, entry.tail_mask or (0,))


def _barrier_takes_the_snapshot(ledger: Ledger) -> Ledger:
    after = _confirm(ledger)
    return after if after.barrier is None else structs.replace(after, barrier=after.snapshot)


def _deposed_may_collect(held: Holdings, collection: Collection) -> tuple[Holdings, Done | Overtaken]:
    after, reply = _member_sweep(replace(held, fences=()), collection)
    return replace(after, fences=held.fences), reply


def _fence_swept(held: Holdings, collection: Collection) -> tuple[Holdings, Done | Overtaken]:
    after, reply = _member_sweep(held, collection)
    return replace(after, fences=()), reply


def _no_restoring(*_: object) -> Procedure[None]:
    yield from ()


def _own_fence_refuses(fence: Fence | None, blob: BlobId, _: Fence | None) -> bool:
    return fence is None or blob.generation > fence.generation


def _whoever_asks_last(known: Fence | None, fence: Fence) -> bool:
    return known is not None and known.generation == fence.generation and known.issuer != fence.issuer


def _any_order(barrier: Barrier, collection: Collection) -> Barrier:
    return replace(_advanced(replace(barrier, order=(Generation(0), 0)), collection), order=collection.order)


def _answer_ignored(channels: Channels, generation: Generation) -> Procedure[Any]:
    yield ReadFence(channels.group(LOG, generation), channels.tablet)
    return probing.StillLeads()


def _successor_overlooked(channels: Channels, generation: Generation) -> Procedure[Any]:
    """Take a fence of the own generation for one's own."""
    known = yield ReadFence(channels.group(LOG, generation), channels.tablet)
    assert isinstance(known, FencedUpTo | NotKnown)
    if isinstance(known, NotKnown):
        return known
    return Overtaken(Generation(known.generation + 1)) if known.generation > generation else probing.StillLeads()


LATE_MUTANTS = (
    Mutant("fence-ends-with-the-zero-entry", "deposed", "I2", ((member, "_write", _fence_ends_with_the_zero_entry),)),
    Mutant("snapshot-named-at-once", "snapshot_named", "I8", ((commit, "form", _snapshot_named_at_once),)),
    Mutant("total-snapshot-named-when-committed", "total_snapshot_named", "I8", NAMED_WHEN_COMMITTED),
    Mutant("snapshot-named-when-idle", "snapshot_named", "I9", ((commit, "form", _snapshot_named_when_idle),)),
    Mutant(
        "mask-too-long",
        "take_over",
        "I10",
        ((election, "zero_of", _mask_too_long), (entries, "_flaw_of_zero", lambda *_: None)),
    ),
    Mutant(
        "barrier-takes-the-snapshot", "successor_collected", "I12", ((commit, "_confirm", _barrier_takes_the_snapshot),)
    ),
    Mutant(
        "deposed-may-collect",
        "snapshot_collected",
        "I13",
        ((member, "_sweep", _deposed_may_collect), NOTHING_IS_FORGOTTEN),
    ),
    Mutant("fence-collected", "collections", "I18", ((member, "_sweep", _fence_swept), NOTHING_IS_FORGOTTEN)),
    Mutant("read-whatever-the-answer", "reads", "I14", ((probing, "probe", _answer_ignored),)),
    Mutant("successor-overlooked", "reads", "I14", ((probing, "probe", _successor_overlooked),)),
    Mutant("copies-left-as-found", "successor", "I16", ((quorum, "_restore", _no_restoring),)),
    Mutant("own-fence-refuses-restoring", "successor", "I17", ((member, "may_write", _own_fence_refuses),)),
    Mutant("fence-sinks", "any_order", "I18", ((member, "outranks", _whoever_asks_last),)),
    Mutant("collections-in-any-order", "collections", "I19", ((member, "advanced", _any_order), NOTHING_IS_FORGOTTEN)),
    Mutant("window-without-end", "window", "I20", ((Ledger, "has_room", property(lambda _: True)),)),
    Mutant("entries-not-counted", "window", "I20", ((commit, "form", _not_counted),)),
)
