"""Simulated runs: many seeds, each a virtual cluster under faults that must lose nothing and agree in the end.

A run has two phases.  *Safety*: faults happen as the seed draws them, and nothing wrong may ever be seen.  *Liveness*:
the cluster is healed, every process runs; within `LIVENESS` of virtual time every insert must be acknowledged and every
replica must have the same table.  Everything random comes from the seed, so a seed and a commit are a run: its digest, the
hash of everything that happened, is the same on every machine and under every ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId, LogIndex
from replitree.protocol.core.entries import AlterEntry, Command, DropEntry, MutateEntry, inserted_parts
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.making import MAKING
from replitree.protocol.upkeep.clean_blocks import Window
from replitree.protocol.upkeep.clean_log import Keep
from replitree_verify.engine.initial import table_tree
from replitree_verify.engine.steps import Turn
from replitree_verify.process import tags
from replitree_verify.process.read_requests import NotShown, Shown, Told
from replitree_verify.rules.rows import needless_old_parts
from replitree_verify.simulation.clients import Client, Committer
from replitree_verify.simulation.cluster import COORDINATION, Cluster
from replitree_verify.simulation.feed_readers import FeedReaders
from replitree_verify.simulation.observer import Observer, Violated
from replitree_verify.simulation.options import MS, SECOND, draw_options, stretched, with_feed, with_tags, with_upkeep
from replitree_verify.simulation.process import Process
from replitree_verify.simulation.rewriter import Rewriter
from replitree_verify.simulation.runs import Run, Simulated
from replitree_verify.simulation.spoiled import rotted
from replitree_verify.simulation.store.shared_table import SharedTable
from replitree_verify.simulation.store.store_options import draw_moving, draw_store, patient, with_uploads
from replitree_verify.simulation.waits import Read
from replitree_verify.traces.trace import line_of
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage
from replitree_verify.world.memory import State
from replitree_verify.world.model import TABLE
from replitree_verify.world.shared_disk import SharedDisk
from replitree_verify.world.windows import with_clock

LIVENESS = 600 * SECOND
"""How long a healed cluster has to agree and to acknowledge everything, at least."""

SESSIONS = 20
"""The same, in times of the session timeout; and twice as long as faults may begin, for clients that pause in long runs."""

DETACHES = 0.4
"""Share of the drops that keep aside what they remove."""

PAUSES = (200 * MS, 2 * SECOND, 20 * SECOND)
"""How long a process may stand still."""

EVENTS_MAX = 5_000_000
"""Events in which a healed cluster must agree; it needs a few thousand, and some ten thousand for each virtual hour."""


class Simulation:
    """One run.

    Parameters
    ----------
    seed
        Everything random comes from it.
    stages
        Stages to run instead of others, by name: a mutant.  Its table lies on local disks.
    hours
        Virtual hours that the run lasts at least; 0: as long as the seed says, which is less than a minute.
    """

    def __init__(self, seed: int, stages: Mapping[str, Stage] | None = None, hours: int = 0) -> None:
        self.seed = seed
        self._random = Random(seed)  # noqa: S311 - repeatable is what it must be
        self._losses = Random(f"{seed}/lost parts")  # noqa: S311
        self._rewrites = Random(f"{seed}/rewrites")  # noqa: S311
        drawn = draw_options(self._random, Random(f"{seed}/more"), self._losses, self._rewrites)  # noqa: S311
        self._tags = Random(f"{seed}/tags")  # noqa: S311
        self._stages = dict(stages or {})
        self.store = None if self._stages else draw_store(Random(f"{seed}/object store"))  # noqa: S311
        drawn = with_feed(with_tags(with_upkeep(drawn, seed), self._tags), seed, is_local=self.store is None)
        self.options = stretched(drawn, hours) if hours else drawn
        self._names = tuple(f"r{number}" for number in range(1, self.options.replicas + 1))
        if self.store is not None:
            # Rewrites of parts in a store are explored (`stored_rewrite*`); these seeds stay the runs that they were.
            self.options = replace(patient(self.options, self.store), rewrites=0, tags=0)
            self.store = replace(with_uploads(self.store, seed), moving=draw_moving(seed, self.options.duration))
        self.disks = {name: self._new_disk() for name in self._names}
        tree = table_tree(self._names, shared=self.store is not None and not self.store.opens)
        if self.options.window is not None:
            tree = with_clock(tree, *self.options.window)
        self.observer = Observer(self._names, self.options, tree, self.disks)
        self.cluster = Cluster(self.options, self._random, tree, self.disks, self._changed)
        self._processes: dict[str, Process] = {}
        self._incarnations = dict.fromkeys(self._names, 0)
        self._committers = {name: Committer(self.cluster) for name in self._names}
        self._requests = 0
        more = (self.cluster, self.observer, self.disks, self._processes, self._new_request)
        self._shared = None if self.store is None else SharedTable(self.store, *more)
        self._operators = 0
        self._clients = [
            Client(
                *(f"c{n}", self.options.inserts, self.cluster, self.observer, self._committers, self._new_request),
                is_stream=n < self.options.streams,
            )
            for n in range(self.options.clients)
        ]
        self._readers: dict[int, Client] = {}
        self._rewriter = Rewriter(self._rewrites, self.cluster, self.observer, self._processes, self._new_request)
        FeedReaders(seed, self.cluster, self.observer, self._processes).plan(self.options)
        self.observer.on_answer = self._answered

    @property
    def names_at_most(self) -> tuple[str, ...]:
        """The names of the replicas that there are, and of those that may join."""
        return tuple(f"r{number}" for number in range(1, self.options.replicas + self.options.joins + 1))

    # --- the two phases -------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Run both phases; a violation ends the run."""
        violation: str | None = None
        try:
            self._safety()
            self._liveness()
            if self.options.is_dropped:
                self._drop_table()
        except Violated as wrong:
            violation = str(wrong)
        except AssertionError as wrong:
            violation = f"a procedure failed: {wrong!r}"
        cluster = self.cluster
        return Run(
            self.seed,
            self.options,
            cluster.digest.hexdigest(),
            cluster.events,
            cluster.now / SECOND,
            len(self.observer.look({}, ()).log.entries),
            violation,
            dict(self.observer.probes),
            self.store,
        )

    def _safety(self) -> None:
        for name in self._names:
            self._start(name)
        for client in self._clients:
            client.next()
        options = self.options
        for count, fault in (
            (options.crashes, self._crash),
            (options.pauses, lambda: self._processes[self._any()].pause(self._random.choice(PAUSES))),
            (options.cuts, lambda: self._cut(self._any(), COORDINATION)),
            (options.splits, lambda: self._cut(*self._random.sample(self._names, 2))),
            (options.full, self._fill),
            (options.corrupt, self._corrupt),
            (options.merges, self._merge),
            (options.commands, self._command),
            (options.cleanings, self._clean),
            (options.absences, lambda: self._crash(range(options.duration))),
            (options.joins, self._join),
            (options.leaves, self._leave),
            (options.give_ups, lambda: self._lead("give-up")),
            (options.reads, self._read),
            (options.rolls, lambda: self._lead("roll", 1)),
            (options.forgets, lambda: self._lead("results")),
        ):
            for _ in range(count):
                self.cluster.after(self._random.randrange(options.duration), fault)
        for _ in range(options.rewrites):
            self.cluster.after(self._rewrites.randrange(options.duration), self._rewriter.make)
        for number in range(options.tags):
            self.cluster.after(self._tags.randrange(options.duration), partial(self._tag, f"t{number}"))
        for _ in range(options.losses):
            self.cluster.after(self._losses.randrange(options.duration), self._lose)
        if options.losses:
            self._declare_lost()
        if self._shared is not None:
            self._shared.plan_faults(self._random, options.duration)
        self.cluster.run_until(options.duration)

    def _liveness(self) -> None:
        self.cluster.heal()
        if self._shared is not None:
            self._shared.store.be_back()
        self.observer.full.clear()
        for name in self._names:
            self._processes[name].paused_until = min(self._processes[name].paused_until, self.cluster.now)
            if not self._processes[name].alive:
                self._start(name)
        liveness = max(LIVENESS, SESSIONS * self.options.session_timeout, 2 * self.options.duration)
        self._converge(liveness)
        if self._shared is not None:
            self._shared.check_before_activation()
            for process in self._processes.values():
                process.activate_again()
            self._converge(liveness)
            self._shared.check_at_rest()
        self.observer.check_all({name: process.memory for name, process in self._processes.items()})

    def _drop_table(self) -> None:
        """Let every replica leave the table, which is dropped; some processes die at any step, and the next ones go on."""
        self.observer.is_dropping, processes = True, self._processes
        for _ in range(self._random.randrange(3)):
            self.cluster.after(self._random.randrange(40 * (self.options.delay + self.options.disk)), self._crash)
        end = self.cluster.now + LIVENESS
        while not all(process.has_left for process in processes.values()):
            self._pass_second(end, [name for name, process in processes.items() if not process.has_left])
            for process in processes.values():
                if not process.has_left:
                    process.leave()
        for process in (each for each in processes.values() if each.alive):
            process.die()  # its session ends some time later, with its place in the election
        operator = self._new_operator()
        while self.cluster.tree.exists(TABLE.path):
            operator.duty("remove")
            self._pass_second(end, ["the operator"])
        if self._shared is not None:
            self._shared.check_dropped()
        self.observer.seen("table dropped")

    def _pass_second(self, end: int, waiting: list[str]) -> None:
        """Let a second pass in which the drop of the table goes on."""
        self.cluster.run_until(self.cluster.now + SECOND)
        if self.cluster.now >= end:
            raise Violated(f"CONVERGES: the table is not dropped within {LIVENESS // SECOND} seconds; {waiting} go on")

    def _converge(self, liveness: int) -> None:
        """Let time pass until everything is done and all agree."""
        end, events = self.cluster.now + liveness, self.cluster.events + EVENTS_MAX
        while not self._has_converged():
            if self.cluster.now >= end:
                raise Violated(f"CONVERGES: not within {liveness // SECOND} virtual seconds; {self._who_lags()}")
            self.cluster.run_until(self.cluster.now + SECOND)
            if self.cluster.events > events:
                raise Violated(f"CONVERGES: not within {EVENTS_MAX} events; {self._who_lags()}")

    def _has_converged(self) -> bool:
        if not all(client.is_done for client in self._clients):
            return False
        if self._shared is not None and self._shared.left():
            return False
        for process in self._processes.values():
            memory, session = process.memory, process.session
            pulled = memory.place is not None and memory.place.pointer.index == self.observer.end
            at_rest = memory.state is State.ACTIVE and not memory.trouble and not memory.reload and session.alive
            at_rest = at_rest and process.has_settled
            # A rewrite may be on its way although no client waits for it.
            is_over = all(each.startswith(MAKING) for each in memory.staging) and not process.groups
            if not pulled or not at_rest or memory.queue or memory.lacking or not is_over:
                return False
        # Consumers may have moved after a replica had chosen what to remove.
        look = self.observer.look({name: process.memory for name, process in self._processes.items()}, self._names)
        return not any(needless_old_parts(look, name) for name in self._names)

    def _who_lags(self) -> str:
        states = ", ".join(f"{name} {process.memory.state.value}" for name, process in self._processes.items())
        shares = "" if self._shared is None else f"; {self._shared.left()}"
        return f"{sum(not client.is_done for client in self._clients)} clients wait; {states}{shares}"

    # --- processes --------------------------------------------------------------------------------------------------------

    def _new_disk(self) -> Disk:
        return Disk() if self.store is None else SharedDisk()

    def _new_process(self, name: str, incarnation: int, *, is_operator: bool = False) -> Process:
        if self._shared is not None:
            return self._shared.process(name, incarnation, self._stages, is_operator=is_operator)
        return Process(
            self.cluster, self.observer, name, incarnation, self._stages, self._processes, is_operator=is_operator
        )

    def _new_operator(self) -> Process:
        self._operators += 1
        operator = self._new_process(f"op{self._operators}", 0, is_operator=True)
        self.disks[operator.name] = self._new_disk()
        return operator

    def _start(self, name: str) -> None:
        process = self._new_process(name, self._incarnations[name])
        self._incarnations[name] += 1
        self._processes[name] = process
        self._committers[name].serve(process)
        process.start()

    def _restart(self, name: str) -> None:
        if not self._processes[name].alive:
            self._start(name)

    def _changed(self, tree: object, who: str, breach: str | None) -> None:
        del tree
        self.observer.changed(self.cluster.tree, who, breach)
        if self._shared is not None:
            self._shared.changed()
        for process in self._processes.values():
            process.watch_fires()

    def _answered(self, request: int, answer: Told) -> None:
        for client in self._clients:
            client.hear(request, answer)
        if isinstance(answer, Shown | NotShown):
            self._readers.pop(request).known.append(request)

    def _new_request(self) -> int:
        self._requests += 1
        return self._requests

    # --- faults -----------------------------------------------------------------------------------------------------------

    def _any(self) -> str:
        return self._random.choice(self._names)

    def _crash(self, absences: Sequence[int] = (50 * MS, SECOND, 8 * SECOND)) -> None:
        """Let a process die, and start the next one after one of these times."""
        name = self._any()
        if self._processes[name].alive:
            self._processes[name].die()
            self.cluster.after(self._random.choice(absences), lambda: self._restart(name))

    def _clean(self) -> None:
        """Let some replica clean the log, and keep little."""
        process, window = self._processes[self._any()], self.options.window
        if process.is_active:
            at_least = self._random.randrange(3)
            keep = Keep(at_least, at_least + self._random.randrange(4))
            if window is None:
                process.duty("clean", keep)
            else:
                process.duty("tidy", Window(*window), keep, process.known_ids)

    def _join(self) -> None:
        """Let a new replica join."""
        name = f"r{len(self._names) + 1}"
        self._names = (*self._names, name)
        self.disks[name], self._incarnations[name] = self._new_disk(), 0
        self.observer.add(name)
        self._committers[name] = Committer(self.cluster)
        self._start(name)

    def _leave(self) -> None:
        """Let an operator drop a replica whose process is dead and whose rows others have; half of the time it is cut off."""
        name = self._any()
        if self._processes[name].alive or self.observer.is_needed(name):
            return
        operator = self._new_operator()
        operator.duty("drop", name)
        if self.cluster.chance(0.5):
            self.cluster.after(self._random.randrange(20 * self.options.delay), operator.die)
        self.cluster.after(self._random.randrange(self.options.duration), lambda: self._restart(name))

    def _lead(self, duty: str, *arguments: Any) -> None:
        """Let some replica do something that the leader does now and then; two leaders at once do no harm."""
        process = self._processes[self._any()]
        if process.is_active:
            process.duty(duty, *arguments)

    def _tag(self, name: str) -> None:
        """Let some replica give the present version, or an earlier one, a name; or take one away; or change a consumer."""
        process = self._processes[self._tags.choice(self._names)]
        if process.is_active and process.memory.place is not None:
            process.duty(*tags.draw_duty(self._tags, self.cluster.tree, name, process.memory.place.pointer.index))

    def _read(self) -> None:
        """Let a client read at some replica, at any level."""
        process, client = self._processes[self._any()], self._random.choice(self._clients)
        if not process.is_active:
            return
        number, level = self._new_request(), self._random.choice(("eventual", "sequential", "linearizable", "as_of"))
        seen = [told.position for each in client.known if isinstance(told := self.observer.told[each], Shown)]
        position = self._random.choice(seen) if seen else LogIndex(0)
        self.observer.seen("read as of a position" if level == "as_of" else f"{level} read asked")
        self._readers[number] = client
        process.read(Read(number, level, tuple(client.known), position))

    def _merge(self) -> None:
        """Let some replica propose to merge neighbours, as it sees them."""
        process = self._processes[self._any()]
        # With elections only a leader proposes it.
        process = next((each for each in self._processes.values() if each.is_active and each.memory.leads), process)
        if process.is_active and process.neighbours:
            process.propose(self._random.choice(process.neighbours))

    def _command(self) -> None:
        """Send a mutation, a drop or an alter to some replica, or kill the last mutation there."""
        process, request = self._processes[self._any()], self._new_request()
        if not process.is_active:
            return
        name, entry_id = process.name, EntryId(f"e{request}")
        partition = self._random.choice(("*", "p"))
        kind = self._random.randrange(5)
        if kind == 0:
            command: Command = DropEntry(name, entry_id, partition, detach=self._random.random() < DETACHES)
        elif kind == 1:
            first, last = (first := self._random.randrange(8)), first + self._random.randrange(3)
            command = DropEntry(name, entry_id, partition, first, last, self._random.random() < DETACHES)
        elif kind == 2:
            command = AlterEntry(name, entry_id, "x", 2)
        else:
            inserts, condition = sorted(self.observer.tokens), ""
            if request % 2 == 0 and inserts:  # the condition covers rows of two inserts and of another mutation
                self.observer.seen("mutation with a condition")
                condition = f"@{inserts[0]},{inserts[-1]},~x{request - 1}"
            command = MutateEntry(name, entry_id, partition, f"x{request}{condition}")
        self.observer.commanded(request, command)
        process.ask(request, command)
        if self.cluster.chance(self.options.doubles):
            # Another replica gets it too, as from a client that heard nothing.
            other = self._processes[self._any()]
            if other.is_active:
                request, again = self._new_request(), msgspec.structs.replace(command, replica=other.name)
                self.observer.seen("command sent twice")
                self.observer.commanded(request, again)
                other.ask(request, again)
        if kind == 4:
            self.observer.killed.add(entry_id)
            process.kill(entry_id)

    def _cut(self, source: str, target: str) -> None:
        """Cut the link between two replicas, or between one and coordination, in one direction or both."""
        directions = self._random.choice(
            (((source, target),), ((target, source),), ((source, target), (target, source)))
        )
        length = self._random.choice((500 * MS, 3 * SECOND, 15 * SECOND))
        self.observer.seen(f"link cut {'one way' if len(directions) == 1 else 'both ways'}")
        for one, other in directions:
            self.cluster.cut(one, other)
            self.cluster.after(length, lambda one=one, other=other: self.cluster.mend(one, other))  # type: ignore[misc]

    def _fill(self) -> None:
        name = self._any()
        self.observer.full.add(name)
        self.cluster.after(self._random.choice((SECOND, 5 * SECOND)), lambda: self.observer.full.discard(name))

    def _corrupt(self) -> None:
        """Break a part of which another replica has registered a whole copy: no fault that can't be mended."""
        name = self._any()
        process = self._processes[name]
        if not process.alive:
            return
        for part, content in self.disks[name].parts:
            # What a replica has not registered yet, it need not keep.
            is_whole_elsewhere = any(
                self.disks[each].content(part) == content
                for each in self._names
                if each != name and self.cluster.tree.exists(layout.part(Replica(TABLE, each), part))
            )
            if is_whole_elsewhere and part in [each.name for each in process.memory.visible]:
                process.break_part(part)
                return

    def _lose(self) -> None:
        """Let the rows of a part of some insert rot on all disks, or on all but one, whatever was made of them."""
        log = self.observer.look({}, ()).log
        opened, takes_copies = log.open_at(log.end), self._losses.random() < 0.5
        inserts = ((LogIndex(index), entry) for index, entry in log.inserts if index not in opened)
        parts = (part for index, entry in inserts for part in inserted_parts(entry, index))
        there = [part for part in parts if log.parts.covering(part) is not None]
        if not there:
            return
        part, spared = self._losses.choice(there), self._losses.choice((*self._names, *("" for _ in self._names)))
        requests = frozenset(int(row) for row in log.lineage[part].rows)
        after = {
            name: rotted(disk, part.partition, requests, takes_copies=takes_copies) for name, disk in self.disks.items()
        }
        if self.options.differing:  # a replica with the sources of a merge may not make the bytes that `results` name
            spared = ""
        kept = {*self.disks[spared].parts}.difference(after[spared].parts) if spared else set()
        if self.store is not None:  # what a replica has not registered is another one's share, which it can't set aside
            kept = {each for each in kept if each[0] in log.registered(Replica(TABLE, spared))}
        spares = {**after, spared: self.disks[spared]} if kept else after
        left = spares if kept and self.observer.has_all_rows(spares) else after
        if self.observer.rotten_rows_are_kept(left) is not None:
            return  # an earlier loss has left other rows of these parts on one disk only
        self.observer.rotted(part, "" if left is after else spared)
        for name, disk in left.items():
            process = self._processes.get(name)
            if process is not None and process.alive:
                process.lose_files(disk)
            else:
                self.disks[name] = disk

    def _declare_lost(self) -> None:
        """Let replicas declare lost what they can't get, now and again; how long it was missing makes no difference here."""
        for process in self._processes.values():
            if process.is_active:
                process.declare_lost()
        self.cluster.after(SECOND, self._declare_lost)


