"""The states of a model of the views of a sharded table, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import AlterEntry, GetEntry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.stamps import GetStamped, Stamped, StampedNode, Zxid
from replitree.protocol.core.views import ViewValue, views_at
from replitree.protocol.program.stages import Stage
from replitree.protocol.propose.propose import Proposer
from replitree.protocol.propose.shards import ProposedInShards, ShardsCommand, propose_to_shards
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import NewShard, NewSharded, create_sharded
from replitree.protocol.sharded.joint_insert import JointInsert, JointInserted, MapChanged, joint_insert
from replitree.protocol.sharded.moves.course import Turned, begin, find_moves
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.removal import Dropping, begin_drop
from replitree.protocol.sharded.shard_map import Bucket, Shard, decode_map, first_map, handed_over, moving
from replitree.protocol.sharded.views import (
    FILLED,
    NewShardedView,
    ViewChange,
    ViewRefused,
    create_sharded_view,
    drop_sharded_view,
    fill_sharded_without_rows,
    read_beginning,
    read_viewed,
    view_node,
    why_sharded_kept,
)
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, log_of, put
from replitree_verify.viewed.model import Model
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

ROOT = "/c"
PLACES = {name: layout.sharded(ROOT, name) for name in ("d", "t")}
SEATS = {"d": ("a", "b"), "t": ("p", "q")}
VIEW = fx.EntryId("v")
START = fx.LogIndex(0)
MOVES = Bucket(0)
"""The bucket of all rows, in either table, that may move from the first shard to the second."""

NOT_BEGUN = -1
EACH, STAGED_MAX = 4, 20
"""For how many attempts of one client, and of all, each participant has prepared."""


@dataclass(frozen=True, slots=True)
class TellViewer:
    """A client hears what became of its call."""

    outcome: Any


@dataclass(frozen=True, slots=True)
class ReadAtBeginning:
    """A client reads the source at the cut at which the view begins.  Outcome: the tokens of its rows."""

    at: Zxid


class Job(NamedTuple):
    """What one client does: its kind, and which rows or which table."""

    kind: str
    of: str = ""


class ViewedState(NamedTuple):
    """A state.

    Attributes
    ----------
    threads, told
        By job: where it stands, and what its client has heard.
    read
        By job: what it has read of several nodes, which are read one after the other.
    late
        Commits that are on their way.
    due
        The tokens of the rows that the target has to have, one for each row.
    begun
        What the source had when the view was created; None: it was not created yet.
    shown
        Whether the view was there at some time, and whether it has gone since.
    misplaced
        Whether a row of a view has come into a shard that did not own it.
    """

    tree: Tree
    threads: tuple[int, ...]
    told: tuple[Any, ...]
    read: tuple[tuple[fx.Node | None, ...], ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    due: tuple[str, ...] = ()
    begun: tuple[str, ...] | None = None
    shown: tuple[bool, bool] = (False, False)
    misplaced: bool = False

    @property
    def key(self) -> ViewedState:
        """What tells it apart."""
        return self


# --- the tables -------------------------------------------------------------------------------------------------------------


def shard_of(table: str, number: int) -> TablePlace:
    """Return the place of a shard."""
    return places.shard_place(ROOT, table, Shard(number), "i")


def replica_of(table: str, number: int) -> Replica:
    """Return the only replica of a shard."""
    return Replica(shard_of(table, number), SEATS[table][number])


def founded() -> Tree:
    """Return the tree with both tables; every replica has prepared as often as it may be asked to."""
    tree = committed(Tree(), tuple(fx.Create(path) for path in (ROOT, layout.tables(ROOT), places.all_sharded(ROOT))))
    for table in PLACES:
        shard_map = first_map(["k"], {Shard(0): 1, Shard(1): 1}, 2)
        shards = tuple(NewShard(Shard(number), b"", b"") for number in range(2))
        creation = create_sharded(NewSharded(ROOT, table, "i", b"", b"", b"", shard_map, shards))
        tree = committed(tree, next(creation).operations)  # type: ignore[attr-defined]  # it is small: one commit
        creation.close()
        nodes: list[fx.Operation] = []
        for number, seat in enumerate(SEATS[table]):
            replica, me = replica_of(table, number), f"{seat}0".encode()
            nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), me))
            nodes += (fx.Create(layout.is_active(replica), me), fx.Create(layout.all_prepared(replica)))
            nodes += (fx.Create(layout.prepared(replica, fx.StagingId(f"s{each}"))) for each in range(STAGED_MAX))
        tree = committed(tree, tuple(nodes))
    return tree


def rows_in(tree: Tree, table: str, number: int) -> tuple[str, ...]:
    """Return the tokens of the rows of a shard: a letter each."""
    entries = (entry for _, entry in log_of(tree, shard_of(table, number)) if isinstance(entry, GetEntry))
    return tuple(token for entry in entries for part in entry.parts for token in part.content_hash)


def view_in(tree: Tree) -> fx.Node | None:
    """Return the node of the view."""
    return tree.get(view_node(PLACES["d"], VIEW))


# --- what clients do --------------------------------------------------------------------------------------------------------


def share(table: str, number: int, token: str, attempt: int, *, is_apart: bool) -> Participant:
    """Return what the replica of a shard has prepared."""
    staging = fx.StagingId(f"s{attempt}")
    return Participant(
        replica_of(table, number),
        fx.Epoch(0),
        staging,
        (fx.StagedPart("all", 1, 1, token),),
        START,
        is_apart=is_apart,
    )


def insert(token: str, number: int, attempts: int) -> Stage:
    """Insert rows into both shards of the source, with what its views make of them."""
    outcome: Any = MapChanged()
    for attempt in range(EACH * number, EACH * number + attempts):
        source = yield from read_viewed(PLACES["d"])
        if source is None:
            outcome = fx.NotInserted("the table is gone")
            break
        shares = [share("d", each, token, attempt, is_apart=bool(each)) for each in range(2)]
        targets = tuple[tuple[str, fx.Version], ...]()
        for _ in source.views.value.views:
            target = yield from read_viewed(PLACES["t"])
            if target is None:
                break
            shares.append(share("t", target.map.owners[MOVES], token, attempt, is_apart=True))
            targets = ((PLACES["t"], target.map_version),)
        joint = JointInsert(
            fx.JointId(f"{number}.{attempt}"),
            PLACES["d"],
            fx.BlockId(token),
            source.map_version,
            tuple(shares),
            targets=targets,
        )
        outcome = yield from joint_insert(joint, b"a0")
        if not isinstance(outcome, MapChanged):
            break
        yield TellViewer(outcome)
    yield TellViewer(outcome)
    return None


def create(attempts: int) -> Stage:
    """Create the view."""
    outcome: ViewChange | ViewRefused = ViewChange.UNSETTLED
    for _ in range(attempts):
        columns: list[fx.Version] = []
        for place in PLACES.values():
            node = yield fx.Get(places.columns(place))
            columns.append(fx.Version(0) if node is None else node.version)
        if columns[0]:
            outcome = ViewRefused("the column is not there any more")
            break
        new = NewShardedView(VIEW, "v", "", PLACES["d"], PLACES["t"], columns[0], columns[1])
        outcome = yield from create_sharded_view(new)
        if outcome is not ViewChange.UNSETTLED and outcome is not ViewChange.COLUMNS:
            break
        yield TellViewer(outcome)
    yield TellViewer(outcome)
    return None


def drop(attempts: int) -> Stage:
    """Drop the view."""
    outcome: ViewChange | ViewRefused = ViewChange.UNSETTLED
    for _ in range(attempts):
        outcome = yield from drop_sharded_view(PLACES["d"], VIEW)
        if outcome is not ViewChange.UNSETTLED:
            break
    yield TellViewer(outcome)
    return None


def fill_view(number: int, attempts: int) -> Stage:
    """Insert the rows from before the view into its target."""
    outcome: Any = None
    for attempt in range(EACH * number, EACH * number + attempts):
        beginning = yield from read_beginning(PLACES["d"], VIEW)
        target = yield from read_viewed(PLACES["t"])
        if beginning is None or not beginning.is_open or target is None:
            break
        rows = yield ReadAtBeginning(beginning.at)
        if not rows:
            outcome = yield from fill_sharded_without_rows(PLACES["d"], VIEW)
            break
        own = share("t", target.map.owners[MOVES], "".join(rows), attempt, is_apart=False)
        joint = JointInsert(
            fx.JointId(f"{number}.{attempt}"),
            PLACES["t"],
            # Tokens are forgotten in time, so what is done once does not depend on them.
            fx.BlockId(f"{number}.{attempt}"),
            target.map_version,
            (own,),
            fills=view_node(PLACES["d"], VIEW),
        )
        outcome = yield from joint_insert(joint, f"{own.replica.name}0".encode())
        if not isinstance(outcome, MapChanged):
            break
        yield TellViewer(outcome)
    yield TellViewer(outcome)
    return None


def move(table: str) -> Stage:
    """Begin to move the bucket of all rows to the second shard."""
    turned = Turned.REFUSED
    while turned is Turned.REFUSED:
        found = yield from find_moves(PLACES[table])
        if found is None or found.map.moves:
            break
        turned = yield from begin(found, moving(found.map, handed_over(found.map, [MOVES], Shard(1))))
    yield TellViewer(turned)
    return None


def alter() -> Stage:
    """Drop the column that the view reads, unless there is one: what a replica does with an alter."""
    viewed = yield from read_viewed(PLACES["d"])
    if viewed is None or viewed.views.value.views:
        yield TellViewer("alter refused")
        return None
    replica = replica_of("d", 0)
    node = yield fx.Get(layout.columns(replica.table))
    entry = AlterEntry(replica.name, fx.EntryId("alter"), "drop c", node.version + 2)
    wanted = ShardsCommand(entry, columns=(b"", node.version), views=viewed.map.views)
    yield TellViewer((yield from propose_to_shards(Proposer(replica, b"a0", START), fx.Epoch(0), wanted)))
    return None


def remove(table: str) -> Stage:
    """Drop a table, unless a view needs it."""
    why, version = yield from why_sharded_kept(PLACES[table])
    yield TellViewer("removal refused" if why else (yield from begin_drop(ROOT, table, version)))
    return None


# --- the search -------------------------------------------------------------------------------------------------------------


class Space(small_search.Space[ViewedState]):
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
        self.jobs = (
            *(Job("insert", token) for token in model.inserts),
            *(Job("create"),) * model.creates,
            *(Job("drop"),) * model.drops,
            *(Job("fill"),) * model.fills,
            *(Job("move", table) for table in model.moves),
            *((Job("alter"),) if model.alters else ()),
            *(Job("remove", table) for table in model.removes),
        )

    @override
    def first(self) -> ViewedState:
        tree, count = founded(), len(self.jobs)
        none = (NOT_BEGUN,) * count, (None,) * count, ((),) * count
        state = ViewedState(tree, *none, (), budget_of(self.model.faults))
        if self.model.before:
            state = self._alone(state, insert(self.model.before, STAGED_MAX // EACH - 1, 1))
        return self._alone(state, create(1)) if self.model.has_view else state

    def _alone(self, state: ViewedState, stage: Stage) -> ViewedState:
        """Return the state after a stage with nothing beside it."""
        outcome: Any = None
        try:
            while True:
                effect: Any = stage.send(outcome)
                if isinstance(effect, fx.Commit):
                    tree, outcome = state.tree.commit(effect.operations, 1)
                    state = after(state, tree)
                else:
                    outcome = None if isinstance(effect, TellViewer) else answer(state.tree, effect)
        except StopIteration:
            return state

    @override
    def is_at_rest(self, state: ViewedState, /) -> bool:
        return not state.late and all(place == END for place in state.threads)

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: ViewedState, /) -> Iterator[tuple[str, ViewedState]]:
        for number, (job, place) in enumerate(zip(self.jobs, state.threads, strict=True)):
            if place == NOT_BEGUN:
                begun = self._begin(number, job)
                yield f"{job.kind} {number} begins", self._at(state, number, begun)
            elif place > END:
                yield from self._go_on(state, number, place)
                left = spent(state.budget, Fault.CRASH)
                if left is not None:
                    self.probes.add("crashed")
                    dead = state._replace(budget=left, threads=put(state.threads, number, END))
                    yield f"{job.kind} {number} crashes", dead._replace(read=put(state.read, number, ()))
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", after(state, arrival.tree)._replace(late=arrival.late)

    def _begin(self, number: int, job: Job) -> int:
        attempts = self.model.attempts
        match job.kind:
            case "insert":
                return self._kernel.begin(insert, job.of, number, attempts)
            case "fill":
                return self._kernel.begin(fill_view, number, attempts)
            case "create":
                return self._kernel.begin(create, attempts)
            case "drop":
                return self._kernel.begin(drop, attempts)
            case "move":
                return self._kernel.begin(move, job.of)
            case "remove":
                return self._kernel.begin(remove, job.of)
        return self._kernel.begin(alter)

    def _go_on(self, state: ViewedState, number: int, place: int) -> Iterator[tuple[str, ViewedState]]:
        """Give each way in which the effect of a thread may end."""
        effect: Any = self._kernel.effect(place)
        what = f"{self.jobs[number].kind} {number} {type(effect).__name__}"
        if isinstance(effect, fx.Commit):
            for end in ends_of(state.tree, effect.operations, state.budget):
                done = after(state, end.tree)._replace(budget=end.budget, late=(*state.late, *end.late))
                yield f"{what} {end.told}", self._at(done, number, self._kernel.step(place, end.outcome))
        elif isinstance(effect, fx.GetMany) and len(effect.paths) > len(state.read[number]) + 1:
            read = (*state.read[number], state.tree.get(effect.paths[len(state.read[number])]))
            yield what, state._replace(read=put(state.read, number, read))
        elif isinstance(effect, fx.GetMany):
            many = fx.Many((*state.read[number], state.tree.get(effect.paths[-1])))
            after_read = state._replace(read=put(state.read, number, ()))
            yield what, self._at(after_read, number, self._kernel.step(place, many))
        else:
            yield what, self._at(state, number, self._kernel.step(place, self._read(state, effect)))

    def _read(self, state: ViewedState, effect: Any) -> Any:
        """Answer an effect that reads."""
        match effect:
            case GetStamped(paths):
                found = (state.tree.get(path) for path in paths)
                # What the source had when the view came is noted in the state; no number says it.
                nodes = (
                    None if each is None else StampedNode(each.value, each.version, Zxid(1), Zxid(1)) for each in found
                )
                return Stamped(tuple(nodes), Zxid(1))
            case ReadAtBeginning():
                return state.begun or ()
            case fx.CurrentEpoch():
                return fx.Epoch(0)
            case fx.AdoptEpoch():
                return None
        return answer(state.tree, effect)

    def _at(self, state: ViewedState, number: int, place: int) -> ViewedState:
        """Return a state in which a thread stands at a place, or behind what no other thread sees."""
        alone = (fx.Sync, fx.AdoptEpoch, fx.CurrentEpoch, TellViewer, ReadAtBeginning)
        while place > END and isinstance(effect := self._kernel.effect(place), alone):
            if isinstance(effect, TellViewer):
                self._hear(self.jobs[number], effect.outcome)
                state = state._replace(told=put(state.told, number, effect.outcome))
                place = self._kernel.step(place, None)
            else:
                place = self._kernel.step(place, self._read(state, effect))
        return state._replace(threads=put(state.threads, number, place))

    def _hear(self, job: Job, told: Any) -> None:
        """Note which rare branch it is that a client hears of."""
        done = {"create": "created", "drop": "dropped", "fill": "filled", "insert": "inserted"}.get(job.kind, "")
        match told:
            case JointInserted(is_duplicate=True):
                self.probes.add("duplicate")
            case JointInserted() | ViewChange.DONE:
                self.probes.add(done)
            case MapChanged():
                self.probes.add("map changed")
            case ViewChange.COLUMNS:
                self.probes.add("columns changed")
            case ViewRefused():
                self.probes.add("refused")
            case Turned.DONE:
                self.probes.add("moved")
            case ProposedInShards():
                self.probes.add("altered")
            case Dropping():
                self.probes.add("removed")
            case fx.NotInserted() if job.kind == "fill":
                self.probes.add("nothing to fill")
            case str():
                self.probes.add(told)


def after(state: ViewedState, tree: Tree) -> ViewedState:
    """Return the state after a commit, with what the target has to have from then on."""
    if tree is state.tree:
        return state
    before, due, begun = view_in(state.tree), list(state.due), state.begun
    fresh = rows_in(tree, "d", 0)[len(rows_in(state.tree, "d", 0)) :]
    now = view_in(tree)
    if before is not None:
        due += fresh
    elif now is not None:
        begun = rows_in(state.tree, "d", 0)
    if before is not None and now is not None and (before.value, now.value) == (b"", FILLED):
        due += begun or ()
    owners = owners_in(state.tree)
    wrong = any(
        number != owners and len(rows_in(tree, "t", number)) > len(rows_in(state.tree, "t", number))
        for number in range(2)
    )
    shown = (state.shown[0] or now is not None, state.shown[1] or (before is not None and now is None))
    return state._replace(
        tree=tree, due=tuple(sorted(due)), begun=begun, shown=shown, misplaced=state.misplaced or wrong
    )


def owners_in(tree: Tree) -> int | None:
    """Return which shard of the target owns the bucket of all rows; None: the target is being dropped."""
    node = tree.get(layout.shard_map(PLACES["t"]))
    return None if node is None else int(decode_map(node.value, "").owners[MOVES])


def views_in(tree: Tree) -> tuple[ViewValue, ...]:
    """Return the views that stand."""
    place = TablePlace(PLACES["d"])
    return views_at(place, tree.get(layout.views(place))).value.views


__all__ = ["MOVES", "NOT_BEGUN", "PLACES", "Job", "Space", "ViewedState", "rows_in", "view_in", "views_in"]
