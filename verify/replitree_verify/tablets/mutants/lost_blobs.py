"""Mutants of accepted losses of zero entries, snapshots, references, and of damage that is hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from replitree.tablet.core import election, losses, recovery
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.entries import LogEntry, ZeroEntry, encode
from replitree.tablet.core.losses import Assessment, LossRecord, assess
from replitree.tablet.core.mending import blobs_of
from replitree.tablet.core.recovery import Accepted, LogAsRead, MissingEntries, RecoveredLog
from replitree.tablet.core.zero import zero_of
from replitree.tablet.group import member, quorum
from replitree.tablet.group.effects import Blobs, Fence, NotKnown, Procedure, Put
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Generation, GenStep, Step, TabletId, log_entry
from replitree.tablet.group.member import Contents
from replitree_verify.tablets.mutants.mutant import Mutant

_build, _log_of, _own_references = recovery.build, recovery.log_of, recovery.own_references
_Build = recovery._Build  # noqa: SLF001 - mutants reach into what they break
_write_down, _counted = losses._write_down, losses._counted  # noqa: SLF001 - as above

# --- zero entries -----------------------------------------------------------------------------------------------------------


def _no_zero_entry_needed(
    log: LogAsRead, chain: tuple[Generation, ...], present: frozenset[BlobId]
) -> RecoveredLog | MissingEntries:
    zeros: Mapping[Generation, ZeroEntry] = {each: ZeroEntry(NOTHING, NOTHING) for each in chain} | dict(log.zeros)
    return _build(replace(log, zeros=zeros), chain, present)


def _what_follows_stays(built: Any, place: GenStep) -> None:
    """Keep the entries of a generation of which nobody knows what it follows."""
    if not built.missing:
        built.readable = built.accepted
    built.accepted = []
    built.missing.append(place)


def _all_zeros_needed(latest: recovery.Latest, blobs: Any, _: object = ()) -> LogAsRead | NotKnown:
    return _log_of(latest, blobs)


def _nothing(_: LogAsRead) -> Accepted:
    return ()


def _one_less_for_the_next(
    channels: Channels, generation: Generation, recovered: RecoveredLog
) -> Procedure[Won | NotElected]:
    """Lead with what was found, and leave the last of it out of what the zero entry says."""
    zero = zero_of(recovered.accepted[:-1])
    blob = log_entry(channels.tablet, generation, Step(0))
    yield Put(channels.group(LOG, generation), blob, encode(blob, zero))
    return Won(generation, recovered, zero)


# --- snapshots and references -----------------------------------------------------------------------------------------------


def _of_plain_entries(tablet: TabletId, entry: LogEntry) -> tuple[BlobId, ...]:
    return () if entry.is_snapshot else _own_references(tablet, entry)


def _unexplained(channels: Channels, generation: Generation, record: LossRecord) -> Procedure[Any]:
    return (yield from _write_down(channels, generation, structs.replace(record, unreadable=())))


def _what_comes_after_stays(channels: Channels, log: LogAsRead, looked: Blobs) -> tuple[Accepted, tuple[str, ...]]:
    """Leave out the entries whose blobs are lost, and no other."""
    accepted, lost = _counted(channels, log, looked)
    present = {blob for blob, _ in looked.found}
    later = ((place, each) for place, each in log.entries.items() if not accepted or place > accepted[-1][0])
    whole = tuple((place, each) for place, each in later if present.issuperset(_own_references(channels.tablet, each)))
    return (*accepted, *whole), lost


def _entries_only(tablet: TabletId, generation: Generation, accepted: Accepted) -> tuple[BlobId, ...]:
    return tuple(blob for blob in blobs_of(tablet, generation, accepted) if blob.channel == LOG)


def _unfenced(channels: Channels, _: Fence | None, agreed: Assessment) -> Procedure[Any]:
    found = yield from assess(channels)
    return None if found == agreed else NotKnown("it has changed")


def _not_done(*_: object) -> Procedure[None]:
    yield from ()


# --- hidden damage ----------------------------------------------------------------------------------------------------------


def _one_is_enough(replies: quorum.Replies, is_unsure: Callable[[Contents], bool]) -> int:
    """Let one member that can't tell what it had be as many as it takes."""
    if any(isinstance(reply, Contents) and is_unsure(reply) for reply in replies):
        return len(replies)
    return sum(not isinstance(reply, Contents) for reply in replies)


LOST_BLOB_MUTANTS = (
    Mutant(
        "lost-zero-entry-not-missed",
        "loss_zero",
        "L5",
        ((recovery, "build", _no_zero_entry_needed), (losses, "build", _no_zero_entry_needed)),
    ),
    Mutant("what-follows-a-lost-zero-entry-stays", "loss_zero", "L5", ((_Build, "lose", _what_follows_stays),)),
    Mutant("snapshot-before-a-lost-zero-entry-goes", "loss_zero_snapshot", "L5", ((losses, "_snapshot_of", _nothing),)),
    Mutant(
        "first-zero-entry-needed",
        "loss_zero_first",
        "L5",
        ((recovery, "log_of", _all_zeros_needed), (losses, "log_of", _all_zeros_needed)),
    ),
    Mutant("one-less-for-the-next", "loss_reference", "L4", ((election, "open_generation", _one_less_for_the_next),)),
    Mutant("state-of-a-snapshot-not-looked-for", "loss_state", "L7", ((losses, "own_references", _of_plain_entries),)),
    Mutant("lost-state-not-in-the-record", "loss_state", "L2", ((losses, "_write_down", _unexplained),)),
    Mutant(
        "loss-of-state-without-fence",
        "loss_state_serving",
        "L1",
        ((losses, "_raise_fences", _not_done), (losses, "_compare", _unfenced), (losses, "_restore_kept", _not_done)),
    ),
    Mutant("collected-log-stays", "loss_state_rot", "L4", ((losses, "_is_passed_over", lambda *_: False),)),
    Mutant("references-of-a-loss-not-looked-for", "loss_reference", "L7", ((losses, "own_references", lambda *_: ()),)),
    Mutant(
        "what-follows-a-lost-reference-stays", "loss_reference", "L5", ((losses, "_counted", _what_comes_after_stays),)
    ),
    Mutant("kept-references-not-mended", "loss_reference", "L7", ((losses, "blobs_of", _entries_only),)),
    Mutant("hidden-damage-is-nothing", "damaged_hidden", "I3", ((quorum, "_doubts", lambda *_, **__: False),)),
    Mutant("member-answers-as-if-it-had-nothing", "loss_hidden", "L6", ((member, "visible_doubts", lambda *_: ()),)),
    Mutant("one-hides-everything", "loss_hidden_one", "L4", ((quorum, "_unknown", _one_is_enough),)),
)
