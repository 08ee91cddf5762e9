"""The moves of leaders: they commit, read, collect, and hear what became of it."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.tablet.core import collecting, commit
from replitree.tablet.core.collection import log_collection
from replitree.tablet.core.election import Won
from replitree.tablet.core.probing import StillLeads
from replitree.tablet.core.snapshots import DATA
from replitree.tablet.group.effects import Collect, Collection, Overtaken, Put, Stored
from replitree.tablet.group.ids import LOG, SYNC, BlobId, Cookie, Step
from replitree.tablet.group.member import Sweep
from replitree_verify.tablets.drafts import Leader, draft_of, must_wait
from replitree_verify.tablets.members import Members
from replitree_verify.tablets.model import GROUP, TABLET, Kind
from replitree_verify.tablets.running import Ended, carrying, probing, sending, syncing
from replitree_verify.tablets.state import (
    COLLECTING,
    LEADING,
    OVER,
    READING,
    Found,
    Move,
    Position,
    TabletState,
    Told,
    Work,
    columns_of,
    with_seat,
)
from replitree_verify.world.kernel import Interner

Ending = tuple[object, Told]
"""What a work of a leader ended with, and how that is told."""


class Leading:
    """The moves of the leaders of one model."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._model = members.model
        self.leaders: Interner[Leader] = Interner()

    def elected(self, result: Won) -> Position:
        """Return where a leader stands that was just elected."""
        accepted = result.recovered.accepted
        known = collecting.begun(TABLET, result.generation, accepted) if self._model.collects_data else None
        return (LEADING, self.leaders.number(Leader(commit.open_ledger(TABLET, result), known)), 0, ())

    def moves(self, state: TabletState, seat: int) -> Iterator[Found]:
        """Yield what a leader may do, and what it may hear."""
        _, number, done, works = state.seats[seat]
        leader = self.leaders[number]
        yield from self._begin_next(state, seat, leader)
        ledger = leader.ledger
        # A snapshot counts that no stored entry names: a sync entry says so, unless one is on its way.
        is_unnamed = leader.collecting is not None and ledger.snapshot > ledger.snapshot_durable
        entry = commit.sync_entry(ledger) if is_unnamed and not any(map(_is_sync, works)) else None
        if entry is not None:
            # The snapshot goes with it: a later one may be confirmed before the outcome comes.
            work = self._members.work(entry[0], syncing, self._put(*entry), ledger.snapshot)
            position = (LEADING, number, done, tuple(sorted((*works, work))))
            yield with_seat(state, seat, position), Move((self._model.name_of(seat), " syncs"))
        for index, work in enumerate(works):
            others = (*works[:index], *works[index + 1 :])
            who = (self._model.name_of(seat), ", ", work.blob)
            for told, after, columns, over in self._members.listen(state, (work.carry, work.columns), who):
                heard = work._replace(columns=columns)
                if over:
                    yield self._work_goes_on(after, seat, heard, others, told)
                else:
                    position = (LEADING, number, done, tuple(sorted((*others, heard))))
                    yield with_seat(after, seat, position), Move(told)

    # --- what a leader begins -----------------------------------------------------------------------------------------------

    def _begin_next(self, state: TabletState, seat: int, leader: Leader) -> Iterator[Found]:
        """Let a leader do the next thing that clients want, or collect, when it may."""
        _, _, done, others = state.seats[seat]
        wanted, name, ledger = self._model.seats[seat], self._model.name_of(seat), leader.ledger
        is_early = wanted.after and all(generation != wanted.after for generation, _ in state.elected)
        if done == len(wanted.commits) or is_early or ledger.failed_at is not None or not ledger.has_room:
            return
        kind = wanted.commits[done]
        # A leader collects one thing after the other: the commands of the next one follow from what became of these.
        is_collecting = any(work.blob.channel == COLLECTING for work in others)
        if must_wait(leader, kind) or (kind is Kind.COLLECT and is_collecting):
            return
        told, probes = (name, " commits ", kind.value), tuple[str, ...]()
        works: list[Work]
        if kind is Kind.COLLECT:
            assert leader.collecting is not None
            known, commands = collecting.next_commands(leader.collecting, ledger, (DATA,))
            told = (name, " collects: ", ", ".join(map(_shown, commands)) or "nothing")
            leader = Leader(ledger, known)
            if not commands:  # the leader is over if that was the last that it wanted
                yield self.settled(state, seat, leader, done + 1, others), Move(told, is_asked=True)
                return
            blob, probes = BlobId(TABLET, COLLECTING, ledger.generation, Step(done), Cookie(0)), ("collected",)
            works = [self._members.work(blob, sending, self._model.channels, known.taken_everywhere, commands)]
        elif kind is Kind.READ:
            blob = BlobId(TABLET, READING, ledger.generation, Step(done), Cookie(0))
            work = self._members.work(blob, probing, self._model.channels, ledger.generation)
            # What was acknowledged before the read began must be in it; what comes meanwhile may be.
            works = [work._replace(seen=state.acked)]
        else:
            ledger, blobs = commit.form(ledger, draft_of(leader, kind, done))
            leader = Leader(ledger, leader.collecting)
            works = [self._members.work(blob, carrying, self._put(blob, data)) for blob, data in blobs]
        # Sorted: what a leader waits for differs in no other way by the order in which it was sent.
        position = (LEADING, self.leaders.number(leader), done + 1, tuple(sorted((*others, *works))))
        yield with_seat(state, seat, position), Move(told, is_asked=True, probes=probes)

    def _put(self, blob: BlobId, data: bytes) -> Put:
        return Put(self._model.channels.group(blob.channel, blob.generation), blob, data)

    # --- what a leader hears ------------------------------------------------------------------------------------------------

    def _work_goes_on(self, state: TabletState, seat: int, work: Work, others: tuple[Work, ...], told: Told) -> Found:
        """Take what the members said: ask them again, or end."""
        _, number, done, _ = state.seats[seat]
        # Messages that were not answered stay on their way: they may still be obeyed.
        state = self._members.leave_late(state, work.carry, work.columns)
        carry = self._members.carried(work.carry, work.columns)
        effect = self._members.carries.effect(carry)
        if not isinstance(effect, Ended):
            again = work._replace(carry=carry, columns=columns_of(effect))
            return with_seat(state, seat, (LEADING, number, done, tuple(sorted((*others, again))))), Move(told)
        if work.blob.channel == READING:
            return self._read_ended(state, seat, work, others, (effect.value, told))
        leader, probes = self.leaders[number], tuple[str, ...]()
        if work.blob.channel == COLLECTING:
            # Without `collecting` it is the log's on a store, whose outcome no leader asks for.
            if leader.collecting is not None:
                commands, result = effect.value
                leader = Leader(leader.ledger, collecting.sent(leader.collecting, commands, result))
                # A leader that was overtaken does nothing more.
                done = done if result.overtaken is None else len(self._model.seats[seat].commits)
                probes = ("taken" if len(result.taken) == len(commands) else "not taken",)
        elif _is_sync(work):
            (snapshot, outcome), ledger, blob = effect.value, leader.ledger, work.blob
            is_stored = isinstance(outcome, Stored)
            ledger = commit.synced(ledger, blob, snapshot) if is_stored else commit.failed(ledger, Step(blob.step + 1))
            leader, probes = Leader(ledger, leader.collecting), ("synced" if is_stored else "not synced",)
            told = (*told, "; ", blob, " ", type(outcome).__name__.lower())
        else:
            return self._put_ended(state, seat, work.blob, others, (effect.value, told))
        return self.settled(state, seat, leader, done, others), Move(told, probes=probes)

    def settled(
        self, state: TabletState, seat: int, leader: Leader, done: int, others: tuple[Work, ...]
    ) -> TabletState:
        """Return the state in which a leader goes on, or is over.

        It is over, too, when it failed and nothing on its way can be acknowledged: then no client waits for its puts.
        """
        ledger = leader.ledger
        is_done = not others and (ledger.failed_at is not None or done == len(self._model.seats[seat].commits))
        is_put = all(work.blob.channel < COLLECTING for work in others)
        if ledger.is_over and is_put and not self._model.on_store:
            is_done = True
            for work in others:
                state = self._members.leave_late(state, work.carry, work.columns)
        return with_seat(state, seat, OVER if is_done else (LEADING, self.leaders.number(leader), done, others))

    def _read_ended(self, state: TabletState, seat: int, work: Work, others: tuple[Work, ...], ended: Ending) -> Found:
        """Show a client what counts, if the probe says that no later leader was active; what was shown must stay.

        What lies before the leader's snapshot is in it.
        """
        _, number, done, _ = state.seats[seat]
        leader, (outcome, told) = self.leaders[number], ended
        state = self.settled(state, seat, leader, done, others)
        if not isinstance(outcome, StillLeads):
            return state, Move((*told, "; nothing is shown"), probes=("read refused",))
        ledger = leader.ledger
        found = next(places for generation, places in state.elected if generation == ledger.generation)
        # What it found when it was elected, what it has committed, and what its snapshot has.
        own = tuple(place for place in state.acked if place[0] == ledger.generation or place < ledger.snapshot)
        shown = tuple(sorted({*found, *own}))
        state = state._replace(acked=tuple(sorted({*state.acked, *shown})))
        return state, Move((*told, "; it shows ", shown), probes=("read",), read=(work.seen, shown))

    def _put_ended(self, state: TabletState, seat: int, blob: BlobId, others: tuple[Work, ...], ended: Ending) -> Found:
        """Let the ledger take what became of a put, and clients hear."""
        _, number, done, _ = state.seats[seat]
        outcome, told = ended
        leader, steps, probes = self.leaders[number], tuple[Step, ...](), tuple[str, ...]()
        before = leader.ledger
        if isinstance(outcome, Stored):
            ledger, steps = commit.stored(before, blob)
            if self._model.collects and ledger.snapshot != before.snapshot:
                collection = log_collection(ledger, ledger.snapshot.step)
                assert collection is not None
                if self._model.on_store:  # it takes several requests, and so the leader's time
                    place = BlobId(TABLET, COLLECTING, ledger.generation, ledger.snapshot.step, Cookie(0))
                    work = self._members.work(place, carrying, Collect(GROUP, collection))
                    others = tuple(sorted((*others, work)))
                else:  # sent to every member; the leader does not wait for it
                    request = self._members.requests.number(Sweep(collection))
                    late = {*state.late, *((number, request) for number in range(self._model.members))}
                    state = state._replace(late=tuple(sorted(late)))
        else:
            ledger = commit.failed(before, blob.step)
            probes = ("deposed",) if isinstance(outcome, Overtaken) else ("in doubt",)
        if any(generation > blob.generation for generation, _ in state.elected) and steps:
            probes += ("late acknowledgement",)
        # From the ledger before and after, as a running leader does: only what was committed just now becomes garbage.
        known = leader.collecting and collecting.heard(leader.collecting, before, ledger)
        committed = tuple((int(blob.generation), int(step)) for step in steps)
        state = state._replace(acked=tuple(sorted({*state.acked, *committed})))
        told = (*told, "; ", blob, " ", type(outcome).__name__.lower(), ", committed ", committed)
        after = self.settled(state, seat, Leader(ledger, known), done, others)
        return after, Move(told, committed, probes=probes)


def _is_sync(work: Work) -> bool:
    return work.blob.cookie == SYNC and work.blob.channel == LOG


def _shown(command: Collection) -> str:
    """Return a command for people."""
    kept = f", but for {', '.join(map(str, command.keep))}" if command.keep else ""
    let_go = f", no longer {', '.join(map(str, command.dont_keep))}" if command.dont_keep else ""
    return f"{'all' if command.is_hard else 'channel'} {command.channel} up to {command.barrier}{kept}{let_go}"
