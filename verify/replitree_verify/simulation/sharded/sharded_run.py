"""Simulated runs of a sharded table: it is created, inserted into and read at cuts under faults, comes to rest, and is dropped.

A run has the phases of `simulation.simulate`: *safety*, in which nothing wrong may ever be seen, and *liveness*, in which the
healed cluster acknowledges every insert and every replica has its shard as the log says.  Then half of the seeds drop the
table.

Its seeds are runs of their own: seed 7 of two shards has nothing of seed 7 of a plain table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import EVERY_PARTITION, AlterEntry, DropEntry, MutateEntry, StorageEntry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.execute.making import MAKING
from replitree.protocol.propose.shards import ProposedInShards, ShardsCommand
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import Creation, NewShard, NewSharded, create_sharded, finish_creation
from replitree.protocol.sharded.moves.progress import moves
from replitree.protocol.sharded.removal import Dropping, ShardedRemoval, begin_drop, drop_step
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from replitree_verify.process.read_requests import Told
from replitree_verify.simulation.cluster import COORDINATION
from replitree_verify.simulation.observer import Violated
from replitree_verify.simulation.options import MS, SECOND
from replitree_verify.simulation.runs import Run
from replitree_verify.simulation.sharded.bucket_moves import SimulatedMover, operate
from replitree_verify.simulation.sharded.errand import Errand
from replitree_verify.simulation.sharded.joint_clients import CutReader, JointClient, Town
from replitree_verify.simulation.sharded.joint_groups import JointGroups
from replitree_verify.simulation.sharded.shard_observer import Judge, ShardObserver
from replitree_verify.simulation.sharded.shard_process import ShardProcess
from replitree_verify.simulation.sharded.sharded_options import (
    GROUPS_FROM,
    KINDS_FROM,
    OWN_FROM,
    OWN_SEEDS,
    draw_sharded,
)
from replitree_verify.simulation.sharded.stamped_cluster import StampedCluster
from replitree_verify.simulation.simulate import LIVENESS, PAUSES, SESSIONS
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import State
from replitree_verify.world.model import INCARNATIONS

ROOT, NAME = "/c", "d"
PLACE = layout.sharded(ROOT, NAME)
BUCKETS = 8

MOVERS = 2
"""Processes that carry moves on at once."""

READ_AT_ONCE = 0.7
"""Share of the acknowledgements after which a linearizable read begins at once."""


class ShardedSimulation:
    """One run of a sharded table.

    Parameters
    ----------
    seed, shards, replicas
        As of `draw_sharded`.
    """

    def __init__(self, seed: int, shards: int, replicas: int = 0) -> None:
        self.seed = seed
        self.options, self.sharded = draw_sharded(seed, shards, replicas)
        self._random = Random(f"{seed}/sharded run {shards}")  # noqa: S311 - repeatable is what it must be
        numbers = iter(range(1, self.options.replicas + 1))
        self._hosts = {
            Shard(shard): tuple(f"r{next(numbers)}" for _ in range(self.sharded.replicas)) for shard in range(shards)
        }
        self._shard_of = {name: shard for shard, names in self._hosts.items() for name in names}
        self._names = tuple(self._shard_of)
        self.disks = {name: Disk() for name in self._names}
        tree = Tree.of(dict.fromkeys((f"{ROOT}/tables", f"{ROOT}/sharded"), b""))
        self.judge = Judge(ROOT, NAME, self._hosts)
        self.cluster = StampedCluster(self.options, self._random, tree, self.disks, self.changed)
        self.judge.zxid = lambda: self.cluster.zxid
        if seed >= GROUPS_FROM:
            self.judge.server_of = {
                name: f"server {at}" for names in self._hosts.values() for at, name in enumerate(names)
            }
        self._groups: dict[str, JointGroups] = {}
        self._processes: dict[str, ShardProcess] = {}
        self._of_shard: dict[Shard, dict[str, Any]] = {shard: {} for shard in self._hosts}
        self._incarnations = dict.fromkeys(self._names, 0)
        self._observers: dict[Shard, ShardObserver] = {}
        self.town = Town(self.cluster, self.judge, self._processes, self._hosts, PLACE)
        options = self.options
        self._clients = [
            JointClient(f"c{number}", options.inserts, self.town, options.quorums, options.quorum)
            for number in range(options.clients)
        ]
        self._readers = [CutReader(self.town) for _ in range(self.sharded.readers)]
        self._is_made, self._is_over, self._errands = False, False, 0
        self._movers: list[SimulatedMover] = []
        self._mover_chance = Random(f"{seed}/moves")  # noqa: S311 - repeatable is what it must be
        self.town.buckets = BUCKETS if self.sharded.moves else 0
        self.town.at_one = Random(f"{seed}/at one") if seed >= GROUPS_FROM else None  # noqa: S311
        self.town.submit = lambda name, asked: self._groups[self.judge.server_of[name]].submit(asked)
        self.town.on_acknowledged = self.read_at_once
        self._commands = Random(f"{seed}/commanded")  # noqa: S311 - repeatable is what it must be
        self._kinds = Random(f"{seed}/kinds of commands")  # noqa: S311 - repeatable is what it must be
        self._own = Random(f"{seed}/own reads")  # noqa: S311 - repeatable is what it must be
        reads_own = seed >= OWN_FROM and self._own.random() < OWN_SEEDS
        self._own_readers = {client: CutReader(self.town, client) for client in self._clients} if reads_own else {}

    # --- the phases -----------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Run all phases; a violation ends the run."""
        violation: str | None = None
        try:
            self.create()
            self.disturb()
            self.come_to_rest()
            if self.sharded.is_dropped:
                self.drop()
        except Violated as wrong:
            violation = str(wrong)
        except AssertionError as wrong:
            violation = f"a procedure failed: {wrong!r}"
        cluster = self.cluster
        entries = sum(len(each.look({}, ()).log.entries) for each in self._observers.values() if not each.is_dropping)
        digest, probes = cluster.digest.hexdigest(), dict(self.judge.probes)
        now = cluster.now / SECOND
        return Run(self.seed, self.options, digest, cluster.events, now, entries, violation, probes)

    def create(self) -> None:
        """Let clients create the table; some die, and the next one finishes what they have begun."""
        for number in range(self.sharded.creators):
            self._create_as(f"{number}a")
        end = self.cluster.now + LIVENESS
        if not self.cluster.run_until(end, lambda: self.cluster.tree.exists(layout.shard_map(PLACE))):
            raise Violated(f"CONVERGES: the table is not created within {LIVENESS // SECOND} seconds")
        self._is_made = True
        self.judge.probes["table created"] += 1

    def _create_as(self, incarnation: str, tries: int = 0) -> None:
        if self._is_made:
            return
        node, commits = self.cluster.tree.get(PLACE), self.sharded.commits
        if node is not None and tries:
            # A client that finds the table half made finishes it, as `client.sharded.sharded_catalog.create` does.
            procedure = finish_creation(self._new(node.value.decode()), commits)
        else:
            procedure = create_sharded(self._new(incarnation), commits)

        def ended(found: Any) -> None:
            self.judge.probes[f"creation: {'closed' if found is None else found.value}"] += 1
            if found is Creation.DONE and not self.cluster.tree.exists(layout.shard_map(PLACE)):
                raise Violated("TRUE: a client is told that the table is created, and it is not there")
            if found is not Creation.DONE:
                self.cluster.after(SECOND, lambda: self._create_as(f"{incarnation[0]}{chr(98 + tries)}", tries + 1))

        errand = self._errand(procedure, ended)
        if self.sharded.cuts_off and self._random.random() < 0.5:
            # A client that dies is followed by another one.
            self.cluster.after(self._random.randrange(10 * self.options.delay + 1), errand.die)
            self.cluster.after(SECOND, lambda: self._create_as(f"{incarnation[0]}{chr(98 + tries)}", tries + 1))

    def _new(self, incarnation: str) -> NewSharded:
        shards = tuple(NewShard(shard, b"", b"") for shard in self._hosts)
        shard_map = first_map(("k",), dict.fromkeys(self._hosts, 1), BUCKETS)
        return NewSharded(ROOT, NAME, incarnation, b"", b"", b"", shard_map, shards)

    def _errand(self, procedure: fx.Procedure[Any], ended: Callable[[Any], None]) -> Errand:
        self._errands += 1
        return Errand(self.cluster, f"client {self._errands}", procedure, ended)

    def disturb(self) -> None:
        """Let clients insert and read while faults happen, as the seed says."""
        options, begun = self.options, self.cluster.now
        for name in self._names:
            self._start(name)
        self._begin_groups(self._names)
        for client in self._clients:
            client.next()
        reads = [reader for reader in self._readers for _ in range(self.sharded.reads)]
        for count, fault in (
            (options.crashes, self.crash),
            (options.pauses, self.pause),
            (options.cuts, lambda: self.cut_link(self._any(), COORDINATION)),
            (options.splits, lambda: self.cut_link(*self._random.sample(self._names, 2))),
            (options.full, self.fill),
            (options.merges, self.merge),
            (options.absences, lambda: self.crash(range(options.duration))),
            (options.give_ups, lambda: self._lead("give-up")),
            (options.rolls, lambda: self._lead("roll", 1)),
            (self.sharded.maps, self.change_map),
            (self.sharded.commands, self.command),
            (self.sharded.moves, self.operate),
            (self.sharded.mover_deaths, self.kill_mover),
        ):
            for _ in range(count):
                self.cluster.after(self._random.randrange(options.duration), fault)
        if self.sharded.moves:
            for _ in range(MOVERS):
                self._start_mover()
        for reader in reads:
            self.cluster.after(self._random.randrange(options.duration), reader.read)
        self.cluster.run_until(begun + options.duration)

    def come_to_rest(self) -> None:
        """Heal the cluster: every insert is acknowledged, and every replica has its shard."""
        self.cluster.heal()
        self.judge.full.clear()
        for name in self._names:
            self._processes[name].paused_until = min(self._processes[name].paused_until, self.cluster.now)
            self._restart(name)
        liveness = max(LIVENESS, SESSIONS * self.options.session_timeout, 2 * self.options.duration)
        self._converge(liveness)
        for process in self._processes.values():
            # What was given up without an answer is left to the next activation.
            process.activate_again()
        self._converge(liveness)
        for reader in self._readers:
            reader.read()
        self.cluster.run_until(self.cluster.now + 10 * SECOND)
        for shard, observer in self._observers.items():
            observer.check_all({name: self._processes[name].memory for name in self._hosts[shard]})

    def _converge(self, liveness: int) -> None:
        if not self.cluster.run_until(self.cluster.now + liveness, self._has_converged):
            states = ", ".join(f"{name} {process.memory.state.value}" for name, process in self._processes.items())
            waiting = sum(not client.is_done for client in self._clients)
            raise Violated(f"CONVERGES: not within {liveness // SECOND} seconds; {waiting} clients wait; {states}")

    def _has_converged(self) -> bool:
        if not all(client.is_done for client in self._clients) or self.cluster.tree.exists(moves(PLACE)):
            return False
        for name, process in self._processes.items():
            memory, observer = process.memory, self._observers[self._shard_of[name]]
            if memory.place is None or memory.place.pointer.index != observer.end:
                return False
            at_rest = (
                memory.state is State.ACTIVE and not memory.trouble and not memory.reload and process.session.alive
            )
            # What it was making of a merge stays until its next activation.
            is_over = all(each.startswith(MAKING) for each in memory.staging)
            if not (at_rest and process.has_settled and process.is_at_rest and is_over) or memory.queue:
                return False
        return True

    def drop(self) -> None:
        """Drop the table: clients take turns, some die, replicas leave their shards; in the end nothing is left."""
        self._is_over = True
        for mover in self._movers:
            mover.die()
        self.cluster.faulty = self._random.random() < 0.5
        end = self.cluster.now + LIVENESS
        done: list[Any] = []

        def step(found: Any) -> None:
            if isinstance(found, Dropping):
                self._errand(drop_step(found), step)
            elif found is ShardedRemoval.DONE or found is ShardedRemoval.MISSING:
                done.append(found)
            else:
                self.cluster.after(SECOND, begin)

        def begin() -> None:
            self._errand(begin_drop(ROOT, NAME), step)

        first = self._errand(begin_drop(ROOT, NAME), step)
        if self._random.random() < 0.3:
            self.cluster.after(self._random.randrange(10 * self.options.delay + 1), first.die)
            self.cluster.after(SECOND, begin)
        while not done:
            self.cluster.run_until(self.cluster.now + SECOND)
            if self.cluster.now >= end:
                shards = self.cluster.tree.children(f"{ROOT}/tables")
                raise Violated(f"CONVERGES: the table is not dropped within {LIVENESS // SECOND} seconds: {shards}")
            self.cluster.faulty = self.cluster.faulty and self.cluster.now < end - LIVENESS // 2
            for process in self._processes.values():
                if self.cluster.tree.exists(layout.dropped(process.replica.table)) and not process.has_left:
                    process.leave()
        left = [PLACE] if self.cluster.tree.exists(PLACE) else []
        # The node that keeps the name is among them.
        left += self.cluster.tree.children(f"{ROOT}/tables") or ()
        if left:
            raise Violated(f"HALF: the table is dropped, and {left} is left")
        self.judge.probes["table dropped"] += 1

    # --- processes --------------------------------------------------------------------------------------------------------

    def operate(self) -> None:
        """Let an operator begin moves of buckets, or turn them back."""

        def heard(found: Any) -> None:
            self.judge.probes[f"moves {found}"] += 1

        self._errand(operate(PLACE, self._mover_chance, self.sharded.shards, BUCKETS), heard)

    def _start_mover(self) -> None:
        """Let a process carry moves on; when it comes to its end the next one begins."""
        if self._is_over:
            return
        name, quorum = f"mover {len(self._movers)}", self.sharded.replicas // 2 + 1
        self._movers.append(
            SimulatedMover(self.town, name, quorum, lambda _: self.cluster.after(SECOND, self._start_mover))
        )

    def kill_mover(self) -> None:
        """Let a process that carries moves on die; another one follows."""
        mover = self._mover_chance.choice(self._movers)
        if mover.is_alive:
            mover.die()
            self.cluster.after(self._mover_chance.choice((50 * MS, 3 * SECOND)), self._start_mover)

    def _place(self, shard: Shard) -> TablePlace:
        return self.judge.place(self.cluster.tree, shard)

    def _start(self, name: str) -> None:
        shard = self._shard_of[name]
        if shard not in self._observers:
            observer = ShardObserver(
                shard, self._place(shard), self.judge, self._hosts[shard], self.options, self.cluster.tree, self.disks
            )
            observer.probes, observer.full = self.judge.probes, self.judge.full
            observer.on_answer = self.answered
            self._observers[shard] = observer
        process = ShardProcess(
            self.cluster,
            self._observers[shard],
            name,
            self._incarnations[name],
            {},
            self._of_shard[shard],
            shard=self._place(shard),
        )
        self._incarnations[name] += 1
        self._processes[name] = self._of_shard[shard][name] = process
        process.start()

    def _restart(self, name: str) -> None:
        if not self._processes[name].alive:
            for each in self._with(name):
                self._start(each)
            self._begin_groups((name,))

    def _with(self, name: str) -> list[str]:
        """Return the names of the processes that die and stand still with one: all of its server, or itself."""
        servers = self.judge.server_of
        return [each for each in self._names if servers[each] == servers[name]] if servers else [name]

    def _begin_groups(self, names: Iterable[str]) -> None:
        """Let the servers of replicas commit inserts in groups, from now on without what they had."""
        for server in dict.fromkeys(self.judge.server_of.get(name, "") for name in names):
            its = (name for name, at in self.judge.server_of.items() if at == server)
            self._groups[server] = JointGroups(self.town, {self._shard_of[name]: self._processes[name] for name in its})

    def changed(self, tree: Tree, who: str, breach: str | None) -> None:
        """Check a change of coordination."""
        self.judge.begin_change(who)
        for observer in self._observers.values():
            observer.changed(tree, who, breach)
        self.judge.end_change(tree)
        for process in self._processes.values():
            process.watch_fires()

    def answered(self, request: int, answer: Told) -> None:
        """Pass an answer on to the client that waits for it."""
        hear = self.town.waiting.pop(request, None)
        if hear is not None:
            hear(answer)

    # --- faults -----------------------------------------------------------------------------------------------------------

    def _any(self) -> str:
        return self._random.choice(self._names)

    def crash(self, absences: Any = (50 * MS, SECOND, 8 * SECOND)) -> None:
        """Let a process die, and start the next one after one of these times."""
        name = self._any()
        if self._processes[name].alive and self._incarnations[name] < len(INCARNATIONS) - 1:
            for each in self._with(name):
                self._processes[each].die()
            self.cluster.after(self._random.choice(absences), lambda: self._restart(name))

    def pause(self) -> None:
        """Let a process stand still for a while."""
        name, length = self._any(), self._random.choice(PAUSES)
        for each in self._with(name):
            self._processes[each].pause(length)

    def _lead(self, duty: str, *arguments: Any) -> None:
        process = self._processes[self._any()]
        if process.is_active:
            process.duty(duty, *arguments)

    def merge(self) -> None:
        """Let some replica propose to merge neighbours, as it sees them."""
        process = self._processes[self._any()]
        if process.is_active and process.neighbours:
            process.propose(self._random.choice(process.neighbours))

    def cut_link(self, source: str, target: str) -> None:
        """Cut the link between two replicas, or between one and coordination, in one direction or both."""
        directions = self._random.choice(
            (((source, target),), ((target, source),), ((source, target), (target, source)))
        )
        length = self._random.choice((500 * MS, 3 * SECOND, 15 * SECOND))
        self.judge.probes[f"link cut {'one way' if len(directions) == 1 else 'both ways'}"] += 1
        for one, other in directions:
            self.cluster.cut(one, other)
            self.cluster.after(length, partial(self.cluster.mend, one, other))

    def fill(self) -> None:
        """Let a disk be full for a while."""
        name = self._any()
        self.judge.full.add(name)
        self.cluster.after(self._random.choice((SECOND, 5 * SECOND)), lambda: self.judge.full.discard(name))

    def command(self) -> None:
        """Send a command for all shards to some replica of any; sometimes the same one to another replica, too."""
        request, drawn = self.town.new_request(), self._commands
        entry_id = EntryId(f"e{request}")
        kind = self._kinds.choice(("mutation", "mutation", "drop", "alter", "keep"))
        kind = kind if self.seed >= KINDS_FROM else "mutation"

        def hear(told: Any) -> None:
            self.judge.probes[f"command: {type(told).__name__}"] += 1
            if isinstance(told, ProposedInShards):
                self.judge.probes[f"{kind} in all shards"] += 1
                self.judge.told_of_command(entry_id)

        for _ in range(drawn.choice((1, 1, 2))):
            shard = drawn.choice(sorted(self._hosts))

            def ask(process: ShardProcess) -> None:
                process.command(request, self._asked(process.name, entry_id, kind), self.town.back(hear))

            self.town.send(shard, ask)

    def _asked(self, name: str, entry_id: EntryId, kind: str) -> ShardsCommand:
        """Return a command as a replica gives it, by the columns that there are."""
        node = self.cluster.tree.get(places.columns(PLACE))
        assert node is not None
        match kind:
            case "drop":
                return ShardsCommand(DropEntry(name, entry_id, EVERY_PARTITION))
            case "alter":
                entry = AlterEntry(name, entry_id, "x", node.version + 2)
                return ShardsCommand(entry, columns=(node.value, node.version))
            case "keep":
                return ShardsCommand(StorageEntry(name, entry_id, "local"), settings=lambda value: value)
        return ShardsCommand(MutateEntry(name, entry_id, EVERY_PARTITION, f"x{entry_id[1:]}", node.version + 1))

    def read_at_once(self, client: JointClient) -> None:
        """Let a reader, or the client itself, ask for what was acknowledged just now: servers of coordination may be behind."""
        if client in self._own_readers:
            self.cluster.after(
                self._own.choice((0, MS, SECOND)), lambda: self._own_readers[client].read(linearizable=False)
            )
        if self.cluster.chance(READ_AT_ONCE):
            self._random.choice(self._readers).read(linearizable=True)

    def change_map(self) -> None:
        """Write the map anew: what was split by the one before is refused."""
        path, node = layout.shard_map(PLACE), self.cluster.tree.get(layout.shard_map(PLACE))
        assert node is not None
        shard_map = first_map(("k",), dict.fromkeys(self._hosts, 1), BUCKETS)

        def write() -> fx.Procedure[None]:
            yield fx.Commit(fx.Set(path, encode_map(shard_map), node.version))

        self._errand(write(), lambda _: None)
