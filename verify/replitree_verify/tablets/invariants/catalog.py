"""What must hold of a tablet, whatever happens.  The numbers are those of `docs/tablet-invariants.md`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from replitree.tablet.core.election import NotElected, Won
from replitree.tablet.core.entries import MASK_BITS, LogEntry, ZeroEntry, decode
from replitree.tablet.core.recovery import MissingEntries, own_references
from replitree.tablet.group.effects import NotKnown
from replitree.tablet.group.ids import ENTRY, LOG, NOTHING, SYNC, BlobId, Cookie, Generation, GenStep, Step, log_entry
from replitree.tablet.group.member import Holdings
from replitree_verify.tablets.invariants.aftermath import broken_aftermath
from replitree_verify.tablets.invariants.data import base_of, broken_fences, broken_needs
from replitree_verify.tablets.invariants.kept import Truth, broken_state, truth_of
from replitree_verify.tablets.invariants.losses import broken_acceptance, broken_loss, given_up, is_wrongly_missed
from replitree_verify.tablets.model import TABLET
from replitree_verify.tablets.space import Space
from replitree_verify.tablets.state import LEADING, Move, TabletState

Places = tuple[tuple[int, int], ...]


class TabletChecker:
    """The invariants over the states of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._stored: dict[Any, str | None] = {}
        self._changes: dict[tuple[int, int], str | None] = {}

    def broken_step(self, before: TabletState, move: Move, state: TabletState, is_new: bool = True) -> str | None:
        """Return what is wrong with a move, or with the state that it led to, or None."""
        # Most moves change no member, and each change is judged once.
        pairs = () if before.held is state.held else zip(before.held, state.held, strict=True)
        for pair in (each for each in pairs if each[0] != each[1]):
            if pair not in self._changes:
                self._changes[pair] = broken_change(*(self._space.holdings[number] for number in pair))
            if self._changes[pair] is not None:
                return self._changes[pair]
        # A known state was checked, but an election, a commit and a read are checked with what led to them.
        if not is_new and move.election is None and not move.committed and move.read is None:
            return None
        window = self._space.model.steps_max
        for position in state.seats:
            pending = self._space.ledger_of(position).pending if position[0] == LEADING else ()
            if sum(not each.is_committed for each in pending) > window:
                return f"I20: more than {window} entries are on their way"
        if move.read is not None and not set(move.read[0]) <= set(move.read[1]):
            return f"I14: clients had heard {move.read[0]} before this read began, and it shows {move.read[1]}"
        if move.election is None and not move.committed:
            return self._broken_log(state)
        held = tuple(self._space.holdings[number] for number in state.held)
        if isinstance(move.election, Won):
            return (
                self._broken_loss(state, held, move)
                or self._broken_election(state, held, move.election)
                or self._broken_log(state)
            )
        if isinstance(move.election, NotElected):
            return self._broken_refusal(held, move.election)
        return self._broken_commit(state, held, move.committed)

    def _broken_election(self, state: TabletState, held: tuple[Holdings, ...], result: Won) -> str | None:
        model, generation = self._space.model, int(result.generation)
        write = model.write
        # Of two leaders of one generation, which I1 finds below, the newer one.
        own = next(places for each, places in reversed(state.elected) if each == generation)
        if sum(each == generation for each, _ in state.elected) > 1:
            return f"I1: generation {generation} has two leaders"
        if copies(held, log_entry(TABLET, result.generation, Step(0))) < write:
            return f"I6: generation {generation} leads before its zero entry is stored"
        broken = broken_fences(model, held, result.generation) if model.data_members else None
        if broken is None and model.collects_data:
            broken = broken_needs(model, result.recovered.accepted, held, write)
        if broken is not None:
            return broken
        if flaw_of_mask(result.zero):
            return f"I10: the zero entry of generation {generation} has {flaw_of_mask(result.zero)}"
        lost = lost_by(state, result)
        if lost and not set(lost) <= given_up(held, 0, generation, write):
            number = "L2" if model.has_operators else "I3"
            return f"{number}: {lost[0]} was acknowledged, and generation {generation} does not have it"
        return self._broken_past(state, held, result, own) or _broken_closure(held, result, write)

    def _broken_loss(self, state: TabletState, held: tuple[Holdings, ...], move: Move) -> str | None:
        if move.loss is None:
            return None
        assert isinstance(move.election, Won)
        asked = tuple(self._space.holdings[number] for number in move.loss.asked)
        lost = lost_by(state, move.election)
        kept = [(int(place[0]), int(place[1])) for place, _ in move.loss.agreed.accepted]
        # As the state was when the operator was asked: its own election is what is judged.
        before = state._replace(elected=tuple(each for each in state.elected if each[0] != move.election.generation))
        return broken_loss(move.election, move.loss.agreed, lost, held, asked, self._space.model.write) or broken_state(
            self._truth(before, held), kept
        )

    def _broken_past(self, state: TabletState, held: tuple[Holdings, ...], result: Won, own: Places) -> str | None:
        """I4: what a leader accepted stays accepted, unless it was given up, and what it declined stays declined."""
        generation, write = int(result.generation), self._space.model.write
        base = base_of(result.recovered.accepted)
        for other, places in state.elected:
            older, newer = sorted(((other, places), (generation, own)))
            # What a snapshot covers need not be found any more, in either of them.
            since = max(base, min(newer[1], default=(0, 0)) if base != (0, 0) else (0, 0))
            before = [place for place in older[1] if place >= since]
            now = [place for place in newer[1] if place[0] < older[0] and place >= since]
            if other == generation or before == now:
                continue
            if not set(now) < set(before) or set(before) - set(now) - given_up(held, older[0], newer[0], write):
                return f"I4: generation {older[0]} had {before} before it, generation {newer[0]} has {now}"
        return None

    def _broken_refusal(self, held: tuple[Holdings, ...], result: NotElected) -> str | None:
        """I15: what is missing was deleted too early, or forgotten, if it can be read on enough members."""
        model, reason = self._space.model, result.reason
        if not isinstance(reason, MissingEntries) or result.generation is None:
            # Where nothing is damaged, only two different contents of one blob can confuse a candidate.
            if isinstance(reason, NotKnown) and "differ" in reason.reason and not model.has_damage:
                return f"I11: {reason.reason}"
            return None
        if not model.has_damage or is_wrongly_missed(held, reason.places, int(result.generation), model.write):
            return f"I15: generation {result.generation} misses {reason.places}"
        return None

    def _broken_commit(self, state: TabletState, held: tuple[Holdings, ...], committed: Places) -> str | None:
        entries, write = entries_of(held), self._space.model.write
        for generation, step in committed:
            for other, places in state.elected:
                # What lies before the first place that a leader has found is in its snapshot: it has not declined that.
                covered = min(places, default=(0, 0))
                is_declined = other > generation and (generation, step) not in places and (generation, step) >= covered
                # Unless an operator gave the entry up: then no leader can have it.
                if is_declined and (generation, step) not in given_up(held, generation, other, write):
                    return f"I2: {(generation, step)} was acknowledged after generation {other} had declined it"
            place = GenStep(Generation(generation), Step(step))
            entry = entries.get(place)
            if entry is None:  # damaged on all members since it was stored
                continue
            blobs = (log_entry(TABLET, *place), *own_references(TABLET, entry))
            if any(copies(held, blob) < write for blob in blobs):
                return f"I6: {place} was acknowledged before all of it was stored"
            for each in entry.depends_on:
                if copies(held, log_entry(TABLET, place.generation, each)) < write:
                    return f"I5: {place} was acknowledged before step {each}, which it depends on"
        return self._broken_log(state)

    def _broken_log(self, state: TabletState) -> str | None:
        """Look at what the members hold, once for each value; where a loss may be accepted, and each thing that counts."""
        model = self._space.model
        # By the least that the verdict depends on: most states have the holdings of an earlier one, on whichever members.
        members = (*sorted(state.held[: model.members]), *sorted(state.held[model.members :]))
        known = (members, state.acked, state.elected) if model.has_operators and model.aftermath else members
        if known not in self._stored:
            held = tuple(self._space.holdings[number] for number in members)
            broken = broken_log(held, model.write)
            if broken is None and model.has_operators and model.aftermath:
                broken = broken_acceptance(self._truth(state, held), held)
            elif broken is None and model.aftermath:
                broken = broken_aftermath(model, held)
            self._stored[known] = broken
        return self._stored[known]

    def _truth(self, state: TabletState, held: tuple[Holdings, ...]) -> Truth:
        model, last = self._space.model, max(generation for generation, _ in state.elected)
        return truth_of(model, state.acked, state.elected, given_up(held, 0, last, model.write))


