"""The states of a model of the tags of a sharded table, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.program.stages import Stage
from replitree.protocol.sharded import places
from replitree.protocol.upkeep.cut_tags import (
    CutTagOutcome,
    CutTagThere,
    CutTagTorn,
    CutTagValue,
    KeepShard,
    TaggedShard,
    TakeCut,
    decode_cut_tag,
    delete_cut_tag,
    make_cut_tag,
)
from replitree.protocol.upkeep.tags import TagValue, decode_tag, encode_tag
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, put
from replitree_verify.tags.model import Model
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

ROOT, TABLE, NAME, INCARNATION = "/c", "d", "t", "i"
SHARDS = (TablePlace("/c/tables/d~0"), TablePlace("/c/tables/d~1"))
PLACE = layout.sharded(ROOT, TABLE)
TAG = layout.tag(TablePlace(PLACE), NAME)
NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Tell:
    """A client hears what became of its call; of a deletion that has certainly ended, that the tag was gone."""

    outcome: CutTagOutcome | None


class Job(NamedTuple):
    """What one client does; `id` is empty of one that deletes."""

    id: str = ""

    @property
    def kind(self) -> str:
        """For people."""
        return f"make {self.id}" if self.id else "delete"


class TagsState(NamedTuple):
    """A state.

    Attributes
    ----------
    threads, told, attempts
        By job: where it stands, what its client has heard last (None: nothing), and how often it has begun.
    late
        Commits that are on their way.
    shown
        The ids of the tags that were there at some time.
    doubts
        The jobs whose client was in doubt once, has died, or was refused by a replica.
    """

    tree: Tree
    threads: tuple[int, ...]
    told: tuple[Any, ...]
    attempts: tuple[int, ...]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    shown: frozenset[str] = frozenset()
    doubts: frozenset[int] = frozenset()

    @property
    def key(self) -> TagsState:
        """What tells it apart."""
        return self


def make(known_as: str) -> Stage:
    """Make the tag."""
    shards = tuple(shard.name for shard in SHARDS)
    yield Tell((yield from make_cut_tag(ROOT, TABLE, INCARNATION, NAME, fx.EntryId(known_as), shards)))
    return None


def delete() -> Stage:
    """Delete the tag."""
    yield Tell((yield from delete_cut_tag(ROOT, TABLE, NAME, tuple(shard.name for shard in SHARDS))))
    return None


class Space(small_search.Space[TagsState]):
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
        self.jobs = (*(Job(each) for each in model.makes), *(Job(),) * model.deletes)

    @override
    def first(self) -> TagsState:
        paths = (ROOT, layout.tables(ROOT), places.all_sharded(ROOT), PLACE, *(shard.path for shard in SHARDS))
        nodes = (*paths, places.life(PLACE, INCARNATION), layout.shard_map(PLACE))
        count = len(self.jobs)
        tree = committed(Tree(), tuple(map(fx.Create, nodes)))
        none = (NOT_BEGUN,) * count, (None,) * count, (0,) * count
        return TagsState(tree, *none, (), budget_of(self.model.faults))

    @override
    def is_at_rest(self, state: TagsState, /) -> bool:
        return not state.late and all(place == END for place in state.threads)

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: TagsState, /) -> Iterator[tuple[str, TagsState]]:
        for number, (job, place) in enumerate(zip(self.jobs, state.threads, strict=True)):
            if place == NOT_BEGUN:
                attempts = put(state.attempts, number, state.attempts[number] + 1)
                begun = self._kernel.begin(make, job.id) if job.id else self._kernel.begin(delete)
                yield f"{job.kind} begins", self._at(state._replace(attempts=attempts), number, begun)
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
            yield "a late commit arrives", _seen(state._replace(tree=arrival.tree, late=arrival.late))

    def _go_on(self, state: TagsState, number: int, place: int) -> Iterator[tuple[str, TagsState]]:
        """Give each way in which the effect of a thread may end."""
        effect, job = self._kernel.effect(place), self.jobs[number]
        what = f"{job.kind} {type(effect).__name__}"
        match effect:
            case fx.Commit():
                for end in ends_of(state.tree, effect.operations, state.budget):
                    after = state._replace(tree=end.tree, budget=end.budget, late=(*state.late, *end.late))
                    stands = self._kernel.step(place, end.outcome)
                    yield f"{what} {end.told}", _seen(self._at(after, number, stands))
            case KeepShard(shard):
                tree = self._kept(state.tree, job, shard)
                if tree is None:
                    # The replica refuses: another client's node has the name, and this one ends.
                    self.probes.add("kept for another one")
                    after = state._replace(doubts=state.doubts | {number})
                    yield f"{what} refused", after._replace(threads=put(state.threads, number, END))
                else:
                    yield what, self._at(state._replace(tree=tree), number, self._kernel.step(place, None))
            case _:
                yield what, self._at(state, number, self._kernel.step(place, answer(state.tree, effect)))

    def _kept(self, tree: Tree, job: Job, shard: TaggedShard) -> Tree | None:
        """Return the tree when the replica of a shard keeps what a client asks for; None: it refuses."""
        table = TablePlace(f"{layout.tables(ROOT)}/{shard.shard}")
        node = tree.get(layout.tag(table, NAME))
        if node is not None:
            return tree if decode_tag(node.value, "").id == job.id else None
        counts = fx.Set(layout.tags(table), b"", fx.ANY_VERSION) if tree.exists(layout.tags(table)) else None
        value = encode_tag(TagValue(shard.index, fx.EntryId(job.id), shard.replica, ("p",)))
        return committed(tree, (counts or fx.Create(layout.tags(table)), fx.Create(layout.tag(table, NAME), value)))

    def _at(self, state: TagsState, number: int, place: int) -> TagsState:
        """Return a state in which a thread stands at a place, or behind what no other thread sees."""
        job = self.jobs[number]
        while place > END and isinstance(effect := self._kernel.effect(place), fx.Sync | TakeCut | Tell):
            outcome: CutTagValue | None = None
            if isinstance(effect, TakeCut):
                # Each attempt has a cut of its own, and so an index of its own.
                index = 10 * number + state.attempts[number]
                shards = tuple(TaggedShard(shard.name, index, "r") for shard in SHARDS)
                outcome = CutTagValue(f"e@{index}", fx.EntryId(job.id), shards)
            if isinstance(effect, Tell):
                state = self._hear(state, number, effect.outcome)
            place = self._kernel.step(place, outcome)
        is_open = isinstance(state.told[number], fx.InDoubt) and place == END
        again = is_open and state.attempts[number] < self.model.attempts
        return state._replace(threads=put(state.threads, number, NOT_BEGUN if again else place))

    def _hear(self, state: TagsState, number: int, told: CutTagOutcome | None) -> TagsState:
        """Let a client hear what became of its call."""
        job = self.jobs[number]
        match told:
            case CutTagThere(value):
                own = value is not None and value.id == job.id
                self.probes.add(
                    "made" if own else "deleted" if value is not None and not job.id else "other" if job.id else "none"
                )
            case CutTagTorn():
                self.probes.add("torn")
            case fx.InDoubt():
                self.probes.add("in doubt")
        doubts = state.doubts | {number} if isinstance(told, fx.InDoubt) else state.doubts
        return state._replace(told=put(state.told, number, told), doubts=doubts)


def tag_in(tree: Tree) -> CutTagValue | None:
    """Return the tag that readers find."""
    node = tree.get(TAG)
    return None if node is None else decode_cut_tag(node.value, TAG)


def _seen(state: TagsState) -> TagsState:
    """Take note of the tag that is there."""
    tag = tag_in(state.tree)
    return state if tag is None else state._replace(shown=state.shown | {tag.id})
