"""The steps between the states of a model of the feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from typing_extensions import override

from replitree.protocol.core.effects import EntryId, LogIndex, StagedPart, StagedResult, StagingId
from replitree.protocol.core.entries import (
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    SettleEntry,
)
from replitree.protocol.core.fold import is_open
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.pull import Queued
from replitree_verify.engine import small_search
from replitree_verify.feeds.desk import Desk, Packing, Standing, Written, end_of, folded, place_at
from replitree_verify.feeds.giving import (
    can_be_consumed,
    caught_up,
    cleared,
    fetched,
    given_by,
    killed_in,
    leased,
    packed,
    pulled,
)
from replitree_verify.feeds.model import Model
from replitree_verify.feeds.rows import (
    Rows,
    brought,
    content_of,
    emitted,
    lost_with,
    mutated,
    named_by,
    rows_of,
    without,
)
from replitree_verify.feeds.state import TICK_MS, Consumer, FeedState, Seat
from replitree_verify.world.faults import Fault, budget_of, spent

ALL, WRITER = "all", "r1"
TORN_BYTES = 3
"""How much of the version log's end a failing machine loses."""


@dataclass(frozen=True, slots=True)
class _Doing:
    """How a replica executes an entry: the parts that are on its disk afterwards, and what that was."""

    made: tuple[tuple[Part, Rows], ...]
    what: str