def flaw_of_mask(zero: ZeroEntry) -> str | None:
    """I10: the mask has as many bits as there are steps, and ends with a step that counts."""
    if len(zero.tail_mask) != -(-zero.tail_steps // MASK_BITS):
        return "a mask of another length"
    last = zero.tail_steps - 1
    if zero.tail_steps and zero.tail_mask[-1] >> (last % MASK_BITS) != 1:
        return "a mask that does not end with a step that counts"
    return None


def broken_change(before: Holdings, after: Holdings) -> str | None:
    """Return what is wrong with how one member has changed: what never sinks has, or a deposed leader has collected."""
    fences = dict(after.fences)
    for tablet, fence in before.fences:
        if tablet not in fences or fences[tablet].generation < fence.generation:
            return f"I18: the fence at {fence.generation} has sunk"
    for tablet, channel, barrier in before.barriers:
        new = after.barrier(tablet, channel)
        # A barrier goes back in none of its parts: what was deleted must not be asked for again.
        if (new.order, new.soft, new.hard) != (
            max(new.order, barrier.order),
            max(new.soft, barrier.soft),
            max(new.hard, barrier.hard),
        ):
            return f"I19: a collection of order {new.order} came after {barrier.order}, with the barrier at {new.soft}"
    for tablet, channel, barrier in after.barriers:
        # The fence from before the change: a leader that is deposed later has collected in time.
        known = before.fence(tablet)
        if barrier != before.barrier(tablet, channel) and known is not None and barrier.order[0] <= known.generation:
            return f"I13: the leader of generation {barrier.order[0]} has collected behind the fence"
    return None


def lost_by(state: TabletState, result: Won) -> Places:
    """Return what was acknowledged before a leader's generation, and is neither in what it accepted nor before its snapshot."""
    own, base = {place for place, _ in result.recovered.accepted}, base_of(result.recovered.accepted)
    return tuple(place for place in state.acked if place[0] < result.generation and place >= base and place not in own)


def _broken_closure(held: tuple[Holdings, ...], result: Won, write: int) -> str | None:
    """I5: with an entry comes all that it depends on, stored for good."""
    accepted = dict(result.recovered.accepted)
    base = base_of(result.recovered.accepted)
    for place, entry in accepted.items():
        # A snapshot that covers the rest stands for what it depends on.
        for step in () if entry.is_snapshot and place == base else entry.depends_on:
            on = GenStep(place.generation, step)
            if on >= base and on not in accepted:
                return f"I5: {place} is accepted, and {on}, which it depends on, is not"
        missing = [blob for blob in own_references(TABLET, entry) if copies(held, blob) < write]
        if missing or copies(held, log_entry(TABLET, *place)) < write:
            return f"I5: {place} is accepted and not stored for good"
    return None


# --- what is stored -------------------------------------------------------------------------------------------------------


def copies(held: tuple[Holdings, ...], blob: BlobId) -> int:
    """Return how many members have a blob, or had it: they were told to delete it, or can't tell any more."""
    return sum(
        each.index(blob) is not None
        or each.barrier(blob.tablet, blob.channel).has_swept(blob)
        or any(first <= blob <= last for first, last in each.doubts)
        for each in held
    )


def entries_of(held: tuple[Holdings, ...], cookie: Cookie = ENTRY) -> Mapping[GenStep, LogEntry]:
    """Return the log entries that any member has, by place; with `SYNC` the sync entries."""
    found = dict[GenStep, LogEntry]()
    for each in held:
        for blob, data in zip(each.names, each.data, strict=True):
            if _is_entry(blob, cookie) and data is not None:
                entry = decode(blob, data)
                assert isinstance(entry, LogEntry)
                found[blob.place] = entry
    return found


def _is_entry(blob: BlobId, cookie: Cookie = ENTRY) -> bool:
    return blob.channel == LOG and blob.step > 0 and blob.cookie == cookie


def broken_log(held: tuple[Holdings, ...], write: int) -> str | None:
    """Return what is wrong with what the members hold together, or None."""
    contents = dict[BlobId, bytes | None]()
    for each in held:
        for blob, data in zip(each.names, each.data, strict=True):
            if data is not None and contents.setdefault(blob, data) != data:
                return f"I11: {blob} has two contents"
    entries = entries_of(held)
    for place, entry in (*entries.items(), *entries_of(held, SYNC).items()):
        # Without step 0: that the zero entry is stored is I6.
        for step in range(1, entry.confirmed + 1):
            if copies(held, log_entry(TABLET, place.generation, Step(step))) < write:
                return f"I7: {place} says that step {step} is confirmed, and it is not stored"
        wrong = _broken_snapshot(held, entries, entry.snapshot, write)
        if wrong is not None:
            return f"I8: {place} names the snapshot {entry.snapshot}: {wrong}"
    for before, place in pairwise(sorted(entries)):
        older, newer = entries[before], entries[place]
        is_less = newer.confirmed < older.confirmed or newer.snapshot < older.snapshot
        if before.generation == place.generation and is_less:
            return f"I9: {place} knows less than {before}"
    # Whatever was collected of the log is before a snapshot that is stored.
    barrier = max((each.barrier(TABLET, LOG).soft for each in held), default=NOTHING)
    named = {blob.place for each in held for blob in each.names if _is_entry(blob)}
    # An entry whose copies are all damaged may be a snapshot.
    snapshots = {place for place, entry in entries.items() if entry.is_snapshot} | (named - entries.keys())
    later = sorted(place for place in snapshots if place > barrier)
    kept = any(sum(each.index(log_entry(TABLET, *place)) is not None for each in held) >= write for place in later)
    return None if barrier == NOTHING or kept else f"I12: the log is collected up to {barrier}, and no snapshot is left"


def _broken_snapshot(
    held: tuple[Holdings, ...], entries: Mapping[GenStep, LogEntry], snapshot: GenStep, write: int
) -> str | None:
    if snapshot == (0, 0):
        return None
    found = entries.get(snapshot)
    if found is not None and not found.is_snapshot:
        return "it is none"
    steps = range(1, snapshot.step + 1)
    blobs = (log_entry(TABLET, snapshot.generation, Step(step)) for step in steps)
    hole = next((blob.step for blob in blobs if copies(held, blob) < write), None)
    if hole is None:
        return None
    # A zero entry that names the snapshot was written by a later leader, which has decided what counts before it.
    zeros = (
        decode(blob, data)
        for each in held
        for blob, data in zip(each.names, each.data, strict=True)
        if blob.channel == LOG and not blob.step and data is not None
    )
    is_settled = any(isinstance(zero, ZeroEntry) and zero.snapshot == snapshot for zero in zeros)
    return None if is_settled else f"step {hole} of its generation is not stored"
