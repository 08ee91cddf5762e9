"""The states of a model of commands over shards, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    Command,
    DropEntry,
    MutateEntry,
    RewriteEntry,
    StorageEntry,
    encode_entry,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log, log_start
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.program.sharded.shards_command import accept_shards_command
from replitree.protocol.program.stages import AcceptCommand, Accepted, End, ReportTrouble, Stage
from replitree.protocol.propose.propose import COLUMNS_CHANGED
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.propose.shards import ProposedInShards, ShardsCommand
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from replitree.protocol.sharded.creation import NewShard, NewSharded, create_sharded
from replitree.protocol.sharded.joint_batch import insert_named
from replitree.protocol.sharded.joint_insert import JointInsert, JointInserted, JointOutcome, joint_insert
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.removal import begin_drop
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map, encode_map, first_map, moving, rebalanced
from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.commands.logs import (
    NAME,
    PLACE,
    ROOT,
    commanding_in,
    drops_in,
    fresh_in,
    log_in,
    shard_of,
    shards_in,
)
from replitree_verify.commands.model import Give, Model
from replitree_verify.commands.rewrites import filled, merge_in, rewrite_of
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, put
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

SEATS = ("a", "b")
NOT_BEGUN = -1
START = fx.LogIndex(0)
PREPARED = 3
"""For how many joint inserts the participant has prepared."""

TRIES = 2
"""How often a replica reads the columns for one command."""


REPLICAS = tuple(Replica(shard_of(number), seat) for number, seat in enumerate(SEATS))
STAGED = fx.StagingId("s")


STORED = b"s"
"""A letter of the settings: the table has an object store."""

Told = fx.ClientAnswer | ProposedInShards
"""What a client hears of a command."""


@dataclass(frozen=True, slots=True)
class TellGiver:
    """A replica tells its client what became of a command."""

    outcome: Told


@dataclass(frozen=True, slots=True)
class TellInserter:
    """A replica tells its client what became of an insert."""

    outcome: JointOutcome


ALONE = (fx.Sync, fx.AdoptEpoch, fx.ChildrenMany, fx.NextNumber, TellGiver, AcceptCommand, ReportTrouble)
"""Effects that are taken together with the step before.