class Space(small_search.Space[FeedState]):
    """The states of a model.

    Attributes
    ----------
    probes
        The rare branches that were seen.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.probes = set[str]()
        self._counts = tuple(model.counts)

    @override
    def first(self) -> FeedState:
        packing = Packing() if self.model.packs else None
        seats = tuple(Seat(Standing(name, packing=packing)) for name in self.model.seats)
        return FeedState(
            (),
            0,
            (*seats, *(None for _ in self.model.joins)),
            (0,) * len(self.model.clients),
            (),
            is_killed=False,
            now=0,
            since=0,
            consumer=None,
            told=(),
            counts=tuple(self.model.counts.values()),
            budget=budget_of(self.model.faults),
        )

    @override
    def steps(self, state: FeedState, /) -> Iterator[tuple[str, FeedState]]:
        for steps in (self._due, self._may_be):
            for happened, after in steps(state):
                yield happened, self._read(after)

    @override
    def is_at_rest(self, state: FeedState, /) -> bool:
        return next(self._due(state), None) is None

    def _due(self, state: FeedState) -> Iterator[tuple[str, FeedState]]:
        """Give what happens some time: a state without such a step is at rest."""
        for number, client in enumerate(self.model.clients):
            if state.asked[number] < len(client):
                yield from self._ask(state, number, client[state.asked[number]])
        for place, seat in enumerate(state.seats):
            if seat is None:
                yield from self._clone(state, place, self.model.joins[place - len(self.model.seats)], "joins from")
                continue
            yield from self._pull(state, place, seat)
            yield from self._execute(state, place, seat)
            for what, standing in (
                ("writes down what it has missed", caught_up(seat, state)),
                ("fetches for the feed", fetched(seat, state)),
            ):
                if standing == seat.standing:
                    continue
                came = {*standing.old} - {*seat.standing.old}
                self.probes.add("fetched for the feed" if came else "caught up")
                disk = dict(seat.disk)
                for name in came:
                    disks = (dict(each.disk) for each in state.joined if name not in each.broken)
                    disk[name] = next(rows[name] for rows in disks if name in rows)
                after = seat._replace(standing=standing, disk=tuple(sorted(disk.items())))
                yield f"{seat.name} {what}", _put(state, place, after)

    def _may_be(self, state: FeedState) -> Iterator[tuple[str, FeedState]]:
        """Give what may happen at any moment."""
        for place, seat in enumerate(state.seats):
            if seat is None:
                continue
            standing = cleared(seat, state)
            if standing != seat.standing:
                gone = {*seat.standing.old} - {*standing.old}
                self.probes.add("old parts deleted" if gone else "entries forgotten")
                # What leaves a folder may be in a pack: readers tell what is not there.
                is_packing = standing.packing is not None
                disk = tuple(each for each in seat.disk if each[0] not in gone or is_packing)
                yield (
                    f"{seat.name} deletes {sorted(gone)}",
                    _put(state, place, seat._replace(standing=standing, disk=disk)),
                )
            if seat.standing.packing is not None:
                yield from self._pack(state, place, seat)
            if seat.standing.files and (spoiled := spent(state.budget, Fault.ROT)) is not None:
                self.probes.add("version log torn")
                # The last segment is the one that is written to, and nothing of it is synced.
                *others, (name, content) = sorted(seat.standing.files, key=lambda each: int(each[0]))
                files = tuple(sorted((*others, (name, content[:-TORN_BYTES]))))
                after = _put(state, place, seat._replace(standing=seat.standing._replace(files=files)))
                yield f"{seat.name} loses the end of its version log", after._replace(budget=spoiled)
            if seat.name in self.model.recovers and (left := self._spent(state, "recover")) is not None:
                yield from self._clone(left, place, seat.name, "recovers from")
            if seat.name == self.model.consumer and state.consumer is None:
                for index in range(seat.standing.pointer + 1):
                    if can_be_consumed(seat, state, index):
                        self.probes.add("consumed")
                        yield (
                            f"{seat.name} makes a consumer at {index}",
                            state._replace(consumer=Consumer(seat.name, index)),
                        )
        yield from self._count(state)

    def _pack(self, state: FeedState, place: int, seat: Seat) -> Iterator[tuple[str, FeedState]]:
        """Give what a replica that packs old parts may do with them, and its readers."""
        before = seat.standing
        assert before.packing is not None

        def after(standing: Standing) -> FeedState:
            return _put(state, place, seat._replace(standing=standing))

        standing = packed(seat, state)
        if standing != before:
            self.probes.add("packed")
            yield f"{seat.name} packs", after(standing)
        if before.packing.reading:
            yield f"{seat.name}: its reader ends", after(before._replace(packing=before.packing._replace(reading=())))
        for start in () if before.packing.reading else range(before.pointer):
            standing = leased(seat, state, start)
            if standing != before:
                came = {*standing.old}.difference(before.old)
                self.probes.update(("a reader has packed parts",) if came else ())
                yield f"{seat.name}: a reader begins at {start}", after(standing)
        left = spent(state.budget, Fault.CRASH)
        if left is None:
            return
        for do, what in ((Desk.pack, "packs"), (Desk.clear, "deletes")):
            for standing in sorted(killed_in(do, seat, state)):
                if standing != before:
                    self.probes.add(f"killed while it {what}")
                    yield f"{seat.name} dies while it {what}", after(standing)._replace(budget=left)

    def _read(self, state: FeedState) -> FeedState:
        """Return a state with what readers get first for each entry."""
        told = dict(state.told)
        for seat in state.joined:
            disk, given = dict(seat.disk), given_by(seat, state)
            for answer in (*given.whole, *given.single):
                if answer.error:
                    self.probes.add(answer.error)
                for index, us, feed in answer.feed:
                    # What names a part that is not there breaks F5, and is found there.
                    if index not in told and disk.keys() >= {*named_by(feed.units)}:
                        told[index] = emitted(feed.units, us, disk)
                        self.probes.update(kind for kind, _ in told[index].rows)
        return state if len(told) == len(state.told) else state._replace(told=tuple(sorted(told.items())))

    # --- the log ----------------------------------------------------------------------------------------------------------

    def _ask(self, state: FeedState, number: int, asked: str) -> Iterator[tuple[str, FeedState]]:
        kind, _, letter = asked.partition(" ")
        index = end_of(state.log)
        entry = self._entry(state, kind, letter, index)
        if entry is None:
            return
        written = Written(index, entry, (state.now + 1) * TICK_MS)
        done = tuple(each + (place == number) for place, each in enumerate(state.asked))
        after = state._replace(log=(*state.log, written), asked=done, now=state.now + 1)
        if isinstance(entry, LostEntry):
            after = after._replace(seats=tuple(each and _broken(each, parse_part(entry.part)) for each in after.seats))
        self.probes.add(kind)
        yield f"{index}: {asked}", after

    def _entry(self, state: FeedState, kind: str, letter: str, index: LogIndex) -> Entry | None:
        """Return the entry that a client appends; None: it can't yet."""
        place = place_at(state.log, index)
        inserts = {each.entry.insert: each.index for each in state.log if isinstance(each.entry, GetEntry)}
        opened, staging = inserts.get(StagingId(letter)), StagingId(letter)
        match kind:
            case "insert" | "open":
                parts = (StagedPart(ALL, 1, 1, content_of(rows_of(letter))),)
                if kind == "open":
                    return GetEntry(WRITER, staging, parts, (), format=3, quorum=2)
                return GetEntry(WRITER, staging, parts, ())
            case "settle" if opened is not None:
                return SettleEntry(WRITER, staging, opened, (WRITER, "r2"))
            case "fail" if opened is not None:
                return FailEntry(WRITER, staging, opened, (ALL,))
            case "update" | "delete":
                return MutateEntry(WRITER, EntryId(f"{kind}{index}"), "*", kind)
            case "merge":
                settled = [part for part in place.parts if not is_open(part, place.open)]
                pair = next(iter(pairwise(settled)), None)
                return None if pair is None else MergeEntry(WRITER, tuple(part.name for part in pair))
            case "drop":
                return DropEntry(WRITER, EntryId(f"drop{index}"), "*")
            case "rewrite":
                # Of the first part, as r1 has it: it loses its last row, and gets one that no insert has.
                writer = state.joined[0].standing
                if writer.pointer != index or writer.queue or not writer.held:
                    return None
                source = writer.held[0]
                content = content_of((*dict(state.joined[0].disk)[source][:-1], "w0"))
                return RewriteEntry(WRITER, EntryId(kind), StagingId(kind), (StagedResult(source, 1, 1, content),))
            case "lost" if opened is not None:
                part = Part(ALL, opened, opened, 0)
                # Where everything is executed: what becomes of a lost part in a queue is for other models.
                is_calm = all(each.standing.pointer == index and not each.standing.queue for each in state.joined)
                is_there = place.parts.covering(part) is not None
                return LostEntry(WRITER, part.name, "") if is_calm and is_there else None
        return None

    # --- replicas ---------------------------------------------------------------------------------------------------------

    def _pull(self, state: FeedState, place: int, seat: Seat) -> Iterator[tuple[str, FeedState]]:
        """Give a pull of the next entry, and of all; the process may die before it has written down what they changed."""
        pointer, end = seat.standing.pointer, end_of(state.log)
        if pointer >= end or pointer < state.first:
            return
        for to in dict.fromkeys((pointer + 1, int(end))):
            items = [each for each in folded(state.log) if pointer <= each.index < to and not each.change.is_empty]
            queue = (*seat.standing.queue, *(each.index for each in items))
            standing = pulled(seat, state, to)._replace(pointer=to, queue=queue)
            yield f"{seat.name} pulls up to {to}", _put(state, place, seat._replace(standing=standing))
            # Where old parts are packed, a process ends in the middle of that.
            left = None if self.model.packs else spent(state.budget, Fault.CRASH)
            if left is not None:
                self.probes.add("died after a pull")
                # Coordination has the pull; the version log, which is written after it, does not.
                standing = seat.standing._replace(pointer=to, queue=queue)
                after = _put(state, place, seat._replace(standing=standing))
                yield f"{seat.name} pulls up to {to} and dies", after._replace(budget=left)

    def _execute(self, state: FeedState, place: int, seat: Seat) -> Iterator[tuple[str, FeedState]]:
        queued = {each.index: each for each in folded(state.log) if each.index in seat.standing.queue}
        for number, index in enumerate(seat.standing.queue):
            # Merges run beside the others, and nothing that removes for good goes before an earlier entry.
            item = queued[LogIndex(index)]
            if any(not isinstance(queued[LogIndex(each)].entry, MergeEntry) for each in seat.standing.queue[:number]):
                break
            if number and not isinstance(item.entry, GetEntry | MergeEntry):
                continue
            for doing in self._ways(state, seat, item):
                self.probes.add(doing.what)
                after = _executed(seat, item, doing)
                results = dict(state.results)
                if isinstance(item.entry, MutateEntry):
                    results |= {part.name: rows for part, rows in doing.made if part.name not in results}
                done = _put(state, place, after)._replace(results=tuple(sorted(results.items())))
                yield f"{seat.name} executes {index}, {doing.what}", done

    def _ways(self, state: FeedState, seat: Seat, item: Queued) -> Iterator[_Doing]:
        """Give how a replica may execute an entry now."""
        disk, held = dict(seat.disk), seat.held
        wanted = [part for part in item.change.added if held.covering(part) is None]
        match item.entry:
            case GetEntry(replica=writer):
                others = state.others(seat)
                if writer == seat.name or not wanted:
                    yield _Doing(tuple(brought(item).items()) if wanted else (), "inserted")
                elif any(wanted[0] in each.held for each in others):
                    yield _Doing(tuple(brought(item).items()), "fetched")
                else:
                    later = place_at(state.log, seat.standing.pointer).parts.covering(wanted[0])
                    rows = [dict(each.disk)[later.name] for each in others if later is not None and later in each.held]
                    if later is None:
                        yield _Doing((), "passed by")
                    elif rows:
                        yield _Doing(((later, rows[0]),), "fetched merged")
            case LostEntry(part=name):
                (cover,) = item.change.added
                if cover in held:
                    yield _Doing(((cover, without(disk[cover.name], lost_with(state.log, name))),), "lost")
                else:
                    yield _Doing((), "lost before")
            case RewriteEntry():
                yield _Doing(tuple((part, rows) for part, rows in brought(item).items() if part in wanted), "rewritten")
            case MergeEntry() | MutateEntry():
                yield from self._made(state, seat, item, wanted)
            case _:
                yield _Doing((), "removed")

    def _made(self, state: FeedState, seat: Seat, item: Queued, wanted: list[Part]) -> Iterator[_Doing]:
        """Give how a replica may execute a merge or a mutation: what it can't make, it fetches, if it is needed still."""
        made = list[tuple[Part, Rows]]()
        for part in wanted:
            later = place_at(state.log, seat.standing.pointer).parts.covering(part)
            own = self._result(state, seat, item, part)
            if own is not None:
                made.append((part, own))
            elif later is not None:
                found = [
                    (each, dict(other.disk)[each.name])
                    for other in state.others(seat)
                    for each in (part, later)
                    if each in other.held
                ]
                if not found:
                    return
                made.append(found[0])
        what = "merged" if isinstance(item.entry, MergeEntry) else "mutated"
        yield _Doing(tuple(made), what if made else "made before")

    def _result(self, state: FeedState, seat: Seat, item: Queued, part: Part) -> Rows | None:
        """Return the rows of a part that a replica makes of what it has; None: it lacks a source."""
        disk, held, results = dict(seat.disk), seat.held, dict(state.results)
        if isinstance(item.entry, MergeEntry):
            sources = item.change.removed
            is_here = all(each in held and each.name not in seat.broken for each in sources)
            return tuple(sorted(row for each in sources for row in disk[each.name])) if is_here else None
        assert isinstance(item.entry, MutateEntry)
        source = item.change.removed[item.change.added.index(part)]
        if source not in held or source.name in seat.broken:
            return None
        # Whether a mutation was killed before a part was changed must not differ between replicas: the first one decides.
        if part.name in results:
            return results[part.name]
        if state.is_killed:
            self.probes.add("killed")
            return disk[source.name]
        return mutated(disk[source.name], item.entry.command)

    def _clone(self, state: FeedState, place: int, name: str, how: str) -> Iterator[tuple[str, FeedState]]:
        """Give each way in which a replica takes over the state of another one."""
        own = state.seats[place] or Seat(Standing(name))
        for source in state.others(own):
            if source.standing.pointer < state.first or source.broken:
                continue
            if how == "recovers from" and own.standing.pointer > source.standing.pointer:
                self.probes.add("set back")
            taken, disk = source.standing, dict(own.disk)
            disk |= {part: rows for part, rows in source.disk if part in taken.held}
            old = ({*own.standing.old, *own.standing.held}).difference(taken.held)
            standing = own.standing._replace(
                pointer=taken.pointer, queue=taken.queue, held=taken.held, old=tuple(sorted(old))
            )
            self.probes.add(how)
            seat = Seat(standing, tuple(sorted(disk.items())))
            yield f"{name} {how} {source.name}", _put(state, place, seat)

    # --- what may happen so often -------------------------------------------------------------------------------------------

    def _count(self, state: FeedState) -> Iterator[tuple[str, FeedState]]:
        consumer = state.consumer
        for what in self._counts:
            left = self._spent(state, what)
            if left is None:
                continue
            after = left
            match what:
                case "kill":
                    after = left._replace(is_killed=True)
                case "clean":
                    # Beyond what the slowest replica has pulled: it is inactive for too long, and recovers.
                    after = left._replace(first=max(each.standing.pointer for each in state.joined))
                case "pass" if state.since is not None:
                    after = left._replace(since=state.now)
                case "switch":
                    after = left._replace(since=0 if state.since is None else None)
                case "back":
                    # By two: the next entry is older than the one before it, not as old.
                    after = left._replace(now=max(0, state.now - 2))
                case "advance" if consumer is not None and not consumer.is_expired:
                    after = left._replace(consumer=replace(consumer, index=consumer.index + 1))
                case "expire" if consumer is not None:
                    after = left._replace(consumer=replace(consumer, is_expired=True))
            if after != left:
                self.probes.add(what)
                yield what, after

    def _spent(self, state: FeedState, what: str) -> FeedState | None:
        if what not in self._counts or not state.counts[at := self._counts.index(what)]:
            return None
        return state._replace(counts=tuple(each - (place == at) for place, each in enumerate(state.counts)))


