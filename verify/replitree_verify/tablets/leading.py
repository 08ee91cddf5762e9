"""The moves of leaders: they commit, read, collect, and hear what became of it."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.tablet.core import collecting, commit
from replitree.tablet.core.collecting import Sent
from replitree.tablet.core.collection import log_collection
from replitree.tablet.core.commit import Ledger
from replitree.tablet.core.election import Won
from replitree.tablet.core.probing import StillLeads
from replitree.tablet.core.snapshots import DATA
from replitree.tablet.group.effects import Collect, Collection, Overtaken, Put, Stored
from replitree.tablet.group.ids import LOG, SYNC, BlobId, Cookie, GenStep, Step
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
        leader, commits = self.leaders[number], self._model.seats[seat].commits
        if done < len(commits) and self._may_commit(state, seat, leader, commits[done]):
            yield self._begin_commit(state, seat, commits[done])
        if leader.collecting is not None:
            yield from self._sync(state, seat, leader.ledger)
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

    def _may_commit(self, state: TabletState, seat: int, leader: Leader, kind: Kind) -> bool:
        awaited, works = self._model.seats[seat].after, state.seats[seat][3]
        if awaited and all(generation != awaited for generation, _ in state.elected):
            return False
        # A leader collects one thing after the other: the commands of the next one follow from what became of these.
        if kind is Kind.COLLECT and any(work.blob.channel == COLLECTING for work in works):
            return False
        return leader.ledger.failed_at is None and leader.ledger.has_room and not must_wait(leader, kind)

    # --- what a leader begins -----------------------------------------------------------------------------------------------

    def _begin_commit(self, state: TabletState, seat: int, kind: Kind) -> Found:
        """Let a leader do the next thing that clients want, or collect."""
        leader, done = self.leaders[state.seats[seat][1]], state.seats[seat][2]
        told = (self._model.name_of(seat), " commits ", kind.value)
        works: list[Work]
        if kind is Kind.COLLECT:
            return self._begin_collecting(state, seat)
        if kind is Kind.READ:
            blob = BlobId(TABLET, READING, leader.ledger.generation, Step(done), Cookie(0))
            work = self._members.work(blob, probing, self._model.channels, leader.ledger.generation)
            # What was acknowledged before the read began must be in it; what comes meanwhile may be.
            works = [work._replace(seen=state.acked)]
        else:
            ledger, blobs = commit.form(leader.ledger, draft_of(leader, kind, done))
            leader = Leader(ledger, leader.collecting)
            works = [self._members.work(blob, carrying, self._put(blob, data)) for blob, data in blobs]
        return self._begun(state, seat, leader, works), Move(told, is_asked=True)

    def _put(self, blob: BlobId, data: bytes) -> Put:
        return Put(self._model.channels.group(blob.channel, blob.generation), blob, data)

    def _begun(self, state: TabletState, seat: int, leader: Leader, works: list[Work]) -> TabletState:
        _, _, done, others = state.seats[seat]
        # Sorted: what a leader waits for differs in no other way by the order in which it was sent.
        position = (LEADING, self.leaders.number(leader), done + 1, tuple(sorted((*others, *works))))
        return with_seat(state, seat, position)

    def _begin_collecting(self, state: TabletState, seat: int) -> Found:
        """Let a leader collect what may go; it is over if that was the last that it wanted, and nothing may."""
        leader, done = self.leaders[state.seats[seat][1]], state.seats[seat][2]
        assert leader.collecting is not None
        known, commands = collecting.next_commands(leader.collecting, leader.ledger, (DATA,))
        told = (self._model.name_of(seat), " collects: ", ", ".join(map(_shown, commands)) or "nothing")
        leader = Leader(leader.ledger, known)
        if not commands:
            state = self._begun(state, seat, leader, [])
            return self.settled(state, seat, leader, done + 1, state.seats[seat][3]), Move(told, is_asked=True)
        blob = BlobId(TABLET, COLLECTING, leader.ledger.generation, Step(done), Cookie(0))
        work = self._members.work(blob, sending, self._model.channels, known.taken_everywhere, commands)
        return self._begun(state, seat, leader, [work]), Move(told, is_asked=True, probes=("collected",))

    def _sync(self, state: TabletState, seat: int, ledger: Ledger) -> Iterator[Found]:
        """Let a leader say that a snapshot counts, which no stored entry names."""
        _, number, done, works = state.seats[seat]
        entry = commit.sync_entry(ledger) if ledger.snapshot > ledger.snapshot_durable else None
        if entry is None or any(work.blob.cookie == SYNC and work.blob.channel == LOG for work in works):
            return
        # The snapshot goes with it: a later one may be confirmed before the outcome comes.
        work = self._members.work(entry[0], syncing, self._put(*entry), ledger.snapshot)
        position = (LEADING, number, done, tuple(sorted((*works, work))))
        yield with_seat(state, seat, position), Move((self._model.name_of(seat), " syncs"))

    # --- what a leader hears ------------------------------------------------------------------------------------------------

    def _work_goes_on(self, state: TabletState, seat: int, work: Work, others: tuple[Work, ...], told: Told) -> Found:
        """Take what the members said: ask them again, or end."""
        _, number, done, _ = state.seats[seat]
        state = self._members.leave_late(state, work.carry, work.columns)
        carry = self._members.carried(work.carry, work.columns)
        effect = self._members.carries.effect(carry)
        if not isinstance(effect, Ended):
            again = work._replace(carry=carry, columns=columns_of(effect))
            return with_seat(state, seat, (LEADING, number, done, tuple(sorted((*others, again))))), Move(told)
        if work.blob.channel == READING:
            return self._read_ended(state, seat, work, others, (effect.value, told))
        if work.blob.channel == COLLECTING:
            return self._collecting_ended(state, seat, others, (effect.value, told))
        if work.blob.cookie == SYNC and work.blob.channel == LOG:
            return self._sync_ended(state, seat, work.blob, others, (effect.value, told))
        return self._put_ended(state, seat, work.blob, others, (effect.value, told))

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
                state, others = self._collect_log(state, ledger, others)
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

    def _sync_ended(
        self, state: TabletState, seat: int, blob: BlobId, others: tuple[Work, ...], ended: Ending
    ) -> Found:
        """Let the ledger take what became of a sync entry."""
        _, number, done, _ = state.seats[seat]
        (value, told), leader = ended, self.leaders[number]
        assert isinstance(value, tuple)
        snapshot, outcome = value
        assert isinstance(snapshot, GenStep)
        is_stored = isinstance(outcome, Stored)
        ledger = leader.ledger
        ledger = commit.synced(ledger, blob, snapshot) if is_stored else commit.failed(ledger, Step(blob.step + 1))
        probe = "synced" if is_stored else "not synced"
        told = (*told, "; ", blob, " ", type(outcome).__name__.lower())
        return self.settled(state, seat, Leader(ledger, leader.collecting), done, others), Move(told, probes=(probe,))

    def _collecting_ended(self, state: TabletState, seat: int, others: tuple[Work, ...], ended: Ending) -> Found:
        """Let a leader take what became of its commands; one that was overtaken does nothing more."""
        _, number, done, _ = state.seats[seat]
        (value, told), leader = ended, self.leaders[number]
        if leader.collecting is None:  # the log's on a store, whose outcome no leader asks for
            return self.settled(state, seat, leader, done, others), Move(told)
        assert isinstance(value, tuple)
        commands, result = value
        assert isinstance(result, Sent)
        known = collecting.sent(leader.collecting, commands, result)
        done = done if result.overtaken is None else len(self._model.seats[seat].commits)
        probe = "taken" if len(result.taken) == len(commands) else "not taken"
        return self.settled(state, seat, Leader(leader.ledger, known), done, others), Move(told, probes=(probe,))

    def _collect_log(
        self, state: TabletState, ledger: Ledger, others: tuple[Work, ...]
    ) -> tuple[TabletState, tuple[Work, ...]]:
        """Send the collection of the log that a confirmed snapshot allows to every member; the leader does not wait for it.

        On a store it takes several requests, and so the leader's time.
        """
        collection = log_collection(ledger, ledger.snapshot.step)
        assert collection is not None
        if self._model.on_store:
            blob = BlobId(TABLET, COLLECTING, ledger.generation, ledger.snapshot.step, Cookie(0))
            return state, tuple(sorted((*others, self._members.work(blob, carrying, Collect(GROUP, collection)))))
        request = self._members.requests.number(Sweep(collection))
        late = {*state.late, *((number, request) for number in range(self._model.members))}
        return state._replace(late=tuple(sorted(late))), others


def _shown(command: Collection) -> str:
    """Return a command for people."""
    kept = f", but for {', '.join(map(str, command.keep))}" if command.keep else ""
    let_go = f", no longer {', '.join(map(str, command.dont_keep))}" if command.dont_keep else ""
    return f"{'all' if command.is_hard else 'channel'} {command.channel} up to {command.barrier}{kept}{let_go}"
