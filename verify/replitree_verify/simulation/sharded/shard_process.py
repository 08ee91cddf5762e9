"""A virtual process of one replica of one shard: it prepares, coordinates, and reads at cuts, besides all that a process does.

It mirrors `replica.insert.prepared_rows`, `replica.insert.joint_inserts` and `replica.http.sharded.cut_requests`: what is held,
how long, and what becomes of it when a read can't be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.stamps import GetStamped, Zxid
from replitree.protocol.program import quorum_waiter
from replitree.protocol.program.sharded import coordinator, participant, shards_command
from replitree.protocol.program.sharded.coordinator import Became, EndBeside, JointRequest, KeepOwn, OwnTurn, TakeOwn
from replitree.protocol.program.sharded.participant import (
    AcceptRows,
    AwaitForgetting,
    AwaitGivingUp,
    ForgetTurn,
    GiveUpTurn,
    Hold,
    LetGoRows,
)
from replitree.protocol.program.stages import End, ReportTrouble, Stage, Then
from replitree.protocol.propose.shards import ShardsCommand
from replitree.protocol.sharded.cut import AwaitExecuted, CutEnd, advance_clock, position_at, seen_here
from replitree.protocol.sharded.prepare import Participant
from replitree_verify.outcomes.branch import Request
from replitree_verify.outcomes.local import accepted
from replitree_verify.process import read_requests
from replitree_verify.process.read_requests import AwaitReadable, Begun
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.process import Process
from replitree_verify.simulation.sharded.errand import NO_TABLE
from replitree_verify.simulation.thread import Thread
from replitree_verify.simulation.waits import perform
from replitree_verify.world.memory import Memory

Hear: TypeAlias = Callable[[Any], None]

KEEP = 30 * SECOND
"""How long what was prepared is kept."""

KINDS = ("prepare", "joint", "give up", "forget", "cut", "shards command")
"""Kinds of threads that only a shard's process has."""


@dataclass(frozen=True, slots=True)
class TellClient:
    """Answer a client."""

    answer: Any


@dataclass(slots=True)
class HeldRows:
    """What was prepared; `is_used`: it is being committed by this process, or given up."""

    participant: Participant
    until: int
    is_used: bool = False


TURNS = (AcceptRows, TakeOwn, AwaitGivingUp, AwaitForgetting, AwaitExecuted)
"""Effects that this process performs itself, and that end when there is something to do."""

OWN = (*TURNS, Hold, LetGoRows, KeepOwn, EndBeside, TellClient)
"""Effects that this process performs itself."""


def let_go(given_up: Participant) -> Stage:
    """Give up what was prepared; `given_up` is what the process takes its turn for."""
    del given_up
    return (yield from participant.give_up_prepared())


def tell_seen(shard: TablePlace, written: fx.LogIndex | None) -> Stage:
    """Answer what the replica has seen, and from which cut on an entry is in it."""
    yield TellClient((yield from seen_here(shard, written)))
    return None


def tell_clock(place: str) -> Stage:
    """Answer with the transaction of a write to the clock."""
    yield TellClient((yield from advance_clock(place)))
    return None


def show_cut(shard: TablePlace, number: int, zxid: Zxid, known: CutEnd | None, place: str | None) -> Stage:
    """Find where a cut lies, and show what is there; or answer why not."""
    position = yield from position_at(shard, zxid, known, place)
    if not isinstance(position, int):
        yield TellClient(position)
        return None
    return Then(read_requests.show_rows, (number, "sequential", Begun(fx.LogIndex(0), (), fx.LogIndex(0)), position))


