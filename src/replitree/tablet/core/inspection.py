"""A report on a log, for an operator: its generations, their zero entries, and the outcome of a recovery now.

A survey only reads.  While a leader writes it may find things in doubt that it would not find a moment later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.entries import Entry, LogEntry, ZeroEntry, decode
from replitree.tablet.core.envelope import BadEntry
from replitree.tablet.core.recovery import MissingEntries, RecoveredLog, RecoveryFailed, own_references, recover
from replitree.tablet.core.zero import Verdict, verdict
from replitree.tablet.group.effects import Blobs, NotKnown, Overtaken, Procedure, Range, ReadBlobs
from replitree.tablet.group.ids import ENTRY, LOG, NOTHING, BlobId, Generation, GenStep, GroupId, Step, first_of
from replitree.tablet.group.quorum import end_of


@dataclass(frozen=True, slots=True)
class Survey:
    """The log of a tablet as it was found.

    Attributes
    ----------
    entries
        Every log entry that is stored, by its id.
    flaws
        Entries that are stored and can't be right: why.
    doubtful
        Blobs of which it can't be told whether they were ever stored.
    outcome
        What a candidate would find now.
    missing
        Blobs of the snapshot at the log's begin that are not there.
    """

    entries: Mapping[BlobId, Entry]
    flaws: tuple[str, ...]
    doubtful: tuple[BlobId, ...]
    outcome: RecoveredLog | RecoveryFailed
    missing: tuple[BlobId, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """The report on a generation.

    Attributes
    ----------
    generation, entries, first, last
        Which; how many entries are stored besides the zero entry, the first and the last step.
    zero
        Its zero entry, in words; None when there is none.
    confirmed
        Up to where its last entry says that all is committed.
    snapshots
        Steps of snapshots.
    decisions
        Of its tail: step, and what became, or would become, of it.
    """

    generation: int
    entries: int
    first: int | None
    last: int | None
    zero: Mapping[str, object] | None
    confirmed: int
    snapshots: tuple[int, ...]
    decisions: tuple[tuple[int, str], ...]


def survey(channels: Channels) -> Procedure[Survey | Overtaken | NotKnown]:
    """Read the log, and find out what a candidate would accept, without changing anything."""
    found, doubtful = list[tuple[BlobId, bytes]](), list[BlobId]()
    begin = first_of(channels.tablet, LOG, NOTHING)
    for group in dict.fromkeys(each.group for each in channels.intervals()):
        answer = yield Range(group, begin, end_of(begin))
        if not isinstance(answer, Blobs):
            refused: Overtaken | NotKnown = answer
            return refused
        found += answer.found
        doubtful += answer.doubtful
    entries, flaws = dict[BlobId, Entry](), list[str]()
    for blob, data in found:
        try:
            entries[blob] = decode(blob, data)
        except BadEntry as error:
            flaws.append(str(error))
    # Without a fence: a leader that runs goes on, and what is in doubt may be so for a moment only.
    outcome = yield from recover(channels, None)
    # The blobs of the snapshot with which a candidate would begin.
    wanted, missing = dict[GroupId, list[BlobId]](), list[BlobId]()
    if isinstance(outcome, RecoveredLog) and outcome.accepted and outcome.accepted[0][1].is_snapshot:
        for blob in own_references(channels.tablet, outcome.accepted[0][1]):
            wanted.setdefault(channels.group(blob.channel, blob.generation), []).append(blob)
    for group, blobs in wanted.items():
        answer = yield ReadBlobs(group, tuple(sorted(blobs)))
        there = [blob for blob, _ in answer.found] if isinstance(answer, Blobs) else []
        missing += [blob for blob in blobs if blob not in there]
    return Survey(entries, tuple(flaws), tuple(doubtful), outcome, tuple(missing))


def generations_of(found: Survey) -> tuple[GenerationReport, ...]:
    """Return what was found of each generation, oldest first."""
    zeros = {blob.generation: entry for blob, entry in found.entries.items() if isinstance(entry, ZeroEntry)}
    own = dict[Generation, dict[GenStep, LogEntry]]()
    for blob, entry in found.entries.items():
        if isinstance(entry, LogEntry) and blob.cookie == ENTRY:
            own.setdefault(blob.generation, {})[blob.place] = entry
    reports: list[GenerationReport] = []
    # A generation may have entries and no zero entry that can be read, or the other way round.
    for generation in sorted({*zeros, *own}):
        entries = own.get(generation, {})
        steps = [place.step for place in sorted(entries)]
        zero, begin = zeros.get(generation), None
        if zero is not None:
            counted = [Step(zero.predecessor.step + 1 + bit) for bit in range(zero.tail_steps)]
            begin = {
                "snapshot": str(zero.snapshot),
                "predecessor": str(zero.predecessor),
                "tail_accepted": [int(step) for step in counted if verdict(zero, step) is Verdict.PRESENT],
                "tail_declined": [int(step) for step in counted if verdict(zero, step) is Verdict.IGNORED],
            }
        reports.append(
            GenerationReport(
                int(generation),
                len(steps),
                min(steps, default=None),
                max(steps, default=None),
                begin,
                max((entry.confirmed for entry in _entries(found, generation)), default=0),
                tuple(place.step for place, entry in sorted(entries.items()) if entry.is_snapshot),
                _decisions(found, generation, zeros, steps),
            )
        )
    return tuple(reports)


def _decisions(
    found: Survey, generation: Generation, zeros: Mapping[Generation, ZeroEntry], steps: Sequence[Step]
) -> tuple[tuple[int, str], ...]:
    """Return what became of the steps that were not known to be confirmed."""
    follower = next((zero for zero in zeros.values() if zero.predecessor.generation == generation), None)
    if follower is not None:
        tail = [step for step in steps if step > follower.predecessor.step]
        words = {Verdict.PRESENT: "accepted", Verdict.IGNORED: "declined"}
        return tuple((int(step), words[verdict(follower, step)]) for step in tail)
    if any(each > generation for each in zeros):
        return tuple((int(step), "passed over") for step in steps)
    if not isinstance(found.outcome, RecoveredLog):
        return ()
    declined = [place.step for place in found.outcome.declined]
    accepted = [place.step for place, _ in found.outcome.accepted if place.generation == generation]
    confirmed = max((entry.confirmed for entry in _entries(found, generation)), default=0)
    tail = [step for step in steps if step > confirmed]
    return tuple(
        (int(step), "would be accepted" if step in accepted else "would be declined")
        for step in tail
        if step in accepted or step in declined
    )


def _entries(found: Survey, generation: Generation) -> list[LogEntry]:
    return [
        entry for blob, entry in found.entries.items() if blob.generation == generation and isinstance(entry, LogEntry)
    ]


def complaints(found: Survey) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is wrong with a log, and what is not known of it."""
    wrong, unknown = (
        list(found.flaws),
        [f"blob {blob}: can't tell whether it was ever stored" for blob in found.doubtful],
    )
    match found.outcome:
        case MissingEntries(places):
            wrong += [f"entry {place} was confirmed and is not there" for place in places]
        case NotKnown(reason):
            unknown.append(f"the chain of generations: {reason}")
        case Overtaken(generation):
            unknown.append(f"the chain of generations: generation {generation} began meanwhile; look again")
        case RecoveredLog():
            wrong += [f"blob {blob} of the snapshot is not there" for blob in found.missing]
    return tuple(wrong), tuple(unknown)
