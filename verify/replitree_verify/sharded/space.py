"""The states of a model of a sharded table's life, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.table import TableOutcome, create_table, find_table, join_table, leave_table
from replitree.protocol.program.stages import Stage
from replitree.protocol.rescue.restore import NotRestored, restore
from replitree.protocol.rescue.restore_sharded import (
    NotOneCut,
    RestoredShard,
    ShardsMissing,
    Shown,
    Standing,
    begin_restore,
    decode_restored,
    restored_shards,
    shard_bond,
    show_restored,
)
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import (
    COMMIT_BYTES_MAX,
    Creation,
    NewShard,
    NewSharded,
    create_sharded,
    finish_creation,
)
from replitree.protocol.sharded.life import decode_life
from replitree.protocol.sharded.removal import ShardedRemoval, begin_drop, drop_step
from replitree.protocol.sharded.shard_map import Shard, first_map
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, put
from replitree_verify.sharded.model import Disk, Model
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

ROOT = "/c"
NAME = "d"
PLACE = layout.sharded(ROOT, NAME)
RESERVED = places.reserved(ROOT, NAME)
PLAIN = TablePlace(RESERVED, incarnation="p")
NOT_BEGUN = -1

Outcome = Creation | ShardedRemoval | TableOutcome | Shown | ShardsMissing | NotOneCut | NotRestored

Told = tuple[Outcome, str]
"""What a client is told, and of which incarnation; empty: of none."""


@dataclass(frozen=True, slots=True)
class Tell:
    """A process tells its client."""

    told: Told


SEEN: Mapping[Outcome, str] = {
    Creation.DONE: "created",
    Creation.TAKEN: "taken",
    Creation.EXISTS: "exists",
    Creation.HALF_MADE: "half-made",
    Creation.RESTORING: "being restored",
    Creation.DROPPING: "dropping",
    Creation.DROPPED: "dropped meanwhile",
    Creation.UNSETTLED: "unsettled",
    ShardedRemoval.DONE: "gone",
    ShardedRemoval.SHARDS_LEFT: "shards left",
    TableOutcome.DROPPED: "name refused",
    TableOutcome.DONE: "joined",
}

SEEN_OF_RESTORES: Mapping[type, str] = {
    Shown: "shown",
    ShardsMissing: "shards missing",
    NotOneCut: "not one cut",
    NotRestored: "not restored",
}
"""The rare branch that an outcome is."""

ALONE = (fx.Sync, Tell)
"""Effects that are taken together with the step before: no other process sees them."""


class Job(NamedTuple):
    """What one process does: its kind; of which incarnation, empty: of the one that is there; from which disk."""

    kind: str
    incarnation: str = ""
    number: int = 0


class LifeState(NamedTuple):
    """A state.

    Attributes
    ----------
    threads, told, attempts
        By job: where it stands, what its client has heard last, and how often it has begun.
    late
        Commits that are on their way.
    shown
        Incarnations that were there at some time.
    has_crashed
        Whether a process has died.
    stood
        The shards that were restored when the table was shown, or are by now.
    """

    tree: Tree
    threads: tuple[int, ...]
    told: tuple[Told | None, ...]
    attempts: tuple[int, ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    shown: frozenset[str] = frozenset()
    has_crashed: bool = False
    stood: tuple[RestoredShard, ...] = ()

    @property
    def key(self) -> LifeState:
        """What tells it apart."""
        return self


def new_table(incarnation: str, count: int) -> NewSharded:
    """Return what a creation with this incarnation creates: a table of so many shards."""
    shard_map = first_map(("k",), {Shard(number): 1 for number in range(count)}, 2)
    shards = tuple(NewShard(shard, f"{incarnation}{shard}".encode(), b"") for shard in shard_map.shards)
    return NewSharded(ROOT, NAME, incarnation, incarnation.encode(), b"", b"", shard_map, shards)


def create(incarnation: str, count: int, is_small: bool) -> Stage:
    """Create the table, in one commit or in one for each shard and two more."""
    bytes_max = COMMIT_BYTES_MAX if is_small else 0
    yield Tell(((yield from create_sharded(new_table(incarnation, count), bytes_max)), incarnation))
    return None


def finish(incarnation: str, count: int) -> Stage:
    """Finish the creation of a table that is half made."""
    yield Tell(((yield from finish_creation(new_table(incarnation, count), 0)), incarnation))
    return None


def drop() -> Stage:
    """Drop the table as far as it goes now."""
    begun = yield from begin_drop(ROOT, NAME)
    if isinstance(begun, ShardedRemoval):
        yield Tell((begun, ""))
    else:
        yield Tell(((yield from drop_step(begun)), begun.incarnation))
    return None


def restore_disk(number: int, disk: Disk, count: int) -> Stage:
    """Restore the shards that a server has, and show the table if they were the last ones."""
    replica = f"r{disk.first}{disk.last}"
    begun = yield from begin_restore(new_table(f"d{number}", count))
    if isinstance(begun, NotRestored):
        yield Tell((begun, ""))
        return None
    before = yield from restored_shards(begun)
    for shard in map(Shard, disk.shards):
        if shard not in before:
            table = Replica(places.shard_place(ROOT, NAME, shard, begun.incarnation), replica)
            bond = shard_bond(begun, shard, replica, Standing("e", disk.first, disk.last))
            me, metadata = f"run {number}".encode(), f"{begun.incarnation}{shard}".encode()
            done = yield from restore(table, me, metadata, b"", {}, None, bond)
            if isinstance(done, NotRestored):
                yield Tell((done, begun.incarnation))
                return None
    yield Tell(((yield from show_restored(begun, torn=disk.torn)), begun.incarnation))
    return None


def create_plain() -> Stage:
    """Create a table that is not sharded."""
    yield Tell(((yield from create_table(PLAIN, b"plain", b"")), ""))
    return None


def take_part() -> Stage:
    """Join the first shard."""
    table = yield from find_table(places.shard_place(ROOT, NAME, Shard(0)).path)
    yield Tell(((yield from join_table(Replica(table, "r"))), ""))
    return None


def leave(table: TablePlace) -> Stage:
    """Leave the first shard."""
    yield from leave_table(Replica(table, "r"))
    return None


class Space(small_search.Space[LifeState]):
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
        self._small = {each.incarnation: each.is_small for each in model.creates}
        self.jobs = (
            *(Job("create", each.incarnation) for each in model.creates),
            *(Job("restore", number=number) for number, _ in enumerate(model.disks)),
            *(Job("finish"),) * model.finishes,
            *(Job("drop"),) * model.drops,
            *(Job("plain"),) * model.plains,
            *(Job("join"), Job("leave")) * model.joins,
        )

    @override
    def first(self) -> LifeState:
        nodes = tuple(fx.Create(path) for path in (ROOT, layout.tables(ROOT), places.all_sharded(ROOT)))
        count = len(self.jobs)
        return LifeState(
            committed(Tree(), nodes),
            (NOT_BEGUN,) * count,
            (None,) * count,
            (0,) * count,
            (),
            budget_of(self.model.faults),
        )

    @override
    def is_at_rest(self, state: LifeState, /) -> bool:
        return not state.late and all(
            place == END or (place == NOT_BEGUN and not self._may_begin(state, job))
            for job, place in zip(self.jobs, state.threads, strict=True)
        )

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: LifeState, /) -> Iterator[tuple[str, LifeState]]:
        for number, (job, place) in enumerate(zip(self.jobs, state.threads, strict=True)):
            if place > END:
                yield from self._go_on(state, number, place)
                left = spent(state.budget, Fault.CRASH)
                # Replicas that die while they join or leave are those of any table: other models have them.
                if left is not None and job.kind not in ("join", "leave"):
                    self.probes.add("crashed")
                    threads = put(state.threads, number, END)
                    yield f"{job.kind} crashes", state._replace(threads=threads, budget=left, has_crashed=True)
            elif place == NOT_BEGUN and self._may_begin(state, job):
                attempts = put(state.attempts, number, state.attempts[number] + 1)
                begun = self._begin(state, job)
                yield f"{job.kind} {job.incarnation} begins", self._at(state._replace(attempts=attempts), number, begun)
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", _seen(state._replace(tree=arrival.tree, late=arrival.late))

    def _may_begin(self, state: LifeState, job: Job) -> bool:
        match job.kind:
            case "finish":
                return half_made(state.tree) is not None
            case "restore":
                return state.has_crashed or not self.model.disks[job.number].is_second
            case "drop":
                return state.tree.exists(PLACE)
            case "join":
                return _first_shard(state.tree) is not None
            case "leave":
                table = _first_shard(state.tree)
                return table is not None and all(
                    state.tree.exists(path) for path in (layout.dropped(table), layout.host(Replica(table, "r")))
                )
        return True

    def _begin(self, state: LifeState, job: Job) -> int:
        match job.kind:
            case "create":
                return self._kernel.begin(create, job.incarnation, self.model.shards, self._small[job.incarnation])
            case "finish":
                return self._kernel.begin(finish, half_made(state.tree), self.model.shards)
            case "restore":
                return self._kernel.begin(restore_disk, job.number, self.model.disks[job.number], self.model.shards)
            case "drop":
                return self._kernel.begin(drop)
            case "plain":
                return self._kernel.begin(create_plain)
            case "join":
                return self._kernel.begin(take_part)
        return self._kernel.begin(leave, _first_shard(state.tree))

    def _go_on(self, state: LifeState, number: int, place: int) -> Iterator[tuple[str, LifeState]]:
        """Give each way in which the effect of a thread may end."""
        effect = self._kernel.effect(place)
        what = f"{self.jobs[number].kind} {self.jobs[number].incarnation} {type(effect).__name__}"
        # The procedures sync before they read, and what they read they check in their commits: no read lags here.
        if not isinstance(effect, fx.Commit):
            yield what, self._at(state, number, self._kernel.step(place, answer(state.tree, effect)))
            return
        for end in ends_of(state.tree, effect.operations, state.budget):
            after = state._replace(tree=end.tree, budget=end.budget, late=(*state.late, *end.late))
            yield f"{what} {end.told}", _seen(self._at(after, number, self._kernel.step(place, end.outcome)))

    def _at(self, state: LifeState, number: int, place: int) -> LifeState:
        """Return a state in which a thread stands at a place, or behind what no other thread sees."""
        while place > END and isinstance(effect := self._kernel.effect(place), ALONE):
            if isinstance(effect, Tell):
                kind, outcome = self.jobs[number].kind, effect.told[0]
                if kind == "finish":
                    self.probes.add("finished" if outcome is Creation.DONE else "")
                elif not (kind == "plain" and outcome is TableOutcome.DONE):
                    self.probes.add(SEEN_OF_RESTORES.get(type(outcome), "") or SEEN.get(outcome, ""))
                state = state._replace(told=put(state.told, number, effect.told))
            place = self._kernel.step(place, None)
        told, job = state.told[number], self.jobs[number]
        # A client drops again until nothing is left.
        is_open = told is not None and told[0] in (ShardedRemoval.SHARDS_LEFT, ShardedRemoval.UNSETTLED)
        again = job.kind == "drop" and place == END and is_open and state.attempts[number] < self.model.attempts
        return state._replace(threads=put(state.threads, number, NOT_BEGUN if again else place))


def half_made(tree: Tree) -> str | None:
    """Return the incarnation of the table that is half made; None: there is none."""
    node = tree.get(PLACE)
    if node is None:
        return None
    incarnation = node.value.decode()
    life = tree.get(places.life(PLACE, incarnation))
    return incarnation if life is not None and decode_life(life.value, "").stage == "making" else None


def _first_shard(tree: Tree) -> TablePlace | None:
    path = places.shard_place(ROOT, NAME, Shard(0)).path
    node = tree.get(path)
    return None if node is None else layout.table_at(path, node)


def _seen(state: LifeState) -> LifeState:
    """Take note of the incarnation that is there, and of the shards that are restored before it is."""
    node = state.tree.get(PLACE)
    if node is None or not state.tree.exists(layout.shard_map(PLACE)):
        # The commit that shows the table deletes these nodes.
        names = () if node is None else state.tree.children(PLACE) or ()
        found = (state.tree.get(f"{PLACE}/{name}") for name in sorted(names) if name.startswith("restored-"))
        return state._replace(stood=tuple(decode_restored(each.value, "") for each in found if each is not None))
    return state._replace(shown=state.shown | {node.value.decode()})
