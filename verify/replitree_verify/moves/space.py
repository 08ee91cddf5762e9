"""The states of a model of moves, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    FailEntry,
    GetEntry,
    MutateEntry,
    SettleEntry,
    encode_entry,
)
from replitree.protocol.core.log import encode_log, next_index
from replitree.protocol.core.stamps import GetStamped, Stamped, StampedNode, Zxid
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.sharded.feed import REMOVAL, moved_group
from replitree.protocol.sharded.joint_insert import MapChanged
from replitree.protocol.sharded.moves.batch import Laying, RowsRemoval, RowsSum
from replitree.protocol.sharded.moves.carry import (
    AwaitedInserts,
    AwaitHolders,
    AwaitInserts,
    DescribeRemoval,
    GiveUpBatch,
    MoverEnd,
    NothingLeft,
    PrepareBatch,
)
from replitree.protocol.sharded.moves.course import MovesFound, Turned
from replitree.protocol.sharded.moves.progress import Batch, moves
from replitree.protocol.sharded.prepare import Participant
from replitree.protocol.sharded.shard_map import decode_map, encode_map, without_moves
from replitree.protocol.upkeep.shard_removal import ShardNeeded, ShardRemoved
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import arrivals, committed, ends_of, log_of, put
from replitree_verify.moves.logs import (
    COMMAND,
    COMMANDS,
    EMPTYING_MAPS,
    EPOCH,
    MAPS,
    MOVES,
    PLACE,
    REPLICAS,
    SEATS,
    SHARDS,
    START,
    bucket_of,
    held_in,
    here,
    is_laid,
    opened_in,
    shown_in,
)
from replitree_verify.moves.model import Model
from replitree_verify.moves.stages import (
    MAP_PATH,
    ReadMap,
    ShardGone,
    Tell,
    insert,
    remove,
    start,
    turn,
    turn_back,
)
from replitree_verify.process.log_duties import count, lose_patience, roll
from replitree_verify.world.faults import Budget, Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel

NOT_BEGUN = -1
DAMAGED = f"{MOVES}.damaged"
"""A row that no client has inserted."""


class Seen(NamedTuple):
    """A version of the map.

    Attributes
    ----------
    version, value
        The node.
    before
        What each shard showed when it was written, just before.
    """

    version: fx.Version
    value: bytes
    before: tuple[tuple[str, ...], ...]


class MovesState(NamedTuple):
    """A state.

    Attributes
    ----------
    inserts, starter, again, turner, remover, duties
        Where the threads stand.
    movers, memories
        Where the movers stand in their turn, and what they remember of the last one.
    maps
        Every version of the map.
    prepared
        How many batches were prepared.
    commands, rolls, impatient, damages, late, budget
        What may still come.
    has_crashed, has_left
        Which movers have died, and whether one has ended while there were moves.
    """

    tree: Tree
    inserts: tuple[int, ...]
    starter: int
    again: int
    turner: int
    remover: int
    duties: tuple[int, ...]
    movers: tuple[int, ...]
    memories: tuple[AwaitedInserts | None, ...]
    maps: tuple[Seen, ...]
    prepared: int
    commands: int
    rolls: tuple[int, ...]
    impatient: int
    damages: int
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    has_crashed: frozenset[int] = frozenset()
    has_left: bool = False

    @property
    def key(self) -> MovesState:
        """What tells it apart."""
        return self


class Space(small_search.Space[MovesState]):
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
        self._first, self._wanted, self._back = EMPTYING_MAPS if model.removes else MAPS
        asked = ((count, model.joins), (lose_patience, model.gives_up))
        self._duties = tuple((duty, SEATS.index(seat)) for duty, seats in asked for seat in seats)

    @override
    def first(self) -> MovesState:
        nodes: list[fx.Operation] = [fx.Create(path) for path in ("/c", "/c/tables", "/c/sharded")]
        nodes += (fx.Create(PLACE, b"s"), fx.Create(MAP_PATH, encode_map(self._first)), fx.Create(COMMANDS))
        nodes += (fx.Create(layout.joint_tokens(PLACE)), fx.Create(layout.joint_inserts(PLACE)))
        for shard in SHARDS:
            nodes += table_nodes(shard, b"", b"", encode_log(shard))
        for replica in REPLICAS:
            nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), replica.name.encode()))
            nodes += (fx.Create(layout.is_active(replica)), fx.Create(layout.all_prepared(replica)))
        tree = committed(Tree(), tuple(nodes))
        for number, asked in enumerate(self.model.before):
            place = self._kernel.begin(insert, 10 + number, asked)
            while place != END:
                tree, outcome = _performed(tree, self._kernel.effect(place))
                place = self._kernel.step(place, outcome)
        return MovesState(
            tree,
            (NOT_BEGUN,) * len(self.model.inserts),
            NOT_BEGUN,
            NOT_BEGUN if self.model.moves_again else END,
            NOT_BEGUN if self.model.turns_back else END,
            NOT_BEGUN if self.model.removes else END,
            (NOT_BEGUN,) * len(self._duties),
            (NOT_BEGUN,) * self.model.movers,
            (None,) * self.model.movers,
            (Seen(fx.Version(0), encode_map(self._first), ((), ())),),
            0,
            self.model.commands,
            self.model.rolls,
            self.model.impatient,
            self.model.damages,
            (),
            budget_of(self.model.faults),
        )

    @override
    def is_at_rest(self, state: MovesState, /) -> bool:
        return next(iter(self.steps(state)), None) is None

    # --- steps ------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: MovesState, /) -> Iterator[tuple[str, MovesState]]:
        for number, place in enumerate(state.inserts):
            stands = self._kernel.begin(insert, number, self.model.inserts[number]) if place == NOT_BEGUN else place
            for told, after, there in self._go_on(state, stands, has_faults=False):
                yield f"insert {number} {told}", after._replace(inserts=put(after.inserts, number, there))
        stands = self._kernel.begin(start, self._wanted) if state.starter == NOT_BEGUN else state.starter
        for told, after, there in self._go_on(state, stands):
            yield f"start {told}", after._replace(starter=there)
        if state.again != NOT_BEGUN or self._has_moved(state):
            stands = self._kernel.begin(start, self._back) if state.again == NOT_BEGUN else state.again
            for told, after, there in self._go_on(state, stands):
                self.probes.add("begun again")
                yield f"start again {told}", after._replace(again=there)
        if state.turner != NOT_BEGUN or state.tree.exists(moves(PLACE)):
            stands = self._kernel.begin(turn_back) if state.turner == NOT_BEGUN else state.turner
            for told, after, there in self._go_on(state, stands):
                yield f"turn back {told}", after._replace(turner=there)
        if state.remover != NOT_BEGUN or self._has_moved(state):
            stands = self._kernel.begin(remove) if state.remover == NOT_BEGUN else state.remover
            for told, after, there in self._go_on(state, stands):
                yield f"remove {told}", after._replace(remover=there)
        for number in range(len(state.movers)):
            yield from self._of_mover(state, number)
        yield from self._of_duties(state)
        yield from self._of_others(state)

    def _of_mover(self, state: MovesState, number: int) -> Iterator[tuple[str, MovesState]]:
        place = state.movers[number]
        if place == NOT_BEGUN:
            # A mover begins when there is something to carry on, or goes on with its next turn.
            if state.memories[number] is None and not state.tree.exists(moves(PLACE)):
                return
            place = self._kernel.begin(turn, state.memories[number])
        for told, after, there in self._go_on(state, place, number):
            # At the end of a turn the next one may begin.
            stands = NOT_BEGUN if there == END else there
            yield f"mover {number} {told}", after._replace(movers=put(after.movers, number, stands))
        left = spent(state.budget, Fault.CRASH)
        if left is not None and state.movers[number] > END:
            self.probes.add("crashed")
            crashed = state._replace(budget=left, has_crashed=state.has_crashed | {number})
            yield f"mover {number} crashes", crashed._replace(movers=put(state.movers, number, END))

    def _of_duties(self, state: MovesState) -> Iterator[tuple[str, MovesState]]:
        for number, ((duty, seat), place) in enumerate(zip(self._duties, state.duties, strict=True)):
            # Before an insert is open in its shard there is nothing to count, and nothing to give up.
            opened = opened_in(state.tree, seat % 2)
            stands = (
                self._kernel.begin(duty, here(state.tree, seat), EPOCH, *opened[0])
                if place == NOT_BEGUN and opened
                else place
            )
            while stands > END and not isinstance(self._kernel.effect(stands), fx.Commit):
                stands = self._kernel.step(stands, _looked_up(state.tree, self._kernel.effect(stands)))
            what = f"{SEATS[seat]} {duty.__name__}"
            if stands == END and place == NOT_BEGUN and opened:
                yield f"{what} finds nothing to do", state._replace(duties=put(state.duties, number, END))
            for told, after, there in self._go_on(state, stands, has_faults=False) if stands > END else ():
                yield f"{what} {told}", after._replace(duties=put(after.duties, number, there))

    def _of_others(self, state: MovesState) -> Iterator[tuple[str, MovesState]]:
        """Give what else happens: a command comes, a log rolls over, and commits arrive late."""
        if state.commands:
            wanted = decode_map(state.maps[-1].value, MAP_PATH).shards_of([MOVES])
            appends = [_command(state.tree, seat, is_in_scope=seat in wanted) for seat in (0, 1)]
            if any(is_laid(entry) for _, entry in opened_in(state.tree, 0) + opened_in(state.tree, 1)):
                self.probes.add("command while on its way")
            tree = committed(state.tree, (fx.Set(COMMANDS, b"", fx.ANY_VERSION), *appends))
            yield "a command comes", state._replace(tree=tree, commands=state.commands - 1)
        for shard in state.rolls:
            place, tree = self._kernel.begin(roll, here(state.tree, shard), EPOCH), state.tree
            while place != END:
                tree, outcome = _performed(tree, self._kernel.effect(place))
                place = self._kernel.step(place, outcome)
            self.probes.add("rolled")
            rolls = tuple(each for each in state.rolls if each != shard)
            yield f"log {shard} rolls over", state._replace(tree=tree, rolls=rolls)
        for arrival in arrivals(state.tree, state.late):
            if arrival.is_applied:
                self.probes.add("applied late")
            yield "a late commit arrives", _noted(state, arrival.tree)._replace(late=arrival.late)

    def _go_on(
        self, state: MovesState, place: int, mover: int = -1, *, has_faults: bool = True
    ) -> Iterator[tuple[str, MovesState, int]]:
        """Give each way in which the effect of a thread may end, and where it stands then."""
        if place <= END:
            return
        state, place = self._settled(state, place, mover)
        effect = self._kernel.effect(place)
        what = type(effect).__name__
        if isinstance(effect, fx.Commit):
            for end in ends_of(state.tree, effect.operations, state.budget if has_faults else budget_of({})):
                if mover >= 0:
                    self._see(end.outcome)
                budget = end.budget if has_faults else state.budget
                after = _noted(state, end.tree)._replace(budget=budget, late=(*state.late, *end.late))
                self._see_entries(state.tree, end.tree)
                yield f"{what} {end.told}", *self._settled(after, self._kernel.step(place, end.outcome), mover)
            return
        for told, after, outcome in self._memory(state, effect):
            yield f"{what} {told}", *self._settled(after, self._kernel.step(place, outcome), mover)

    def _settled(self, state: MovesState, place: int, mover: int) -> tuple[MovesState, int]:
        """Return where a thread stands behind what no other thread sees."""
        while place > END and (isinstance(effect := self._kernel.effect(place), Tell | fx.Sync) or _is_fixed(effect)):
            outcome = None
            if isinstance(effect, Tell):
                state = self._hear(state, effect.outcome, mover)
            else:
                outcome = _looked_up(state.tree, effect)
            place = self._kernel.step(place, outcome)
        return state, place

    def _memory(self, state: MovesState, effect: Any) -> Iterator[tuple[str, MovesState, Any]]:
        """Give each way in which a read, or what a process does, may end."""
        match effect:
            case PrepareBatch(found):
                yield from self._prepared(state, found)
            case GiveUpBatch(laying):
                if laying.difference:
                    self.probes.add("differs")
                path = layout.prepared(laying.prepared.replica, laying.prepared.staging)
                tree = (
                    committed(state.tree, (fx.Delete(path, fx.ANY_VERSION),)) if state.tree.exists(path) else state.tree
                )
                yield "", state._replace(tree=tree), None
            case DescribeRemoval(found, source, target):
                buckets = (move.buckets for move in found.map.moves if (move.source, move.target) == (source, target))
                command = " ".join(str(bucket) for each in buckets for bucket in each)
                yield "", state, RowsRemoval(fx.EntryId(f"{REMOVAL}0"), command)
            case AwaitHolders(laid):
                self.probes.add("waits for holders")
                node = state.tree.get(layout.quorum_status(SHARDS[laid.batch.target], laid.batch.insert))
                # It waits until something has changed: a turn without that would be the same again.
                if node is None or node.version != laid.version:
                    yield "longer", state, True
                if state.impatient:
                    yield "no longer", state._replace(impatient=state.impatient - 1), False
            case AwaitInserts(opened):
                self.probes.add("waits for inserts")
                if any(not state.tree.exists(path) for path in opened):
                    yield "", state, None
            case _:
                yield "", state, _looked_up(state.tree, effect)

    def _prepared(self, state: MovesState, found: MovesFound) -> Iterator[tuple[str, MovesState, Any]]:
        for move in found.map.moves:
            rows: dict[str, tuple[str, ...]] = {}
            for held in held_in(state.tree, move.source):
                wanted = () if held.is_open else tuple(row for row in held.rows if bucket_of(row) in move.buckets)
                if wanted:
                    rows[held.partition] = (*rows.get(held.partition, ()), *wanted)
            if rows:
                partition = min(rows)
                seat, staging = move.target, moved_group(SEATS[move.target], state.prepared)
                replica = here(state.tree, seat)
                batch = Batch(
                    move.source,
                    move.target,
                    (partition,),
                    replica.name,
                    staging,
                    0,
                    self.model.quorum,
                    len(rows[partition]),
                )
                tree = committed(state.tree, (fx.Create(layout.prepared(replica, staging)),))
                after = state._replace(tree=tree, prepared=state.prepared + 1)
                read = rows[partition]
                for staged, left in ((read, state.damages), ((*read[1:], DAMAGED), state.damages - 1)):
                    if left < 0:
                        continue
                    parts = (fx.StagedPart(partition, len(staged), 1, " ".join(staged)),)
                    laying = Laying(
                        batch, Participant(replica, EPOCH, staging, parts, START), _sum_of(read), _sum_of(staged)
                    )
                    yield f"{read} as {staging}: {staged}", after._replace(damages=left), laying
                return
        yield "nothing is left", state, NothingLeft()

    def _has_moved(self, state: MovesState) -> bool:
        """Whether the moves have ended, and not by turning back; afterwards the shard may have been removed."""
        ended = encode_map(without_moves(self._wanted))
        return len(state.maps) > 2 and any(each.value == ended for each in state.maps[-2:])

    # --- what is seen -----------------------------------------------------------------------------------------------------

    def _hear(self, state: MovesState, outcome: Any, mover: int) -> MovesState:
        match outcome:
            case MapChanged():
                self.probes.add("map changed")
            case ShardRemoved():
                self.probes.add("removed")
            case ShardNeeded():
                self.probes.add("needed")
            case ShardGone():
                self.probes.add("shard gone")
        if outcome is Turned.DONE and decode_map(state.maps[-1].value, MAP_PATH).moves != self._wanted.moves:
            self.probes.add("turned back")
        if mover < 0:
            return state
        # A mover that has ended begins anew when there are moves again.
        memory = None if isinstance(outcome, MoverEnd) else outcome
        if isinstance(outcome, MoverEnd) and state.tree.exists(moves(PLACE)):
            state = state._replace(has_left=True)
        return state._replace(movers=put(state.movers, mover, NOT_BEGUN), memories=put(state.memories, mover, memory))

    def _see(self, outcome: fx.Committed) -> None:
        if isinstance(outcome, fx.Refused):
            self.probes.add("refused by a command" if outcome.operation.path == COMMANDS else "refused")

    def _see_entries(self, before: Tree, after: Tree) -> None:
        if before is after:
            return
        for shard in SHARDS:
            log = log_of(after, shard)
            new = log[len(log_of(before, shard)) :]
            laid = {entry.insert for _, entry in log if isinstance(entry, GetEntry) and is_laid(entry)}
            for _, entry in new:
                match entry:
                    case GetEntry() if is_laid(entry):
                        self.probes.add("laid")
                    case GetEntry(drops=drops) if drops and any(
                        is_laid(e) for _, e in opened_in(before, SHARDS.index(shard))
                    ):
                        self.probes.add("overwritten on its way")
                    case SettleEntry(insert=its):
                        self.probes.add("shown" if its in laid else "settled")
                    case FailEntry(insert=its):
                        self.probes.add("taken back" if its in laid else "failed")
        if before.exists(moves(PLACE)) and not after.exists(moves(PLACE)):
            self.probes.add("ended")


def _sum_of(rows: tuple[str, ...]) -> RowsSum:
    return RowsSum(len(rows), " ".join(sorted(rows)))


def _command(tree: Tree, seat: int, *, is_in_scope: bool) -> fx.Create:
    """Return what appends a command to the log of a shard: no earlier part of it is in scope if it can't have such rows."""
    log = log_of(tree, SHARDS[seat])
    entry = MutateEntry(
        "a",
        fx.EntryId("m"),
        EVERY_PARTITION,
        COMMAND,
        format=2,
        partitions=("p", "q") if is_in_scope else (),
        since=next_index(*log[-1]) if log else START,
    )
    return fx.Create(layout.log_create(here(tree, seat).table), encode_entry(entry), sequential=True)


