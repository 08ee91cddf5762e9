"""What must hold of a tablet, whatever happens.  The numbers are those of `docs/tablet.md`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from replitree.tablet.effects import InDoubt
from replitree.tablet.election import Elected, NotElected
from replitree.tablet.entries import LogEntry, ZeroEntry, decode
from replitree.tablet.ids import LOG, BlobId, GenStep, Step, log_entry
from replitree.tablet.member import Holdings
from replitree.tablet.recovery import MissingEntries, own_references
from replitree.verify.tablets.model import TABLET
from replitree.verify.tablets.space import Move, Space, World

Places = tuple[tuple[int, int], ...]


class Checker:
    """The invariants over the states of a space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._stored: dict[tuple[int, ...], str | None] = {}

    def broken(self, world: World, move: Move) -> str | None:
        """Return what is wrong with a state that a move led to, or None."""
        held = tuple(self._space.holdings[number] for number in world.held)
        if isinstance(move.election, Elected):
            return self._broken_election(world, held, move.election) or self._broken_log(world, held)
        if isinstance(move.election, NotElected):
            return None if self._space.model.rots else _broken_refusal(move.election)
        if move.committed:
            return self._broken_commit(world, held, move.committed)
        return self._broken_log(world, held)

    def _broken_election(self, world: World, held: tuple[Holdings, ...], result: Elected) -> str | None:
        generation, write = int(result.generation), self._space.model.write
        own = next(places for each, places in reversed(world.elected) if each == generation)
        if sum(each == generation for each, _ in world.elected) > 1:
            return f"I1: generation {generation} has two leaders"
        if copies(held, log_entry(TABLET, result.generation, Step(0))) < write:
            return f"I6: generation {generation} leads before its zero entry is stored"
        base = base_of(result)
        lost = [place for place in world.acked if place[0] < generation and place >= base and place not in own]
        if lost:
            return f"I3: {lost[0]} was acknowledged, and generation {generation} does not have it"
        return _broken_past(world, generation, own, base) or _broken_closure(held, result, write)

    def _broken_commit(self, world: World, held: tuple[Holdings, ...], committed: Places) -> str | None:
        for generation, step in committed:
            for other, places in world.elected:
                covered = min(places, default=(0, 0))
                if other > generation and (generation, step) not in places and (generation, step) >= covered:
                    return f"I2: {(generation, step)} was acknowledged after generation {other} had declined it"
            broken = self._broken_step(held, generation, step)
            if broken is not None:
                return broken
        return self._broken_log(world, held)

    def _broken_step(self, held: tuple[Holdings, ...], generation: int, step: int) -> str | None:
        entries = entries_of(held)
        place = GenStep(*(next(each for each in entries if each == (generation, step))))
        entry = entries[place]
        blobs = (log_entry(TABLET, *place), *own_references(TABLET, entry))
        if any(copies(held, blob) < self._space.model.write for blob in blobs):
            return f"I6: {place} was acknowledged before all of it was stored"
        write = self._space.model.write
        for each in entry.depends_on:
            if copies(held, log_entry(TABLET, place.generation, each)) < write:
                return f"I5: {place} was acknowledged before step {each}, which it depends on"
        return None

    def _broken_log(self, world: World, held: tuple[Holdings, ...]) -> str | None:
        """Look at what the members hold, once for each value."""
        if world.held not in self._stored:
            self._stored[world.held] = broken_log(held, self._space.model.write)
        return self._stored[world.held]


def base_of(result: Elected) -> tuple[int, int]:
    """Return the snapshot that covers everything before it, or the begin."""
    accepted = result.recovered.accepted
    if not accepted or not accepted[0][1].is_snapshot:
        return (0, 0)
    place = accepted[0][0]
    return (place.generation, place.step)


def _broken_past(world: World, generation: int, own: Places, base: tuple[int, int]) -> str | None:
    """I4: what a leader accepted stays accepted, and what it declined stays declined."""
    for other, places in world.elected:
        older, newer = (
            ((other, places), (generation, own)) if other < generation else ((generation, own), (other, places))
        )
        since = max(base, min(newer[1], default=(0, 0)) if base != (0, 0) else (0, 0))
        before = [place for place in older[1] if place >= since]
        now = [place for place in newer[1] if place[0] < older[0] and place >= since]
        if other != generation and before != now:
            return f"I4: generation {older[0]} had {before} before it, generation {newer[0]} has {now}"
    return None


