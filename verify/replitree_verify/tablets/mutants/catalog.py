"""Tablets that are broken on purpose: each is one function of the production code replaced, and must be caught.

Those of the specification that change nothing under our rules are in `docs/tablet-mutations.md`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from replitree.tablet.core import commit, election, recovery, zero
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.entries import ZeroEntry, encode
from replitree.tablet.core.zero import Verdict
from replitree.tablet.group import member, quorum
from replitree.tablet.group.effects import Fence, NotKnown, Procedure, Put
from replitree.tablet.group.ids import LOG, BlobId, Generation, GenStep, Step, log_entry
from replitree.tablet.group.member import Look, Scan
from replitree_verify.tablets.mutants.data import DATA_MUTANTS
from replitree_verify.tablets.mutants.late import LATE_MUTANTS
from replitree_verify.tablets.mutants.losses import LOSS_MUTANTS
from replitree_verify.tablets.mutants.lost_blobs import LOST_BLOB_MUTANTS
from replitree_verify.tablets.mutants.mutant import Mutant, mutated
from replitree_verify.tablets.mutants.store import STORE_MUTANTS

# --- blob groups ----------------------------------------------------------------------------------------------------------

_ask_all = quorum._ask_all  # noqa: SLF001 - mutants reach into what they break


def _unfenced_reads(numbers: quorum.Quorum, request: member.Request, wanted: int) -> Procedure[quorum.Replies]:
    open_request = replace(request, fence=None) if isinstance(request, Look | Scan) else request
    return (yield from _ask_all(numbers, open_request, wanted))


def _no_restoring(*_: object) -> Procedure[None]:
    yield from ()


def _damaged_is_absent(_: quorum.Quorum, views: Sequence[quorum.MemberView | None], blob: BlobId) -> bytes | None:
    return next((view.blobs[blob] for view in views if view is not None and blob in view.blobs), None)


def _no_issuer(fence: Fence | None, other: Fence) -> bool:
    return fence is not None and fence.generation > other.generation


# --- election and recovery ------------------------------------------------------------------------------------------------


def _zero_not_awaited(
    channels: Channels, generation: Generation, recovered: recovery.RecoveredLog
) -> Procedure[Won | NotElected]:
    entry = zero.zero_of(recovered.accepted)
    blob = log_entry(channels.tablet, generation, Step(0))
    yield Put(channels.group(LOG, generation), blob, encode(blob, entry))
    return Won(generation, recovered, entry)


_find_latest = recovery.find_latest


def _doubt_is_nothing(*arguments: Any) -> Procedure[Any]:
    found = yield from _find_latest(*arguments)
    return None if isinstance(found, NotKnown) else found


def _unchecked_references(channels: Channels, _: object, log: recovery.LogAsRead) -> Procedure[frozenset[BlobId]]:
    yield from ()
    return frozenset(blob for entry in log.entries.values() for blob in recovery.own_references(channels.tablet, entry))


def _beyond_the_mask(entry: ZeroEntry, step: Step) -> Verdict:
    found = zero.verdict(entry, step)
    return Verdict.TAIL if step > zero.last_step(entry) else found


def _steps_without_end(log: recovery.LogAsRead, generation: int, entry: ZeroEntry | None) -> range:
    found = [place.step for place in log.entries if place.generation == generation]
    begin = max(log.latest.entry.snapshot.step, 1) if generation == log.latest.entry.snapshot.generation else 1
    return range(begin, max([*found, 0 if entry is None else zero.last_step(entry), 0]) + 1)


_zero_of = zero.zero_of


def _generation_before(accepted: Any) -> ZeroEntry:
    """Name the generation after the one that wrote last: the one before the candidate's, when one was left out."""
    entry = _zero_of(accepted)
    if entry.predecessor.generation == 0:
        return entry
    return ZeroEntry(entry.snapshot, GenStep(Generation(2), entry.predecessor.step))


def _no_mask(accepted: Any) -> ZeroEntry:
    entry = _zero_of(accepted)
    return ZeroEntry(entry.snapshot, entry.predecessor)


def _mask_from_the_other_end(prefix: Step, steps: Any, size: int) -> tuple[int, ...]:
    bits = [size - 1 - (step - prefix - 1) for step in steps]
    return (sum(1 << bit for bit in bits) | 1 << (size - 1),) if size else ()


# --- commits --------------------------------------------------------------------------------------------------------------

_form, _confirm = commit.form, commit._confirm  # noqa: SLF001 - as above