def _performed(tree: Tree, effect: Any) -> tuple[Tree, Any]:
    """Perform an effect that meets no fault."""
    if isinstance(effect, fx.Commit):
        return tree.commit(effect.operations, 1)
    return tree, _looked_up(tree, effect)


def _looked_up(tree: Tree, effect: Any) -> Any:
    match effect:
        case ReadMap():
            return tree.get(MAP_PATH)
        case fx.CurrentEpoch():
            return EPOCH
        case fx.AdoptEpoch() | fx.Sync() | Tell():
            return None
        case GetStamped((path,)):
            node = tree.get(path)
            # The map of version n is written at 2n + 1 (`search`).
            changed = Zxid(0 if node is None else 2 * node.version + 1)
            return Stamped(
                (None if node is None else StampedNode(node.value, node.version, changed, changed),), changed
            )
    return answer(tree, effect)


def _is_fixed(effect: Any) -> bool:
    """Whether an effect reads entries of a log, which never change."""
    paths = (effect.path,) if isinstance(effect, fx.Get) else effect.paths if isinstance(effect, fx.GetMany) else ("",)
    return bool(paths) and "/log-" in paths[0]


def _noted(state: MovesState, tree: Tree) -> MovesState:
    """Return a state with another tree; a new version of the map is noted."""
    node = tree.get(MAP_PATH)
    assert node is not None
    if node.version == state.maps[-1].version:
        return state._replace(tree=tree)
    before = tuple(shown_in(state.tree, shard) for shard in range(len(SHARDS)))
    return state._replace(tree=tree, maps=(*state.maps, Seen(node.version, node.value, before)))