def _broken_closure(held: tuple[Holdings, ...], result: Elected, write: int) -> str | None:
    """I5: with an entry comes all that it depends on, stored for good."""
    accepted = dict(result.recovered.accepted)
    base = base_of(result)
    for place, entry in accepted.items():
        for step in () if entry.is_snapshot and place == base else entry.depends_on:
            on = GenStep(place.generation, step)
            if on >= base and on not in accepted:
                return f"I5: {place} is accepted, and {on}, which it depends on, is not"
        missing = [blob for blob in own_references(TABLET, entry) if copies(held, blob) < write]
        if missing or copies(held, log_entry(TABLET, *place)) < write:
            return f"I5: {place} is accepted and not stored for good"
    return None


def _broken_refusal(result: NotElected) -> str | None:
    """I15: nothing here damages disks, so whatever is missing was deleted too early, or forgotten."""
    if isinstance(result.reason, MissingEntries):
        return f"I15: generation {result.generation} misses {result.reason.places}"
    if isinstance(result.reason, InDoubt) and "differ" in result.reason.reason:
        return f"I11: {result.reason.reason}"
    return None


# --- what is stored -------------------------------------------------------------------------------------------------------


def copies(held: tuple[Holdings, ...], blob: BlobId) -> int:
    """Return how many members have a blob, or have had it and were told to delete it."""
    return sum(each.index(blob) is not None or each.barrier(blob.tablet, blob.channel).has_swept(blob) for each in held)


def entries_of(held: tuple[Holdings, ...]) -> Mapping[GenStep, LogEntry]:
    """Return the log entries that any member has, by place."""
    found = dict[GenStep, LogEntry]()
    for each in held:
        for blob, data in zip(each.names, each.data, strict=True):
            if blob.channel == LOG and blob.step and data is not None:
                entry = decode(blob, data)
                assert isinstance(entry, LogEntry)
                found[blob.place] = entry
    return found


def broken_log(held: tuple[Holdings, ...], write: int) -> str | None:
    """Return what is wrong with what the members hold together, or None."""
    contents = dict[BlobId, bytes | None]()
    for each in held:
        for blob, data in zip(each.names, each.data, strict=True):
            if data is not None and contents.setdefault(blob, data) != data:
                return f"I11: {blob} has two contents"
    entries = entries_of(held)
    for place, entry in entries.items():
        for step in range(1, entry.confirmed + 1):
            if copies(held, log_entry(TABLET, place.generation, Step(step))) < write:
                return f"I7: {place} says that step {step} is confirmed, and it is not stored"
        wrong = _broken_snapshot(held, entries, entry.snapshot, write)
        if wrong is not None:
            return f"I8: {place} names the snapshot {entry.snapshot}: {wrong}"
    return _broken_order(entries)


def _broken_snapshot(
    held: tuple[Holdings, ...], entries: Mapping[GenStep, LogEntry], snapshot: GenStep, write: int
) -> str | None:
    if snapshot == (0, 0):
        return None
    found = entries.get(snapshot)
    if found is not None and not found.is_snapshot:
        return "it is none"
    for step in range(1, snapshot.step + 1):
        if copies(held, log_entry(TABLET, snapshot.generation, Step(step))) < write and not _is_older(held, snapshot):
            return f"step {step} of its generation is not stored"
    return None


def _is_older(held: tuple[Holdings, ...], snapshot: GenStep) -> bool:
    """Whether a zero entry names the snapshot: then its own generation's holes do not count."""
    zeros = [
        decode(blob, data)
        for each in held
        for blob, data in zip(each.names, each.data, strict=True)
        if blob.channel == LOG and not blob.step and data is not None
    ]
    return any(isinstance(zero, ZeroEntry) and zero.snapshot == snapshot for zero in zeros)


def _broken_order(entries: Mapping[GenStep, LogEntry]) -> str | None:
    """I9: along the steps of a generation, what is confirmed and the snapshot never go back."""
    places = sorted(entries)
    for before, place in pairwise(places):
        older, newer = entries[before], entries[place]
        is_less = newer.confirmed < older.confirmed or newer.snapshot < older.snapshot
        if before.generation == place.generation and is_less:
            return f"I9: {place} knows less than {before}"
    return None