def _dependencies_not_awaited(
    ledger: commit.Ledger, before: Sequence[commit.Pending]
) -> tuple[commit.Ledger, tuple[Step, ...]]:
    done = tuple(each.step for each in before if not each.missing and not each.is_committed)
    pending = tuple(structs.replace(each, is_committed=each.is_committed or each.step in done) for each in before)
    return structs.replace(ledger, pending=pending), done


def _references_not_awaited(ledger: commit.Ledger, draft: commit.Draft) -> Any:
    ledger, blobs = _form(ledger, draft)
    last = structs.replace(ledger.pending[-1], missing=frozenset(blob for blob, _ in blobs if blob.channel == LOG))
    return structs.replace(ledger, pending=(*ledger.pending[:-1], last)), blobs


def _confirmed_over_holes(ledger: commit.Ledger) -> commit.Ledger:
    steps = [each.step for each in ledger.pending if each.is_committed]
    left = tuple(each for each in ledger.pending if not each.is_committed)
    return structs.replace(ledger, pending=left, confirmed=max([ledger.confirmed, *steps]))


def _barrier_at_the_snapshot(ledger: commit.Ledger) -> commit.Ledger:
    after = _confirm(ledger)
    if after.barrier is None:
        return after
    return structs.replace(after, barrier=GenStep(after.snapshot.generation, Step(after.snapshot.step - 1)))


def _step_used_again(ledger: commit.Ledger, step: Step) -> commit.Ledger:
    return structs.replace(
        ledger, last=Step(step - 1), pending=tuple(each for each in ledger.pending if each.step < step)
    )


def _property(value: Callable[[quorum.Quorum], int]) -> property:
    return property(value)


_MUTANTS = (
    Mutant("reads-without-fence", "take_over_twice_away", "I3", ((quorum, "_ask_all", _unfenced_reads),)),
    Mutant("tail-not-restored", "take_over", "I5", ((quorum, "_restore", _no_restoring),)),
    Mutant("damaged-is-absent", "damaged", "I3", ((quorum, "_verdict", _damaged_is_absent),)),
    Mutant(
        "quorums-do-not-meet",
        "take_over_twice_away",
        "I3",
        ((quorum.Quorum, "cover", _property(lambda _: 1)), (quorum, "_unknown", lambda *_: 0)),
    ),
    Mutant(
        "fence-without-majority", "same_generation_of_two", "I1", ((quorum.Quorum, "fence", _property(lambda _: 1)),)
    ),
    Mutant("fence-without-issuer", "same_generation", "I1", ((member, "outranks", _no_issuer),)),
    Mutant("zero-entry-not-awaited", "take_over_twice_away", "I6", ((election, "open_generation", _zero_not_awaited),)),
    Mutant("doubt-is-nothing", "take_over_twice_away", "I3", ((recovery, "find_latest", _doubt_is_nothing),)),
    Mutant(
        "references-not-looked-for", "references", "I5", ((recovery, "_present_references", _unchecked_references),)
    ),
    Mutant(
        "predecessor-is-the-one-before", "generations_left_out", "I15", ((election, "zero_of", _generation_before),)
    ),
    Mutant(
        "declined-looked-at-again",
        "repeated_pair",
        "I4",
        ((recovery, "_steps", _steps_without_end), (recovery, "verdict", _beyond_the_mask)),
    ),
    Mutant("mask-left-out", "free_entries", "I3", ((election, "zero_of", _no_mask),)),
    Mutant("mask-from-the-other-end", "free_entries", "I15", ((zero, "_mask", _mask_from_the_other_end),)),
    Mutant("dependencies-not-awaited", "pipeline", "I5", ((commit, "_commit", _dependencies_not_awaited),)),
    Mutant("references-not-awaited", "references", "I6", ((commit, "form", _references_not_awaited),)),
    Mutant("confirmed-over-holes", "free_three", "I7", ((commit, "_confirm", _confirmed_over_holes),)),
    Mutant("barrier-at-the-snapshot", "snapshot_collected", "I15", ((commit, "_confirm", _barrier_at_the_snapshot),)),
    Mutant("step-used-again", "failing", "I11", ((commit, "failed", _step_used_again),)),
)

MUTANTS = {
    mutant.name: mutant
    for mutant in (*_MUTANTS, *DATA_MUTANTS, *LATE_MUTANTS, *STORE_MUTANTS, *LOSS_MUTANTS, *LOST_BLOB_MUTANTS)
}

__all__ = ["MUTANTS", "Mutant", "mutated"]