class ShardProcess(Process):
    """One process of a replica of a shard.

    Parameters
    ----------
    shard
        Where the nodes of the shard are; all else as of `Process`.
    """

    def __init__(self, *arguments: Any, shard: TablePlace) -> None:
        super().__init__(*arguments)
        self.replica = Replica(shard, self.name)
        self.held: dict[fx.StagingId, HeldRows] = {}
        self._beside: dict[fx.StagingId, Sequence[tuple[ShardProcess, fx.StagingId]]] = {}
        """Of each commit of rows that this server has staged for all shards: where those of the other shards are."""
        self._clients: dict[Thread, Hear] = {}
        self._forgot_under: fx.Epoch | None = None

    @override
    def start(self) -> None:
        super().start()
        self._look_at_held()

    # --- requests -------------------------------------------------------------------------------------------------------

    def prepare(self, request: int, *, coordinates: bool, hear: Hear) -> None:
        """Stage rows for a joint insert, and hold them."""
        self._ask("prepare", hear, participant.prepare_rows, self.replica, fx.RequestId(request), 1, not coordinates)

    def commit(
        self,
        request: int,
        asked: JointRequest,
        hear: Hear,
        beside: Sequence[tuple[ShardProcess, fx.StagingId]] = (),
    ) -> None:
        """Commit a joint insert; `beside`: what processes of the same server have staged for the other shards."""
        held = self.held.get(asked.own)
        if held is not None and held.is_used:
            hear(None)
            return
        if beside:
            self._beside[asked.own] = beside
        self._ask("joint", hear, coordinator.insert_jointly, self.replica, fx.RequestId(request), asked)

    def command(self, request: int, asked: ShardsCommand, hear: Hear) -> None:
        """Take a user's command for all shards."""
        arguments = self.replica, fx.RequestId(request), asked
        self._ask("shards command", hear, shards_command.accept_shards_command, *arguments)

    def give_up(self, staging: fx.StagingId) -> None:
        """Give up what was prepared, if it is held and not in use."""
        held = self.held.get(staging)
        if held is not None and not held.is_used:
            held.is_used = True
            self._ask("give up", lambda _: None, let_go, held.participant)

    def see(self, hear: Hear, written: fx.LogIndex | None = None) -> None:
        """Answer what was seen, and from which cut on the entry at `written` is in it."""
        self._ask("cut", hear, tell_seen, self._reached, written)

    def tell_the_clock(self, hear: Hear) -> None:
        """Answer with a transaction that comes after all that was acknowledged."""
        self._ask("cut", hear, tell_clock, layout.sharded_of(self.replica.table))

    def show(self, number: int, zxid: Zxid, known: CutEnd | None, *, has_clock: bool, hear: Hear) -> None:
        """Show what is at a cut: the observer hears the rows, `hear` only why there are none."""
        place = layout.sharded_of(self.replica.table) if has_clock else None
        self._ask("cut", hear, show_cut, self._reached, number, zxid, known, place)

    @property
    def _reached(self) -> TablePlace:
        """The shard, with the parent that the pointer has reached."""
        place = self.memory.place
        return layout.at_pointer(self.replica, 0 if place is None else place.pointer.index).table

    def _ask(self, kind: str, hear: Hear, stage: Callable[..., Stage], *arguments: Any) -> None:
        thread = Thread(kind, stage, arguments, self._generator(stage, arguments))
        self._clients[thread] = hear
        self._threads.append(thread)
        self._resume(thread, None)

    # --- threads --------------------------------------------------------------------------------------------------------

    @override
    def _continue(self, thread: Thread, then: Then) -> None:
        super()._continue(thread, then)
        if then.stage is quorum_waiter.await_quorum and thread.kind == "joint":
            self._clients.pop(thread)(then)
            thread.kind = "waiter"

    @override
    def _over(self, thread: Thread) -> None:
        super()._over(thread)
        hear = self._clients.pop(thread, None)
        if thread.kind == "forget":
            self._forgot_under = thread.arguments[1]
        if hear is not None and isinstance(thread.end, End):
            hear(thread.end.outcome)

    @override
    def _close(self, thread: Thread) -> None:
        if thread.kind not in KINDS:
            super()._close(thread)
            return
        self.observer.seen(f"{thread.kind} closed")
        thread.generator.close()
        match thread.kind:
            case "prepare":
                # No coordinator hears of it, so what is staged is garbage.
                for effect, taken in thread.turns:
                    if isinstance(effect, AcceptRows):
                        disks = self.cluster.disks
                        disks[self.name] = disks[self.name].without_folder(taken.staging)
                        self._release(taken.staging)
            case "joint":
                self._break_off(thread)
            case "shards command":
                # What was sent may be in the logs.
                self._remember(self.memory.with_trouble())
            case "give up":
                self._drop_held(thread.arguments[0].staging)
        self._threads.remove(thread)
        hear = self._clients.pop(thread, None)
        if hear is not None:
            hear(None)

    def _break_off(self, thread: Thread) -> None:
        """End a commit whose stage was closed: its rows stay if nothing can be in the log."""
        own, in_doubt = thread.arguments[2].own, False
        for effect, outcome in thread.turns:
            if isinstance(effect, fx.Commit) and any(getattr(each, "sequential", False) for each in effect.operations):
                in_doubt = not isinstance(outcome, fx.Refused)
        if in_doubt:
            self._trouble(own)
            self._drop_held(own)
        elif own in self.held:
            self.held[own].is_used = False
        self._end_beside(own, Became.LET_GO if in_doubt else Became.KEPT)

    @override
    def _begin(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if isinstance(effect, GetStamped):
            self.cluster.ask(self.session, effect, lambda reply: self._hear(thread, reply))
            return None
        if isinstance(effect, fx.Commit) and thread.stage is tell_clock:
            # A write of the clock changes no table, so no epoch fences it.
            request = Request(Replica(NO_TABLE, self.name), self.me, self.session.number, None, effect.operations)
            self.cluster.ask(self.session, request, lambda reply: self._hear(thread, reply))
            return None
        return self._locally(thread, effect) if self._is_own(thread, effect) else super()._begin(thread, effect)

    def _is_own(self, thread: Thread, effect: Any) -> bool:
        # Other stages report trouble, too; a joint insert says what is released then.
        return isinstance(effect, OWN) or (isinstance(effect, ReportTrouble) and thread.kind == "joint")

    @override
    def _locally(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if not self._is_own(thread, effect):
            return super()._locally(thread, effect)
        done = self._own(thread, effect)
        thread.waits = done is None
        if done is not None:
            self._told(thread, effect, done[0])
        return done

    def _own(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if not isinstance(effect, TURNS):
            self._note(thread, effect)
            return (None,)
        turn = self._turn(thread, effect)
        return None if turn is None else (turn,)

    def _turn(self, thread: Thread, effect: Any) -> Any:
        """Return what a stage waits for; None while it is not there."""
        match effect:
            case AcceptRows(request):
                taken = accepted(self._here(), request)
                if taken is not None:
                    staging = tuple(sorted((*self.memory.staging, taken.staging)))
                    self._remember(replace(self.memory, staging=staging))
                return taken
            case TakeOwn(staging):
                return self._take(staging) if self.is_active else None
            case AwaitGivingUp():
                return GiveUpTurn(thread.arguments[0], self.me)
            case AwaitForgetting():
                epoch = self.memory.epoch
                if not self.is_active or epoch is None:
                    return None
                thread.arguments = (self.replica, epoch)
                return ForgetTurn(self.me, epoch)
            case AwaitExecuted(index):
                is_there = perform(AwaitReadable(index), self._here()) is not None
                return read_requests.pointer_of(self.memory) if is_there else None
        raise AssertionError(effect)

    def _note(self, thread: Thread, effect: Any) -> None:
        """Perform an effect that has no outcome."""
        match effect:
            case Hold(prepared):
                self.held[prepared.staging] = HeldRows(prepared, self.cluster.now + KEEP)
            case LetGoRows(staging):
                self._drop_held(staging)
            case KeepOwn(staging):
                if staging in self.held:
                    self.held[staging].is_used = False
            case EndBeside(became):
                self._end_beside(thread.arguments[2].own, became)
            case ReportTrouble():
                self._trouble(thread.arguments[2].own)
            case TellClient(answer):
                self._clients.pop(thread)(answer)

    # --- what is held ---------------------------------------------------------------------------------------------------

    def _take(self, staging: fx.StagingId) -> OwnTurn:
        """Take what is held for a commit, here and beside: all of it or nothing."""
        beside = self._beside.get(staging, ())
        own, *others = (process.held.get(its) for process, its in ((self, staging), *beside))
        held = [each for each in (own, *others) if each is not None]
        if len(held) <= len(others) or any(each.is_used for each in held[1:]):
            return OwnTurn(self.me, None)
        for each in held:
            each.is_used = True
        return OwnTurn(self.me, held[0].participant, tuple(each.participant for each in held[1:]))

    def _end_beside(self, own: fx.StagingId, became: Became) -> None:
        """Let what was staged beside own rows become what these become."""
        for process, staging in self._beside.pop(own, ()):
            if became is Became.LET_GO:
                process._drop_held(staging)  # noqa: SLF001 - a process of the same server
                continue
            if staging in process.held:
                process.held[staging].is_used = False
            if became is Became.REMOVED:
                process.give_up(staging)

    def _trouble(self, own: fx.StagingId) -> None:
        """Activate again, which decides a commit in doubt; the activation finds the folder idle."""
        self._release(own)
        self._remember(self.memory.with_trouble())

    def _release(self, staging: fx.StagingId) -> None:
        self._remember(replace(self.memory, staging=tuple(each for each in self.memory.staging if each != staging)))

    def _drop_held(self, staging: fx.StagingId) -> None:
        self.held.pop(staging, None)
        self._release(staging)

    @override
    def _remember(self, memory: Memory) -> None:
        pulled = memory.queue is not self.memory.queue
        super()._remember(memory)
        if pulled:
            for item in memory.queue:
                # The puller lets go of what an entry in the log names, unless a thread uses it.
                if isinstance(item.entry, GetEntry) and item.entry.replica == self.name:
                    held = self.held.get(item.entry.insert)
                    if held is not None and not held.is_used:
                        self._drop_held(item.entry.insert)

    def _look_at_held(self) -> None:
        """Give up what is over, and forget, once under each epoch, the nodes of what is not held."""
        if not self.alive:
            return
        if self.is_active:
            epoch = self.memory.epoch
            if epoch != self._forgot_under and not any(each.kind == "forget" for each in self._threads):
                self._ask("forget", lambda _: None, participant.forget_stale, self.replica)
            for staging in [each for each, held in self.held.items() if held.until <= self.cluster.now]:
                self.give_up(staging)
        self.cluster.after(SECOND, self._look_at_held)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is prepared here any more, or being looked at."""
        return not self.held and not any(each.kind in KINDS for each in self._threads)