def simulate_seed(seed: int, stages: Mapping[str, Stage] | None = None, hours: int = 0) -> Run:
    """Run one seed.

    Parameters
    ----------
    seed
        Everything random comes from it.
    stages
        Stages to run instead of others, by name: a mutant.
    hours
        As of `Simulation`.
    """
    return Simulation(seed, stages, hours).run()


def simulate(seeds: Iterable[int], stages: Mapping[str, Stage] | None = None) -> Simulated:
    """Run many seeds and count what they saw."""
    return summed_up(simulate_seed(seed, stages) for seed in seeds)


def summed_up(runs: Iterable[Run]) -> Simulated:
    """Count what runs saw, which are given in the order of their seeds and may run only now."""
    begun = time.perf_counter()
    result = Simulated()
    digests = []
    for run in runs:
        digests.append(run.digest)
        result.runs += 1
        result.events += run.events
        result.probes.update(list(run.probes))
        if run.violation is not None:
            result.violations.append((run.seed, run.violation))
    result.digest = xxh3_64_hexdigest("\n".join(digests).encode())
    result.seconds = time.perf_counter() - begun
    return result


def trace_of_seed(seed: int, stages: Mapping[str, Stage] | None = None, hours: int = 0) -> tuple[Run, list[str]]:
    """Run one seed again and return its lines: virtual time, who, what, and how it ended."""
    simulation = Simulation(seed, stages, hours)
    lines: list[str] = []

    def write(now: int, who: str, turn: Turn) -> None:
        line = line_of(who, who, turn)
        if line is not None:
            lines.append(f"{now / SECOND:>10.6f} {line}")

    simulation.observer.on_turn = write
    return simulation.run(), lines
