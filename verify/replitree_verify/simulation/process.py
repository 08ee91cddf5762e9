"""A virtual process: the threads of a running replica, performing effects in virtual time.

The threads are those of `life`.  An effect on memory takes no time (but a thread may be put off between any two effects);
an effect on the disk takes its time and happens when it ends; a request goes through the cluster.  What waits is looked at
again when the process's memory changed, when a watch fires, and now and then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Command, MergeEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import commands, executor, inserter, leader, life, mender, puller, quorum_waiter
from replitree.protocol.program.rewriter import accept_rewrite
from replitree.protocol.program.stages import AwaitDecided, AwaitElection, AwaitStrays, GiveBack, Then
from replitree.protocol.program.tagger import RemoveOld
from replitree.protocol.propose.rewrite import Rewriting
from replitree.protocol.upkeep.clean_blocks import Block, BlocksCleaned
from replitree_verify.effects.table import TAKES, perform_local, probes_of
from replitree_verify.engine.steps import Turn
from replitree_verify.outcomes.branch import Request
from replitree_verify.outcomes.closed_stages import ROUNDS, after_close
from replitree_verify.outcomes.local import Done, Here, cancelled
from replitree_verify.probes.catalog import Seen
from replitree_verify.process import consumers, longlife, lost_parts, quorums, shares, tags, upkeep
from replitree_verify.process.read_requests import ShowRows, answer_read
from replitree_verify.simulation import waits
from replitree_verify.simulation.cluster import COORDINATION, Cluster, Reply
from replitree_verify.simulation.observer import Observer
from replitree_verify.simulation.options import MS, SECOND
from replitree_verify.simulation.spoiled import half_done, with_other_bytes
from replitree_verify.simulation.thread import Thread
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import TABLE, me_of, seat_of
from replitree_verify.world.mutation_scope import has_condition

RETRY = 300 * MS
RETRIES = 20_000
"""A process tries at most about so often in a run: in one of many hours, where a fault lasts hours, it is slower."""

POLL = 10 * SECOND
FETCH_TIMEOUT = 2 * SECOND

_DUTIES = longlife.DUTIES | quorums.DUTIES | upkeep.DUTIES | shares.DUTIES | tags.DUTIES | consumers.DUTIES


class Process:
    """One process of a replica, from its start to its death.

    Parameters
    ----------
    cluster, observer
        The world, and the observer that checks it.
    name, incarnation
        Which process of which replica.
    stages
        Stages to run instead of others, by name: a mutant.
    processes
        The present process of every replica; also where this one looks whether another is dead.
    is_operator
        Whether it is no replica's process: it has nothing but duties.
    """

    def __init__(
        self,
        cluster: Cluster,
        observer: Observer,
        name: str,
        incarnation: int,
        stages: Mapping[str, StageFunction],
        processes: dict[str, Process],
        *,
        is_operator: bool = False,
    ) -> None:
        self.cluster, self.observer = cluster, observer
        self.name, self.me = name, me_of(name, incarnation)
        self.incarnation = incarnation
        self.replica = Replica(TABLE, name)
        self.alive, self.paused_until, self.groups = True, 0, 0
        self.on_group_over: Callable[[], None] = lambda: None
        self.known_ids: tuple[tuple[fx.BlockId, Block], ...] = ()
        """The deduplication ids that its last cleaning has left."""
        self.partitions = tuple("pq"[: cluster.options.partitions])
        self._stages, self._processes = stages, processes
        self._threads: list[Thread] = []
        self._looking, self._leaves = False, 0
        self._rests_until: dict[str, int] = {}
        self._there: tuple[Any, ...] = ()
        self.session, self._heard_at = cluster.open_session(name), cluster.now
        self.memory = Memory(incarnation, self.session.number)
        if is_operator:
            self._beat()

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads."""
        self.cluster.note(self.name, f"process {self.incarnation} starts")
        self._spawn("life", life.become_active, self.replica, self.me)
        self._spawn("puller", puller.pull_next, self.replica, self.cluster.options.pull_count)
        self._spawn("executor", executor.execute_next, self.replica)
        self._spawn("maker", executor.make_next, self.replica)
        for kind in ("mender", "keeper", "clearer") if self.cluster.options.tags else ("mender", "keeper"):
            self._spawn(kind, ROUNDS[kind], self.replica)
        if self.cluster.options.elects:
            self._spawn("candidate", ROUNDS["candidate"], self.replica, None)
        self._poll()
        self._beat()

    def insert(self, requests: tuple[tuple[int, str], ...], quorum: int = 0, *of_stream: Any) -> None:
        """Take a group of requests, or a batch of a stream: then with the schema's version and the batch."""
        self.groups += 1
        self._spawn("insert", inserter.accept_insert, self.replica, requests, (), quorum, *of_stream)

    def read(self, read: waits.Read) -> None:
        """Take a read."""
        stage, arguments = read.first_stage(self.replica, self.observer.told)
        self._spawn("read", stage, *arguments)

    def ask(self, request: int, command: Command) -> None:
        """Take a user's command."""
        self._spawn(
            "command", commands.accept_command, self.replica, fx.RequestId(request), command, has_condition(command)
        )

    def rewrite(self, request: int, rewriting: Rewriting) -> None:
        """Take what a client has made of parts."""
        self._spawn("rewrite", accept_rewrite, self.replica, fx.RequestId(request), rewriting)

    def propose(self, sources: tuple[str, ...]) -> None:
        """Propose a merge."""
        self._spawn("leader", leader.lead, self.replica, (MergeEntry(self.name, sources),))

    def duty(self, name: str, *arguments: Any) -> None:
        """Do what an operator, a leader or a cleaner does once, by its name in `_DUTIES`."""
        self._spawn("duty", _DUTIES[name], self.replica, *arguments)

    def leave(self) -> None:
        """Leave the table, which is dropped: begin, or go on after a step that came to nothing."""
        if self.alive and not self._is_leaving and self.memory.state in (State.ACTIVE, State.STOPPED):
            self._leaves += 1
            shared = self.cluster.tree.exists(layout.sharing(self.replica.table))
            self._spawn("duty", shares.leave_table, self.replica, self.me, shared, self.memory.state is State.STOPPED)

    @property
    def _is_leaving(self) -> bool:
        return any(thread.stage in shares.LEAVING for thread in self._threads)

    @property
    def has_left(self) -> bool:
        """Whether it has left the table, and done all that it could before."""
        return self._leaves > 0 and not self._is_leaving and not self.cluster.tree.exists(layout.host(self.replica))

    def kill(self, mutation: fx.EntryId) -> None:
        """Kill a mutation."""
        self._spawn("kill", commands.kill, self.replica, mutation)

    @property
    def rests_in_vain(self) -> bool:
        """Whether an executor that has executed nothing pauses; otherwise it tries again when it sees a chance (`chances`).

        A loss waits while anything is made of the part, and looks at nothing else: without a pause no time would pass.
        """
        return self.cluster.options.losses > 0

    @property
    def neighbours(self) -> list[tuple[str, ...]]:
        """The pairs of parts that a merge may have as sources, as this process sees the table."""
        pairs = pairwise(() if self.memory.place is None else self.memory.place.parts)
        return [(one.name, other.name) for one, other in pairs if one.partition == other.partition]

    @property
    def is_active(self) -> bool:
        """Whether it takes inserts."""
        return self.alive and self.memory.state is State.ACTIVE and self.paused_until <= self.cluster.now

    @property
    def has_settled(self) -> bool:
        """Whether there is nothing left to do about the election, and what was mended is also noted."""
        elections = [each.effect for each in self._threads if each.kind == "candidate"]
        waits = all(each.waits for each in self._threads if each.kind == "mender")
        return waits and all(isinstance(each, AwaitElection) and self._performed(each) is None for each in elections)

    def die(self) -> None:
        """Lose the memory, and leave what is on disk as it is: torn where something was being written."""
        self.cluster.note(self.name, "dies")
        self.observer.seen("crash")
        self.alive = False
        disk = self.cluster.disks[self.name]
        for thread in self._threads:
            # These two change nothing on disk.  Without numbers for them, a seed draws what it drew before there were any.
            if thread.kind not in ("keeper", "candidate") and self.cluster.random.random() < 0.5:
                if isinstance(thread.effect, fx.Stage | fx.Merge):
                    disk = shares.torn_upload(thread.effect.staging, self.memory, disk)
                disk = half_done(thread.effect, disk, self.partitions)
        self.cluster.disks[self.name] = disk
        self._threads.clear()

    def pause(self, length: int) -> None:
        """Stand still for a while."""
        self.observer.seen("pause")
        self.cluster.note(self.name, "stands still")
        self.paused_until = max(self.paused_until, self.cluster.now + length)

    def activate_again(self) -> None:
        """Take a new epoch, as after a restart, and settle what is left of earlier ones."""
        self._remember(self.memory.with_trouble())

    def break_part(self, part: str) -> None:
        """Find a part broken: it is not shown any more, and must be fetched again."""
        self.observer.seen("part broken")
        self.cluster.note(self.name, f"{part} is broken")
        self.lose_files(self.cluster.disks[self.name].without_parts(part))

    def lose_files(self, left: Disk) -> None:
        """Find parts broken: all whose files are not among those that are left."""
        broken = tuple(each for each in self.cluster.disks[self.name].parts if each not in left.parts)
        self.cluster.disks[self.name] = left
        held = {part.name for part in self.memory.held}
        self._remember(self.memory.lacks(tuple(each for each in broken if each[0] in held)))

    def declare_lost(self) -> None:
        """Declare lost what this replica can't get, once for each part: as the upkeep of a running one does (`LostParts`)."""
        asked = {thread.arguments[1] for thread in self._threads if thread.stage is mender.declare}
        for name in sorted(lost_parts.missed_parts(self.memory) - asked):
            self._spawn("duty", mender.declare, self.replica, name)

    # --- session --------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Be heard by coordination, or lose the session; notice a lost one as soon as the link is there."""
        cluster, timeout = self.cluster, self.cluster.options.session_timeout
        linked = not cluster.is_cut(self.name, COORDINATION) and not cluster.is_cut(COORDINATION, self.name)
        heard = self.alive and linked and self.paused_until <= cluster.now
        if self.session.alive and heard:
            self._heard_at = cluster.now
        elif self.session.alive and cluster.now - self._heard_at > timeout:
            cluster.end_session(self.session)
            self.observer.seen("session ended")
        elif not self.session.alive and heard:
            self.session = cluster.open_session(self.name)
            self._heard_at = cluster.now
            self._remember(replace(self.memory, session=self.session.number).with_trouble())
        if self.alive or self.session.alive:
            cluster.after(timeout // 4, self._beat)

    # --- threads --------------------------------------------------------------------------------------------------------

    def _spawn(self, kind: str, stage: StageFunction, *arguments: Any) -> None:
        thread = Thread(kind, stage, arguments, self._generator(stage, arguments))
        self._threads.append(thread)
        self._resume(thread, None)

    def _generator(self, stage: StageFunction, arguments: tuple[Any, ...]) -> fx.Procedure[Any]:
        return self._stages.get(stage.__name__, stage)(*arguments)

    def _continue(self, thread: Thread, then: Then) -> None:
        if isinstance(then.outcome, BlocksCleaned):
            self.known_ids = tuple(then.outcome.blocks.items())
        thread.stage, thread.arguments = then.stage, then.arguments
        thread.generator, thread.turns, thread.effect = self._generator(then.stage, then.arguments), [], None
        if then.stage is quorum_waiter.await_quorum and thread.kind == "insert":
            thread.kind = "waiter"
            self._end_group()

    def _end_group(self) -> None:
        self.groups -= 1
        self.on_group_over()

    def _resume(self, thread: Thread, outcome: Any) -> None:
        """Let a thread go on until it waits for something."""
        if not self.alive or thread not in self._threads:
            return
        if self.paused_until > self.cluster.now:
            self.cluster.after(self.paused_until - self.cluster.now, lambda: self._resume(thread, outcome))
            return
        while True:
            try:
                thread.effect = thread.generator.send(outcome)
            except StopIteration as stop:
                if not isinstance(stop.value, Then):
                    thread.end = stop.value
                    self._over(thread)
                    return
                self._continue(thread, stop.value)
                outcome = None
                continue
            done = self._begin(thread, thread.effect)
            if not done:
                return
            outcome = done[0]
            if self.cluster.chance(self.cluster.options.preempt):
                self.cluster.after(self.cluster.spread(20 * MS), partial(self._resume, thread, outcome))
                return

    def _over(self, thread: Thread) -> None:
        self._threads.remove(thread)
        if thread.kind == "insert":
            self._end_group()

    def _begin(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        """Begin an effect; its outcome when it is over at once, None when the thread will be resumed."""
        if isinstance(effect, fx.Commit):
            request = Request(self.replica, self.me, self.session.number, self.memory.epoch, effect.operations)
            self.cluster.ask(self.session, request, lambda reply: self._hear(thread, reply))
            return None
        takes = TAKES[type(effect)]
        if takes == "request":
            self.cluster.ask(self.session, effect, lambda reply: self._hear(thread, reply))
            return None
        if takes == "disk":
            options = self.cluster.options
            if not isinstance(effect, fx.FetchMany):
                time = self.cluster.spread(options.disk)
            elif any(self._is_split(source) for fetch in effect.fetches for source in fetch.sources):
                time = FETCH_TIMEOUT
            else:
                time = self.cluster.spread(options.disk + 2 * options.delay)
            self.cluster.after(time, lambda: self._do(thread, effect))
            return None
        if isinstance(effect, fx.Answer):
            self._told(thread, effect, None)
            self.observer.answered(effect.request, effect.answer)
            return (None,)
        if isinstance(effect, fx.ProbeOwner):
            seat, incarnation = seat_of(effect.value)
            process = self._processes[seat]
            owner = fx.Owner.DEAD if process.incarnation > incarnation or not process.alive else fx.Owner.UNCLEAR
            self._told(thread, effect, owner)
            return (owner,)
        if isinstance(effect, ShowRows):
            disk, tree = self.cluster.disks[self.name], self.cluster.tree
            told, breach = answer_read(effect, self.memory.held, disk, tree, self.replica)
            self._told(thread, effect, told)
            self.observer.shown(effect, told, breach)
            return (told,)
        if isinstance(effect, GiveBack) and not effect.done and self.rests_in_vain:
            self._locally(thread, effect)
            self.cluster.after(self._pause(), partial(self._resume, thread, None))
            return None
        done = self._locally(thread, effect)
        if done is None and isinstance(effect, AwaitDecided) and not effect.is_given_up:
            patience = self.cluster.spread(self.cluster.options.patience)
            self.cluster.after(patience, lambda: self._lose_patience(thread, effect))
        return done

    def _lose_patience(self, thread: Thread, effect: AwaitDecided) -> None:
        if thread.effect is not effect or not thread.waits or not self.alive:
            return
        thread.waits = False
        turn = quorums.decided(effect, self.memory)
        assert turn is not None
        self._told(thread, effect, turn)
        self._resume(thread, turn)

    def _locally(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if isinstance(effect, AwaitStrays) and self._rests(thread):
            thread.waits = True
            return None
        done = self._performed(effect)
        thread.waits = done is None
        if done is None:
            return None
        if isinstance(effect, AwaitStrays):
            self._rest(thread, self._pause())
        self._told(thread, effect, done.outcome)
        if done.disk is not (before := self.cluster.disks[self.name]):
            self.cluster.disks[self.name] = done.disk
            self.observer.removed(self.name, before)
        self._remember(done.memory)
        self.observer.revealed(self.name, self.memory)
        return (done.outcome,)

    def _performed(self, effect: Any) -> Done | None:
        return (waits.perform if isinstance(effect, waits.EFFECTS) else perform_local)(effect, self._here())

    def _here(self) -> Here:
        cluster, disks, options = self.cluster, self.cluster.disks, self.cluster.options
        return Here(
            self.replica, self.me, self.memory, disks[self.name], cluster.tree, disks, self.partitions, elects=options.elects,
            loses=options.losses > 0, rewrites=tuple(self.observer.rewrites.values()), keeps_old=options.tags > 0,
        )  # fmt: skip

    # --- outcomes -------------------------------------------------------------------------------------------------------

    def _hear(self, thread: Thread, reply: Reply) -> None:
        """Hear the outcome of a request, or that there is none."""
        if not self.alive or thread not in self._threads:
            return
        if self.paused_until > self.cluster.now:
            self.cluster.after(self.paused_until - self.cluster.now, lambda: self._hear(thread, reply))
        elif reply.lost:
            self._close(thread)
        else:
            self._told(thread, thread.effect, reply.outcome, reply.fate)
            self._resume(thread, reply.outcome)

    def _close(self, thread: Thread) -> None:
        """Close a stage whose read could not be had; the thread goes on a little later."""
        self.cluster.note(self.name, f"{thread.kind} closed")
        self.observer.seen(f"{thread.kind} closed")
        thread.generator.close()
        closed = after_close(thread.kind, self.replica, self.me, self.memory, thread.told)
        self._remember(closed.memory)  # before anything else begins, which would be forgotten
        for request, answer in closed.answers:
            self.observer.answered(request, answer)
        if closed.then is None:
            self._over(thread)
        else:
            self._continue(thread, closed.then)
        self.cluster.after(self._pause(), lambda: self._resume(thread, None))

    def _told(self, thread: Thread, effect: Any, outcome: Any, fate: str = "", *, disk_changed: bool = False) -> None:
        for probe in probes_of(Seen(thread.told, effect, outcome, fate, disk_changed)):
            self.observer.seen(probe)
        thread.turns.append((effect, outcome))
        self.cluster.note(self.name, f"{type(effect).__name__} {type(outcome).__name__} {fate}")
        self.observer.turn(self.cluster.now, self.name, Turn(effect, outcome, fate))

    def _remember(self, memory: Memory) -> None:
        if memory is not self.memory:
            self.memory = memory
            self.look(0)

    # --- the disk -------------------------------------------------------------------------------------------------------

    def _is_split(self, other: str) -> bool:
        return self.cluster.is_cut(self.name, other) or self.cluster.is_cut(other, self.name)

    def _do(self, thread: Thread, effect: Any) -> None:
        """Perform an effect on the disk, as it is at its end."""
        if not self.alive or thread not in self._threads:
            return
        if self.paused_until > self.cluster.now:
            self.cluster.after(self.paused_until - self.cluster.now, lambda: self._do(thread, effect))
            return
        before = self.cluster.disks[self.name]
        outcome, after, memory = self._on_disk(effect, before)
        self.cluster.disks[self.name] = after
        if isinstance(effect, fx.RemoveStaging | fx.RemovePart | RemoveOld) and after != before:
            self.observer.removed(self.name, before)
        self._told(thread, effect, outcome, disk_changed=after != before)
        self._remember(memory)
        # What could not be made may have a broken source.
        if isinstance(outcome, fx.StoreFailed) and not isinstance(effect, fx.Merge | fx.Mutate | fx.Link):
            self._remember(self.memory.with_trouble())
        if isinstance(effect, fx.Publish | fx.FetchMany):
            for process in self._processes.values():
                process.look(self.cluster.spread(20 * MS))
        is_short = isinstance(effect, fx.FetchMany) and any(isinstance(each, fx.NotFetched) for each in outcome)
        wait = self._pause() if is_short else RETRY
        if wait > RETRY:
            self.cluster.after(wait, lambda: self._resume(thread, outcome))
        else:
            self._resume(thread, outcome)

    def _pause(self) -> int:
        """Return how long to wait before something is tried again: in runs of many hours, where a fault lasts hours, longer."""
        return max(RETRY, self.cluster.options.duration // RETRIES)

    def _on_disk(self, effect: Any, before: Disk) -> tuple[Any, Disk, Memory]:
        if isinstance(effect, fx.Stage | fx.Publish | fx.Merge | fx.Mutate) and self.observer.is_full(self.name):
            return fx.StoreFailed("disk full"), half_done(effect, before, self.partitions), self.memory
        if isinstance(effect, fx.FetchMany):
            return (*self._fetch(effect, before), self.memory)
        done = cancelled(effect, self._here()) if isinstance(effect, fx.Merge | fx.Mutate) else None
        done = perform_local(effect, self._here()) if done is None else done
        assert done is not None
        differs = isinstance(effect, fx.Merge | fx.Mutate) and int(self.name[1:]) <= self.cluster.options.differing
        differs = differs and effect.staging not in dict(self.memory.shares.uploads)  # a client has made that
        if isinstance(done.outcome, fx.Made) and differs:
            return with_other_bytes(effect, done, f"{self.name}.{self.cluster.random.randrange(3)}")
        return done.outcome, done.disk, done.memory

    def _fetch(self, effect: fx.FetchMany, before: Disk) -> tuple[Any, Disk]:
        """Fetch from the sources that are there and can be reached."""
        outcomes: list[Any] = []
        disk = before
        for fetch in effect.fetches:
            reached = tuple(source for source in fetch.sources if self._serves(source))
            one = fx.FetchMany((fx.FetchPart(fetch.part, fetch.content_hash, reached),))
            done = perform_local(one, self._here()._replace(disk=disk))
            assert done is not None
            full = isinstance(done.outcome[0], fx.Fetched) and self.observer.is_full(self.name)
            outcomes.append(fx.NotFetched(fetch.part, "disk full") if full else done.outcome[0])
            disk = disk if full else done.disk
        return tuple(outcomes), disk

    def _serves(self, source: str) -> bool:
        process = self._processes[source]
        return process.alive and process.paused_until <= self.cluster.now and not self._is_split(source)

    # --- waiting --------------------------------------------------------------------------------------------------------

    def look(self, delay: int) -> None:
        """Look soon whether what threads wait for is there."""
        if not self._looking and self.alive:
            self._looking = True
            self.cluster.after(delay, self._look)

    def watch_fires(self) -> None:
        """Be woken by coordination, if the message arrives."""
        if not self.cluster.is_cut(COORDINATION, self.name):
            self.look(self.cluster.spread(self.cluster.options.delay))

    def _look(self) -> None:
        self._looking = False
        there = self._all_there_is()
        for thread in [thread for thread in self._threads if thread.waits]:
            if not self.alive or self.paused_until > self.cluster.now:
                return
            effect, before = thread.in_vain
            if effect is thread.effect and before is there:
                continue
            thread.waits = False
            done = self._locally(thread, thread.effect)
            if done is None:
                thread.in_vain = (thread.effect, there)
            else:
                self._resume(thread, done[0])
                there = self._all_there_is()

    def _all_there_is(self) -> tuple[Any, ...]:
        """Return all that decides whether a wait is over: the same object as before when nothing has changed."""
        cluster = self.cluster
        there = (self.session.number, self.memory, cluster.tree, *cluster.disks.values())
        if len(there) != len(self._there) or not all(map(operator.is_, there, self._there)):
            self._there = there
        return self._there

    def _rests(self, thread: Thread) -> bool:
        """Whether the last round of a thread is too recent for another one."""
        return self.cluster.now < self._rests_until.get(thread.kind, 0)

    def _rest(self, thread: Thread, pause: int) -> None:
        """Let the next round of a thread come a while later."""
        self._rests_until[thread.kind] = self.cluster.now + pause
        self.cluster.after(pause, partial(self._look_at, thread))

    def _look_at(self, thread: Thread) -> None:
        """Look whether what a thread waits for is there: time has passed."""
        thread.in_vain = (None, None)
        self.look(0)

    def _poll(self) -> None:
        if self.alive:
            self.look(0)
            self.cluster.after(POLL, self._poll)