Which parents of logs are open, the commit proves; the number that an entry will have at least only grows.
"""

TOLD = {fx.Duplicate: "forgotten by its log", fx.MaybeInserted: "in doubt"}
"""The rare branch that an answer is."""


class SeatProcess(NamedTuple):
    """A process of a seat: how many there were before it, and its epoch; None: it has not activated."""

    number: int = 0
    epoch: int | None = 0


class Copy(NamedTuple):
    """A copy: the version of `commands` that it has read, and how many commands the first shard had then."""

    version: int
    known: int


class CommandsState(NamedTuple):
    """A state.

    Attributes
    ----------
    threads, told
        By what is given: where its thread stands, and what its client has heard.
    counts
        By what is given: how many commits have brought a command of its id.
    joints, heard
        By joint insert: where it stands, and what its client has heard.
    began
        By joint insert: up to where everything was dropped when it began.
    copy
        What the copy has read; None: nothing yet.
    wrong_copy
        Whether the copy has come with a command in the logs that it did not know.
    waits
        What may still happen once: ``("roll", "0")`` and the like.
    late
        Commits that are on their way.
    is_anew
        Whether the table is a later one.
    came_while_moving
        Whether partitions were detached, or rows rewritten, while buckets moved.
    """

    tree: Tree
    processes: tuple[SeatProcess, ...]
    threads: tuple[int, ...]
    told: tuple[Told | None, ...]
    counts: tuple[int, ...]
    joints: tuple[int, ...]
    waits: frozenset[tuple[str, str]]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    heard: tuple[JointOutcome | None, ...] = ()
    began: tuple[int, ...] = ()
    copy: Copy | None = None
    wrong_copy: bool = False
    is_anew: bool = False
    came_while_moving: bool = False

    @property
    def key(self) -> CommandsState:
        """What tells it apart."""
        return self


# --- what the threads run ---------------------------------------------------------------------------------------------------


def settings_of(before: bytes) -> bytes:
    """Return the settings after one more change: each adds a letter."""
    return before + b"x"


def stored_settings_of(before: bytes) -> bytes:
    """Return the settings after a change that gives the table an object store."""
    return before + STORED


def store_nodes_of(shard: TablePlace, before: bytes, after: bytes) -> tuple[fx.Operation, ...]:
    """Return what makes the nodes of the object store that a shard gets by a change of its settings."""
    return sharing_nodes(shard) if STORED in after and STORED not in before else ()


def give(replica: Replica, asked: Give) -> Stage:
    """Give a command as a replica does: it reads the columns, and reads them again if they have changed."""
    told: Told = fx.NotInserted(COLUMNS_CHANGED)
    for _ in range(TRIES):
        node = yield fx.Get(layout.columns(replica.table))
        if node is None:
            told = fx.NotInserted("the table is gone")
            break
        entry: Command
        command, version = fx.EntryId(asked.id), node.version + 1
        if asked.kind == "alter":
            entry = AlterEntry(replica.name, command, asked.id, version + 1)
            wanted = ShardsCommand(entry, columns=(node.value + asked.id.encode(), node.version))
        elif asked.kind == "drop":
            wanted = ShardsCommand(DropEntry(replica.name, command, EVERY_PARTITION))
        elif asked.kind == "detach":
            wanted = ShardsCommand(DropEntry(replica.name, command, EVERY_PARTITION, detach=True))
        elif asked.kind == "settings":
            wanted = ShardsCommand(StorageEntry(replica.name, command, "local"), settings=settings_of)
        elif asked.kind == "storage":
            entry = StorageEntry(replica.name, command, "local")
            wanted = ShardsCommand(entry, settings=stored_settings_of, beside=store_nodes_of)
        else:
            wanted = ShardsCommand(
                MutateEntry(replica.name, command, EVERY_PARTITION, asked.id, schema_version=version)
            )
        ended = yield from accept_shards_command(replica, fx.RequestId(0), wanted)
        assert isinstance(ended, End)
        told = ended.outcome
        if told != fx.NotInserted(COLUMNS_CHANGED):
            break
    yield TellGiver(told)
    return None


def insert(joint: JointInsert) -> Stage:
    """Insert into both shards, or overwrite all, and tell."""
    yield TellInserter((yield from insert_named(joint, None, b"a0"))[0])
    return None


# --- the table --------------------------------------------------------------------------------------------------------------


def map_of(shards: int) -> ShardMap:
    """Return the map of a table with so many shards."""
    return first_map(["k"], {Shard(number): 1 for number in range(shards)}, 4)


def founded(incarnation: str) -> Tree:
    """Return the tree with a table of two shards, each with a replica."""
    tree = committed(Tree(), tuple(fx.Create(path) for path in (ROOT, layout.tables(ROOT), places.all_sharded(ROOT))))
    shards = tuple(NewShard(Shard(number), b"", b"") for number in range(len(SEATS)))
    new = NewSharded(ROOT, NAME, incarnation, b"", b"", b"", map_of(len(SEATS)), shards)
    creation = create_sharded(new)
    tree = committed(tree, next(creation).operations)  # type: ignore[attr-defined]  # it is small: one commit
    creation.close()
    nodes: list[fx.Operation] = []
    for number, seat in enumerate(SEATS):
        replica = Replica(shard_of(number, incarnation), seat)
        me = f"{seat}0".encode()
        nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), me))
        nodes += (fx.Create(layout.is_active(replica), me), fx.Create(layout.all_prepared(replica)))
    prepared = Replica(shard_of(1, incarnation), "b")
    nodes += (fx.Create(layout.prepared(prepared, fx.StagingId(f"s{number}"))) for number in range(PREPARED))
    return committed(tree, tuple(nodes))


def grown(tree: Tree) -> tuple[fx.Operation, ...]:
    """Return the commit by which a third shard comes, as it would with a move of buckets."""
    shard, settings = shard_of(2), tree.get(places.metadata(PLACE))
    columns = tree.get(places.columns(PLACE))
    assert settings is not None
    assert columns is not None
    # The version of its columns is that of the others.
    versions = (fx.Set(layout.columns(shard), columns.value, fx.Version(each)) for each in range(columns.version))
    return (
        fx.Set(layout.shard_map(PLACE), encode_map(map_of(3)), fx.ANY_VERSION),
        *table_nodes(shard, settings.value, columns.value, encode_log(shard)),
        *store_nodes_of(shard, b"", settings.value),
        *versions,
    )


def moved(_: Tree) -> tuple[fx.Operation, ...]:
    """Return the commit by which buckets begin to move to the second shard."""
    after = rebalanced(map_of(2), {Shard(0): 1, Shard(1): 3})
    return (fx.Set(layout.shard_map(PLACE), encode_map(moving(map_of(2), after)), fx.ANY_VERSION),)


CHANGES_OF_MAP = {"grow": ("a third shard comes", grown), "move": ("buckets begin to move", moved)}


# --- the search -------------------------------------------------------------------------------------------------------------


class Space(small_search.Space[CommandsState]):
    """The states of a model.

    Attributes
    ----------
    probes
        The rare branches that were seen.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.probes = set[str]()
        self._kernel = Kernel()

    @override
    def first(self) -> CommandsState:
        model, count = self.model, len(self.model.gives)
        joints = model.inserts + len(model.overwrites) + model.rewrites
        once = (("grow", model.grows), ("move", model.moves), ("forget", model.forgets), ("drop", model.is_dropped))
        waits = {(what, "") for what, is_there in once if is_there}
        waits |= {("roll", str(shard)) for shard in model.rolls} | {("clean", str(shard)) for shard in model.cleans}
        waits |= {("retake", seat) for seat in model.retakes} | {("merge", str(shard)) for shard in model.merges}
        tree = filled(founded("i")) if model.rewrites else founded("i")
        if model.is_emptied:
            # An insert under the token of the others has come, and everything was dropped.
            insertion = joint_insert(joint_of(model.inserts), b"a0")
            tree = committed(tree, next(insertion).operations)  # type: ignore[attr-defined]  # a commit
            insertion.close()
            drop = encode_entry(DropEntry("a", fx.EntryId("d"), EVERY_PARTITION))
            logs = (fx.Create(layout.log_create(shard_of(number)), drop, sequential=True) for number in range(2))
            tree = committed(tree, tuple(logs))
        return CommandsState(
            tree,
            (SeatProcess(),) * len(SEATS),
            (NOT_BEGUN,) * count,
            (None,) * count,
            (0,) * count,
            (NOT_BEGUN,) * joints,
            frozenset(waits),
            (),
            budget_of(model.faults),
            (None,) * joints,
            (0,) * joints,
        )

    @override
    def steps(self, state: CommandsState, /) -> Iterator[tuple[str, CommandsState]]:
        for number, (asked, place) in enumerate(zip(self.model.gives, state.threads, strict=True)):
            seat = SEATS.index(asked.seat)
            if place > END:
                yield from self._go_on(state, number, seat, place)
            elif place == NOT_BEGUN and state.processes[seat].epoch is not None and not state.is_anew:
                begun = self._kernel.begin(give, REPLICAS[seat], asked)
                yield f"{asked.seat} is given {asked.id}", self._settled(state, number, seat, begun)
        for number, place in enumerate(state.joints):
            if place != END and not state.is_anew:
                yield from self._insert(state, number)
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", self._after(state, arrival.tree)._replace(late=arrival.late)
        for seat in range(len(SEATS)):
            yield from self._of_seat(state, seat)
        if not state.is_anew:
            yield from self._of_table(state)
        if self.model.copies:
            yield from copied(state, self.probes)

    def _go_on(self, state: CommandsState, number: int, seat: int, place: int) -> Iterator[tuple[str, CommandsState]]:
        """Give each way in which the effect of a thread may end."""
        effect = self._kernel.effect(place)
        what = f"{SEATS[seat]} {self.model.gives[number].id} {type(effect).__name__}"
        if isinstance(effect, fx.Commit):
            for end in ends_of(state.tree, effect.operations, state.budget):
                after = self._after(state, end.tree)._replace(budget=end.budget, late=(*state.late, *end.late))
                yield f"{what} {end.told}", self._settled(after, number, seat, self._kernel.step(place, end.outcome))
        else:
            after, outcome = self._perform(state, number, seat, effect)
            yield what, self._settled(after, number, seat, self._kernel.step(place, outcome))

    def _settled(self, state: CommandsState, number: int, seat: int, place: int) -> CommandsState:
        """Return a state in which a thread stands at a place, or behind it: what no other thread sees is no step of its own."""
        while place > END and isinstance(self._kernel.effect(place), ALONE):
            state, outcome = self._perform(state, number, seat, self._kernel.effect(place))
            place = self._kernel.step(place, outcome)
        return state._replace(threads=put(state.threads, number, place))

    def _perform(self, state: CommandsState, number: int, seat: int, effect: Any) -> tuple[CommandsState, Any]:
        """Perform an effect that meets no fault."""
        process = state.processes[seat]
        match effect:
            case fx.CurrentEpoch():
                return state, None if process.epoch is None else fx.Epoch(process.epoch)
            case fx.AdoptEpoch(epoch):
                newer = process._replace(epoch=max(epoch, process.epoch or 0))
                return state._replace(processes=put(state.processes, seat, newer)), None
            case TellGiver(outcome):
                return self._hear(state, number, outcome), None
            case AcceptCommand():
                # The replica has pulled what was removed, and perhaps nothing else.
                begins = state.tree.get(layout.log(REPLICAS[seat].table))
                reached = START if begins is None else log_start(REPLICAS[seat].table, begins).first
                me = f"{SEATS[seat]}{process.number}".encode()
                return state, Accepted(me, fx.Epoch(process.epoch or 0), reached, STAGED)
            case ReportTrouble():
                return state, None
        return state, answer(state.tree, effect)

    def _hear(self, state: CommandsState, number: int, outcome: Told) -> CommandsState:
        """Let a client hear what became of its command."""
        match outcome:
            case ProposedInShards(written):
                # Another thread has brought it if this id was given twice.
                twice = [each.id for each in self.model.gives].count(self.model.gives[number].id) > 1
                heard = [each for each in state.told if isinstance(each, ProposedInShards)]
                self.probes |= {"known" if twice and heard else "given", "in three" if len(written) == 3 else "given"}
            case fx.NotInserted(reason):
                self.probes.add("columns changed" if reason == COLUMNS_CHANGED else "refused")
            case _:
                self.probes.add(TOLD[type(outcome)])
        return state._replace(told=put(state.told, number, outcome))

    def _after(self, state: CommandsState, tree: Tree) -> CommandsState:
        """Return the state after a commit, with how many commits have brought each command."""
        if state.is_anew or tree is state.tree:
            return state._replace(tree=tree)
        before = {entry.id for shard in map(shard_of, range(3)) for _, entry in fresh_in(state.tree, tree, shard)}
        counts = tuple(
            count + (asked.id in before) for asked, count in zip(self.model.gives, state.counts, strict=True)
        )
        node = state.tree.get(layout.shard_map(PLACE))
        is_moving = node is not None and bool(decode_map(node.value, "").moves)
        entries = (entry for shard in map(shard_of, range(3)) for _, entry in fresh_in(state.tree, tree, shard))
        wrong = any(isinstance(each, RewriteEntry) or (isinstance(each, DropEntry) and each.detach) for each in entries)
        return state._replace(
            tree=tree, counts=counts, came_while_moving=state.came_while_moving or (is_moving and wrong)
        )

    # --- what else happens ------------------------------------------------------------------------------------------------

    def _insert(self, state: CommandsState, number: int) -> Iterator[tuple[str, CommandsState]]:
        """Give what a joint insert does."""
        place, what = state.joints[number], f"insert {number}"
        if place == NOT_BEGUN:
            begun, later = joint_of(number), number - self.model.inserts
            if later >= len(self.model.overwrites):
                known = state.tree.get(layout.shard_map(PLACE)) if self.model.moves else None
                by = fx.Version(0) if known is None else known.version
                begun = rewrite_of(number, state.tree, REPLICAS, by)
            elif later >= 0:
                begun = overwrite_of(number, self.model.overwrites[later], state.tree)
            place = self._kernel.begin(insert, begun)
            began = max(drops_in(state.tree), default=START)
            state = state._replace(began=put(state.began, number, began))
        effect = self._kernel.effect(place)
        ends: list[tuple[str, CommandsState, Any]] = []
        if isinstance(effect, fx.Commit):
            for end in ends_of(state.tree, effect.operations, state.budget):
                after = self._after(state, end.tree)._replace(budget=end.budget, late=(*state.late, *end.late))
                ends.append((f"{what} {end.told}", after, end.outcome))
        else:
            ends.append((f"{what} looks", *self._perform(state, NOT_BEGUN, 0, effect)))
        for told, found, outcome in ends:
            after, stands = found, self._kernel.step(place, outcome)
            while stands != END and isinstance(following := self._kernel.effect(stands), (*ALONE, TellInserter)):
                if isinstance(following, TellInserter):
                    heard = following.outcome
                    is_again = isinstance(heard, JointInserted) and heard.is_duplicate
                    self.probes.add("duplicate" if is_again else type(heard).__name__)
                    if isinstance(heard, JointInserted) and len(heard.written) > len(SEATS):
                        self.probes.add("all three emptied")
                    after, result = after._replace(heard=put(after.heard, number, heard)), None
                else:
                    after, result = self._perform(after, NOT_BEGUN, 0, following)
                stands = self._kernel.step(stands, result)
            yield told, after._replace(joints=put(after.joints, number, stands))

    def _of_seat(self, state: CommandsState, seat: int) -> Iterator[tuple[str, CommandsState]]:
        """Give what happens to the process of a seat: it dies, activates, and takes another epoch."""
        process, replica, name = state.processes[seat], REPLICAS[seat], SEATS[seat]
        left = spent(state.budget, Fault.CRASH)
        if left is not None and process.epoch is not None:
            self.probes.add("crashed")
            threads = tuple(
                END if asked.seat == name and place != NOT_BEGUN else place
                for asked, place in zip(self.model.gives, state.threads, strict=True)
            )
            dead = put(state.processes, seat, SeatProcess(process.number + 1, None))
            yield f"{name} crashes", state._replace(processes=dead, threads=threads, budget=left)
        is_retaken = ("retake", name) in state.waits
        host = state.tree.get(layout.host(replica))
        if host is not None and (process.epoch is None or is_retaken):
            me = f"{name}{process.number}".encode()
            tree = committed(state.tree, (fx.Set(layout.host(replica), me, fx.ANY_VERSION),))
            taken = put(state.processes, seat, process._replace(epoch=host.version + 1))
            waits = state.waits - ({("retake", name)} if process.epoch is not None else set())
            yield f"{name} activates", state._replace(tree=tree, processes=taken, waits=waits)

    def _of_table(self, state: CommandsState) -> Iterator[tuple[str, CommandsState]]:
        """Give what happens to the table beside what clients ask for."""
        shards = shards_in(state.tree)
        for what, which in sorted(state.waits):
            after = state._replace(waits=state.waits - {(what, which)})
            if what in CHANGES_OF_MAP and shards:
                changes, change = CHANGES_OF_MAP[what]
                yield changes, self._after(after, committed(state.tree, change(state.tree)))
            elif what == "roll" and shards:
                seat = int(which)
                rolling = roll_over(REPLICAS[seat], fx.Epoch(state.processes[seat].epoch or 0))
                tree, outcome = state.tree.commit(next(rolling).operations, 1)  # type: ignore[attr-defined]  # a commit
                rolling.close()
                if isinstance(outcome, fx.Applied):
                    self.probes.add("rolled")
                    yield f"log {which} rolls over", self._after(after, tree)
            elif what == "forget":
                names = state.tree.children(layout.joint_tokens(PLACE)) or ()
                gone = tuple(fx.Delete(layout.joint_token(PLACE, fx.BlockId(each)), fx.ANY_VERSION) for each in names)
                if gone:
                    self.probes.add("forgotten")
                    yield "tokens are forgotten", after._replace(tree=committed(state.tree, gone))
            elif what == "clean" and ("forget", "") not in state.waits and log_in(state.tree, shard_of(int(which))):
                table, log = shard_of(int(which)), log_in(state.tree, shard_of(int(which)))
                begins = fx.Set(layout.log(table), encode_log(table, log[-1][0] + 1), fx.ANY_VERSION)
                gone = tuple(fx.Delete(layout.log_entry(table, index), fx.ANY_VERSION) for index, _ in log)
                self.probes.add("cleaned")
                yield f"log {which} is cleaned", after._replace(tree=committed(state.tree, (begins, *gone)))
            elif what == "drop":
                begun, told = begin_drop(ROOT, NAME), cast("Any", None)
                while not isinstance(effect := begun.send(told), fx.Commit):
                    told = answer(state.tree, cast("Any", effect))
                begun.close()
                tree = committed(state.tree, effect.operations)
                yield "a drop begins", after._replace(tree=tree, waits=after.waits | {("anew", "")})
            elif what == "merge" and (appends := merge_in(state.tree, shard_of(int(which)))):
                self.probes.add("merged")
                merged = committed(state.tree, appends)
                yield f"the parts of shard {which} are merged", self._after(after, merged)
            elif what == "anew":
                yield "the table is created anew", after._replace(tree=founded("j"), is_anew=True)


