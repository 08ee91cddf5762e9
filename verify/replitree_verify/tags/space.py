"""The states of a model of the tags or consumers of a sharded table, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import GetStamped, Stamped, StampedNode, Zxid
from replitree.protocol.program.stages import Stage
from replitree.protocol.sharded import places
from replitree.protocol.sharded.cut import parse_cut
from replitree.protocol.sharded.moves.course import Turned, begin, find_moves
from replitree.protocol.sharded.shard_map import Shard, decode_map, encode_map, first_map, moving, rebalanced
from replitree.protocol.upkeep.consumers import ConsumerValue, decode_consumer, encode_consumer
from replitree.protocol.upkeep.cut_consumers import (
    CUT_CONSUMERS,
    ConsumerMove,
    CutConsumerValue,
    HoldOver,
    hold_in_new_shard,
    move_cut_consumer,
)
from replitree.protocol.upkeep.cut_tags import CUT_TAGS, CutTagValue
from replitree.protocol.upkeep.named_cuts import (
    SHARDS_CHANGED,
    CutName,
    CutThere,
    CutTorn,
    KeepShard,
    KeptShard,
    TakeCut,
    delete_named_cut,
    make_named_cut,
)
from replitree.protocol.upkeep.shard_removal import ShardNeeded, ShardRemoval, ShardRemoved, remove_shard
from replitree.protocol.upkeep.tags import TagValue, encode_tag
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, put
from replitree_verify.tags.model import Model
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

ROOT, TABLE, NAME, INCARNATION = "/c", "d", "t", "i"
NEW = Shard(2)
PLACE = layout.sharded(ROOT, TABLE)
MAP = layout.shard_map(PLACE)
NOT_BEGUN = -1
EMPTIED = Zxid(15)
"""The transaction that has written the map by which the second shard owns nothing: some cuts come before it."""


@dataclass(frozen=True, slots=True)
class Tell:
    """A client hears what became of its call; of a deletion that has certainly ended, that the tag was gone."""

    outcome: ConsumerMove | Turned | ShardRemoval | None


class Job(NamedTuple):
    """What one client does: it makes the tag or the consumer, moves it to a cut, adds or removes a shard, or deletes it."""

    kind: str
    id: str = ""
    cut: int = 0


class TagsState(NamedTuple):
    """A state.

    Attributes
    ----------
    threads, told, attempts
        By job: where it stands, what its client has heard last (None: nothing), and how often it has begun.
    late
        Commits that are on their way.
    shown
        The ids of the tags that were there at some time; of consumers with the cuts at which they stood.
    doubts
        The jobs whose client was in doubt once, has died, or was refused by a replica.
    ends
        How many holds may still end.
    """

    tree: Tree
    threads: tuple[int, ...]
    told: tuple[Any, ...]
    attempts: tuple[int, ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    shown: frozenset[tuple[str, str]] = frozenset()
    doubts: frozenset[int] = frozenset()
    ends: int = 0

    @property
    def key(self) -> TagsState:
        """What tells it apart."""
        return self


def name_of(model: Model) -> CutName[Any]:
    """Return the name that a model is about."""
    kind: Any = CUT_CONSUMERS if model.of_consumers else CUT_TAGS
    return CutName(kind, ROOT, TABLE, NAME)


def shards_in(tree: Tree) -> tuple[str, ...]:
    """Return the names of the shards in the map."""
    node = tree.get(MAP)
    assert node is not None
    return tuple(places.shard_name(TABLE, shard) for shard in decode_map(node.value, MAP).shards)


def make(at: CutName[Any], known_as: str) -> Stage:
    """Give the name."""
    shards = tuple(places.shard_name(TABLE, Shard(number)) for number in range(2))
    yield Tell((yield from make_named_cut(at, INCARNATION, fx.EntryId(known_as), shards)))
    return None


def delete(at: CutName[Any]) -> Stage:
    """Delete the name."""
    shards = tuple(places.shard_name(TABLE, Shard(number)) for number in range(2))
    yield Tell((yield from delete_named_cut(at, shards)))
    return None


def move(at: CutName[Any], cut: int) -> Stage:
    """Move the consumer; the client asks each shard where the cut lies."""
    outcome: ConsumerMove = SHARDS_CHANGED
    for _ in range(2):
        node: fx.Node | None = yield fx.Get(MAP)
        assert node is not None
        names = [places.shard_name(TABLE, shard) for shard in decode_map(node.value, MAP).shards]
        outcome = yield from move_cut_consumer(at, parse_cut(f"e@{cut}"), dict.fromkeys(names, cut))
        if outcome is not SHARDS_CHANGED:
            break
    yield Tell(outcome)
    return None


def add() -> Stage:
    """Add a shard."""
    found = yield from find_moves(PLACE)
    assert found is not None
    weights = {each.shard: each.weight for each in found.map.weights} | {NEW: 1}
    holds = yield from hold_in_new_shard(ROOT, TABLE, places.shard_name(TABLE, NEW))
    yield Tell((yield from begin(found, moving(found.map, rebalanced(found.map, weights)), holds)))
    return None


def remove() -> Stage:
    """Remove the second shard."""
    yield Tell((yield from remove_shard(ROOT, TABLE, Shard(1))))
    return None


class Space(small_search.Space[TagsState]):
    """The states of a model.

    Attributes
    ----------
    probes
        The rare branches that were seen.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.at = model, name_of(model)
        self.probes = set[str]()
        self._kernel = Kernel()
        self.jobs = (
            *(Job(f"make {each}", each) for each in model.makes),
            *(Job("delete"),) * model.deletes,
            *(Job(f"move to {each}", cut=each) for each in model.moves),
            *(Job("add"),) * model.adds,
            *(Job("remove"),) * model.removes,
        )

    @override
    def first(self) -> TagsState:
        shards = tuple(places.hosted_path(ROOT, places.shard_name(TABLE, Shard(number))) for number in range(3))
        paths = (ROOT, layout.tables(ROOT), places.all_sharded(ROOT), *shards[: 2 + min(1, self.model.adds)])
        nodes = (
            *map(fx.Create, paths),
            fx.Create(PLACE, INCARNATION.encode()),
            fx.Create(places.life(PLACE, INCARNATION)),
            fx.Create(MAP, encode_map(first_map(("k",), {Shard(0): 1, Shard(1): 0 if self.model.removes else 1}, 4))),
        )
        if self.model.removes:
            nodes = (*nodes, fx.Create(layout.replicas(places.shard_place(ROOT, TABLE, Shard(1), INCARNATION))))
        count = len(self.jobs)
        none = (NOT_BEGUN,) * count, (None,) * count, (0,) * count
        tree = committed(Tree(), nodes)
        return TagsState(tree, *none, (), budget_of(self.model.faults), ends=self.model.ends)

    @override
    def is_at_rest(self, state: TagsState, /) -> bool:
        return not state.late and all(place == END for place in state.threads)

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: TagsState, /) -> Iterator[tuple[str, TagsState]]:
        for number, (job, place) in enumerate(zip(self.jobs, state.threads, strict=True)):
            if place == NOT_BEGUN:
                attempts = put(state.attempts, number, state.attempts[number] + 1)
                yield f"{job.kind} begins", self._at(state._replace(attempts=attempts), number, self._begun(job))
            elif place > END:
                yield from self._go_on(state, number, place)
                left = spent(state.budget, Fault.CRASH)
                if left is not None:
                    self.probes.add("crashed")
                    after = state._replace(budget=left, doubts=state.doubts | {number})
                    yield f"{job.kind} crashes", after._replace(threads=put(state.threads, number, END))
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", self._seen(state._replace(tree=arrival.tree, late=arrival.late))
        if state.ends:
            yield from self._ended(state)

    def _begun(self, job: Job) -> int:
        """Return where the thread of a job stands at first."""
        if job.id:
            return self._kernel.begin(make, self.at, job.id)
        if job.cut:
            return self._kernel.begin(move, self.at, job.cut)
        if job.kind == "remove":
            return self._kernel.begin(remove)
        return self._kernel.begin(add) if job.kind == "add" else self._kernel.begin(delete, self.at)

    def _ended(self, state: TagsState) -> Iterator[tuple[str, TagsState]]:
        """Let a replica of each shard mark that the hold of the consumer has ended there."""
        for shard in shards_in(state.tree):
            parent, path = self.at.of_shard(shard)
            node = state.tree.get(path)
            if node is not None and not decode_consumer(node.value, path).expired:
                over = msgspec.structs.replace(decode_consumer(node.value, path), expired="late")
                tree = committed(
                    state.tree,
                    (fx.Set(parent, b"", fx.ANY_VERSION), fx.Set(path, encode_consumer(over), fx.ANY_VERSION)),
                )
                yield f"{shard} ends the hold", state._replace(tree=tree, ends=state.ends - 1)

    def _go_on(self, state: TagsState, number: int, place: int) -> Iterator[tuple[str, TagsState]]:
        """Give each way in which the effect of a thread may end."""
        effect, job = self._kernel.effect(place), self.jobs[number]
        what = f"{job.kind} {type(effect).__name__}"
        match effect:
            case fx.Commit():
                for end in ends_of(state.tree, effect.operations, state.budget):
                    after = state._replace(tree=end.tree, budget=end.budget, late=(*state.late, *end.late))
                    stands = self._kernel.step(place, end.outcome)
                    yield f"{what} {end.told}", self._seen(self._at(after, number, stands))
            case KeepShard(shard):
                tree = self._kept(state.tree, job, shard)
                if tree is None:
                    # The replica refuses: another client's node has the name, and this one ends.
                    self.probes.add("kept for another one")
                    after = state._replace(doubts=state.doubts | {number})
                    yield f"{what} refused", after._replace(threads=put(state.threads, number, END))
                else:
                    yield what, self._at(state._replace(tree=tree), number, self._kernel.step(place, None))
            case GetStamped((path,)):
                node = state.tree.get(path)
                stamped = None if node is None else StampedNode(node.value, node.version, EMPTIED, EMPTIED)
                yield what, self._at(state, number, self._kernel.step(place, Stamped((stamped,), EMPTIED)))
            case _:
                yield what, self._at(state, number, self._kernel.step(place, answer(state.tree, effect)))

    def _kept(self, tree: Tree, job: Job, shard: KeptShard) -> Tree | None:
        """Return the tree when the replica of a shard keeps what a client asks for; None: it refuses."""
        parent, path = self.at.of_shard(shard.shard)
        node = tree.get(path)
        if node is not None:
            return tree if self.at.kind.decode_shard(node.value, path).id == job.id else None
        counts = fx.Set(parent, b"", fx.ANY_VERSION) if tree.exists(parent) else None
        if self.model.of_consumers:
            value = encode_consumer(ConsumerValue(shard.index, fx.EntryId(job.id), "r"))
        else:
            value = encode_tag(TagValue(shard.index, fx.EntryId(job.id), shard.replica, ("p",)))
        return committed(tree, (counts or fx.Create(parent), fx.Create(path, value)))

    def _at(self, state: TagsState, number: int, place: int) -> TagsState:
        """Return a state in which a thread stands at a place, or behind what no other thread sees."""
        job = self.jobs[number]
        while place > END and isinstance(effect := self._kernel.effect(place), fx.Sync | TakeCut | Tell):
            outcome: CutTagValue | CutConsumerValue | None = None
            if isinstance(effect, TakeCut):
                # Each attempt has a cut of its own, and so an index of its own.
                index = max(10 * number + state.attempts[number], _since(state.tree))
                cut, known_as = f"e@{index}", fx.EntryId(job.id)
                shards = tuple(KeptShard(shard, index, "r") for shard in shards_in(state.tree))
                of_consumers = self.model.of_consumers
                outcome = (CutConsumerValue if of_consumers else CutTagValue)(cut, known_as, shards)
            if isinstance(effect, Tell):
                state = self._hear(state, number, effect.outcome)
            place = self._kernel.step(place, outcome)
        is_open = isinstance(state.told[number], fx.InDoubt) and place == END
        again = is_open and state.attempts[number] < self.model.attempts
        return state._replace(threads=put(state.threads, number, NOT_BEGUN if again else place))

    def _hear(self, state: TagsState, number: int, told: ConsumerMove | Turned | ShardRemoval | None) -> TagsState:
        """Let a client hear what became of its call."""
        job = self.jobs[number]
        match told:
            case CutThere(value) if job.cut and value is not None:
                self.probes.add("moved" if parse_cut(value.cut).zxid == job.cut else "not moved back")
            case CutThere(value):
                own = value is not None and value.id == job.id
                self.probes.add(
                    "made" if own else "deleted" if value is not None and not job.id else "other" if job.id else "none"
                )
            case CutTorn():
                self.probes.add("torn")
            case HoldOver():
                self.probes.add("hold over")
            case ShardRemoved():
                self.probes.add("removed")
            case ShardNeeded():
                self.probes.add("needed")
            case Turned():
                self.probes.add("added" if told is Turned.DONE else "not added")
            case fx.InDoubt():
                self.probes.add("in doubt")
        doubts = state.doubts | {number} if isinstance(told, fx.InDoubt) else state.doubts
        return state._replace(told=put(state.told, number, told), doubts=doubts)

    def found(self, tree: Tree) -> CutTagValue | CutConsumerValue | None:
        """Return what readers find."""
        node = tree.get(self.at.path)
        value: CutTagValue | CutConsumerValue | None = (
            None if node is None else self.at.kind.decode(node.value, self.at.path)
        )
        return value

    def _seen(self, state: TagsState) -> TagsState:
        """Take note of what is there."""
        value = self.found(state.tree)
        if value is None:
            return state
        if len(shards_in(state.tree)) > len(value.shards):
            self.probes.add("held in a new shard")
        if _since(state.tree):
            self.probes.add("made after the removal" if len(value.shards) == 1 else "removed after its hold")
        return state._replace(shown=state.shown | {(value.id, value.cut if self.model.of_consumers else "")})


def _since(tree: Tree) -> int:
    node = tree.get(MAP)
    assert node is not None
    return decode_map(node.value, MAP).since