def _put(state: FeedState, place: int, seat: Seat) -> FeedState:
    return state._replace(seats=(*state.seats[:place], seat, *state.seats[place + 1 :]))


def _executed(seat: Seat, item: Queued, doing: _Doing) -> Seat:
    """Return a replica after it has executed an entry: what has left the table stays on its disk, as an old part."""
    disk, held = dict(seat.disk), {*seat.held}
    removed = {*item.change.removed} - {*item.change.added}
    came = [part for part, _ in doing.made]
    gone = {part for part in held if part in removed or any(new != part and new.covers(part) for new in came)}
    held = (held - gone) | {*came}
    disk |= {part.name: rows for part, rows in doing.made}
    names = tuple(sorted(part.name for part in held))
    old = {*seat.standing.old, *(part.name for part in gone if part.name in disk)}.difference(names)
    queue = tuple(each for each in seat.standing.queue if each != item.index)
    standing = seat.standing._replace(queue=queue, held=names, old=tuple(sorted(old)))
    if standing.packing is not None:
        marks = tuple(sorted({*standing.packing.marks, *old.difference(seat.standing.old)}))
        standing = standing._replace(packing=standing.packing._replace(marks=marks))
    broken = tuple(each for each in seat.broken if each in names and each not in {part.name for part in came})
    return Seat(standing, tuple(sorted(disk.items())), broken)


def _broken(seat: Seat, part: Part) -> Seat:
    """Return a replica on whose disk every form of a part has become unreadable; what had left the table is gone."""
    broken = tuple(name for name in seat.standing.held if parse_part(name).covers(part))
    gone = {name for name in seat.standing.old if parse_part(name).covers(part)}
    old = tuple(name for name in seat.standing.old if name not in gone)
    disk = tuple(each for each in seat.disk if each[0] not in gone)
    return Seat(seat.standing._replace(old=old), disk, broken)