def copied(state: CommandsState, probes: set[str]) -> Iterator[tuple[str, CommandsState]]:
    """Give what the copy does: it reads the version of `commands`, and checks it in its commit."""
    node, known = state.tree.get(commands(PLACE)), len(commanding_in(state.tree, shard_of(0)))
    if node is not None and state.copy is None:
        yield "a copy is read", state._replace(copy=Copy(node.version, known))
    elif node is not None and state.copy is not None and state.copy.version >= 0:
        is_applied = node.version == state.copy.version
        probes.add("copied" if is_applied else "copy refused")
        wrong = is_applied and known != state.copy.known
        yield "the copy comes", state._replace(copy=Copy(-1, 0), wrong_copy=wrong)


def joint_of(number: int) -> JointInsert:
    """Return a joint insert whose participant has prepared; all have one token."""
    rows = (fx.StagedPart("all", 1, 1, ""),)
    own, other = (
        Participant(replica, fx.Epoch(0), fx.StagingId(f"s{number}"), rows, START, is_apart=bool(shard))
        for shard, replica in enumerate(REPLICAS)
    )
    return JointInsert(fx.JointId(f"j{number}"), PLACE, fx.BlockId("t"), fx.Version(0), (own, other))


def overwrite_of(number: int, token: str, tree: Tree) -> JointInsert:
    """Return an overwrite whose rows are all of the first shard, as its client has split them by the map that there is."""
    node, staging = tree.get(layout.shard_map(PLACE)), fx.StagingId(f"s{number}")
    own = Participant(REPLICAS[0], fx.Epoch(0), staging, (fx.StagedPart("all", 1, 1, ""),), START, is_apart=False)
    version = fx.Version(0) if node is None else node.version
    joint = fx.JointId(f"{token}-{number}")
    return JointInsert(joint, PLACE, fx.BlockId(token), version, (own,), drops=(EVERY_PARTITION,))
