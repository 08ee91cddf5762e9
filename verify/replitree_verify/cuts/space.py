"""The steps of a model of cuts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    FailEntry,
    GetEntry,
    MutateEntry,
    SettleEntry,
    decode_entry,
    quorum_of,
)
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log, next_index
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, Zxid, stamp
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.program.stages import Stage
from replitree.protocol.sharded.cut import (
    AwaitExecuted,
    Cut,
    CutEnd,
    CutGone,
    CutNotYet,
    ShardsSeen,
    advance_clock,
    clock,
    cut_of,
    position_at,
    see_shards,
    seen_here,
    shown_at,
)
from replitree.protocol.sharded.joint_insert import JointInsert, joint_insert
from replitree_verify.cuts.model import LINEARIZABLE, OWN, SERVER, SERVER_LINEARIZABLE, Model
from replitree_verify.cuts.state import (
    ENSEMBLE,
    EPOCH,
    NOT_BEGUN,
    PLACE,
    REPLICAS,
    SEATS,
    SHARDS,
    Answered,
    CutState,
    Heard,
    Moment,
    Reader,
    Rows,
    Written,
    append_of,
    here,
    joint_of,
    kept,
    looked_up,
    opened_in,
    own_indexes,
    parent_reached,
    pruned,
    read_in_turn,
    rows_of,
    settled_now,
    staging_of,
    without,
)
from replitree_verify.engine import small_search
from replitree_verify.engine.shared_tree import committed, put
from replitree_verify.process.log_duties import count, lose_patience, roll
from replitree_verify.world.faults import Fault, budget_of, spent
from replitree_verify.world.kernel import END, Kernel


def insert(joint: JointInsert) -> Stage:
    """Insert into both shards."""
    yield from joint_insert(joint, b"a")
    return None


def tell_seen(shard: TablePlace, own: fx.LogIndex | None) -> Stage:
    """Answer what a replica has seen."""
    yield Heard((yield from seen_here(shard, own)))
    return None


def tell_position(shard: TablePlace, zxid: Zxid, known: CutEnd | None, place: str | None) -> Stage:
    """Answer where a cut lies in the log of a shard."""
    yield Heard((yield from position_at(shard, zxid, known, place)))
    return None


def tell_clock() -> Stage:
    """Answer with the transaction of a write to the clock."""
    yield Heard((yield from advance_clock(PLACE)))
    return None


def tell_shards(shards: tuple[TablePlace, ...], by_clock: bool) -> Stage:
    """Answer with a cut, and where the logs of all shards end."""
    yield Heard((yield from see_shards(shards, PLACE, by_clock=by_clock)))
    return None


class Space(small_search.Space[CutState]):
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
        joins = ((count, 2), (count, 3)) if model.joins else ()
        self._duties = (*joins, *(((lose_patience, 0),) if model.gives_up else ()))

    @override
    def first(self) -> CutState:
        nodes: list[fx.Operation] = [fx.Create(path) for path in ("/c", "/c/tables", "/c/sharded", PLACE, clock(PLACE))]
        nodes += (fx.Create(layout.shard_map(PLACE)), fx.Create(layout.joint_tokens(PLACE)))
        nodes.append(fx.Create(layout.joint_inserts(PLACE)))
        for shard in SHARDS:
            nodes += table_nodes(shard, b"", b"", encode_log(shard))
        for replica in REPLICAS:
            nodes += (fx.Create(layout.replica_path(replica)), fx.Create(layout.host(replica), replica.name.encode()))
            nodes.append(fx.Create(layout.is_active(replica)))
        nodes.append(fx.Create(layout.all_prepared(REPLICAS[1])))
        nodes += (fx.Create(layout.prepared(REPLICAS[1], staging_of(1, at))) for at in range(len(self.model.inserts)))
        stamps = dict[str, tuple[Zxid, Zxid]]()
        stamp(stamps, nodes, fx.Applied(tuple(each.path for each in nodes)), Zxid(1))
        seats = len(SEATS) if self.model.has_seconds else len(SHARDS)
        return CutState(
            1,
            (Moment(committed(Tree(), tuple(nodes)), kept(stamps.items())),),
            (1,) * seats,
            (None,) * seats,
            ((),) * len(SHARDS),
            (NOT_BEGUN,) * len(self.model.inserts),
            (NOT_BEGUN,) * len(self._duties),
            (Reader(),) * len(self.model.reads),
            self.model.commands,
            self.model.rolls,
            self.model.cleans,
            (),
            budget_of(self.model.faults),
        )

    # --- the writers ------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: CutState, /) -> Iterator[tuple[str, CutState]]:
        for told, after in (*self._of_writers(state), *self._of_logs(state)):
            yield told, pruned(after)
        for number, reader in enumerate(state.readers):
            yield from ((told, pruned(after)) for told, after in self._of_reader(state, number, reader))

    def _of_writers(self, state: CutState) -> Iterator[tuple[str, CutState]]:
        """Give what the joint inserts do, and those who count themselves for them or give them up."""
        for number, (quorum, place) in enumerate(zip(self.model.inserts, state.inserts, strict=True)):
            joint = joint_of(state.tree, number, quorum)
            begun = self._kernel.begin(insert, joint) if place == NOT_BEGUN else place
            if begun != END:
                for told, after, stands in self._write(state, begun):
                    yield f"insert {joint.id} {told}", after._replace(inserts=put(after.inserts, number, stands))
        for number, ((duty, seat), place) in enumerate(zip(self._duties, state.duties, strict=True)):
            # Before an insert is open in its shard there is nothing to count, and nothing to give up.
            opened = opened_in(state, seat % 2)
            stands = (
                self._kernel.begin(duty, REPLICAS[seat], EPOCH, *opened) if place == NOT_BEGUN and opened else place
            )
            if stands > END:
                for told, after, there in self._write(state, stands):
                    what = f"{SEATS[seat]} {duty.__name__} {told}"
                    yield what, after._replace(duties=put(after.duties, number, there))

    def _of_logs(self, state: CutState) -> Iterator[tuple[str, CutState]]:
        """Give what else happens to the logs: commands, roll-overs, cleaning, and commits that arrive late."""
        if state.commands:
            command = MutateEntry("a", fx.EntryId("m"), EVERY_PARTITION, "m")
            # One commit appends it to both logs, so it has one transaction in both (D2).
            changed = tuple(append_of(state.tree, shard, command) for shard in SHARDS)
            yield "a command comes", self._pushed(state, changed)[0]._replace(commands=state.commands - 1)
        for shard in state.rolls:
            for told, after, _ in self._write(state, self._kernel.begin(roll, here(state.tree, shard), EPOCH)):
                self.probes.add("rolled")
                yield f"log {shard} rolls over {told}", after._replace(rolls=without(state.rolls, shard))
        for shard in state.cleans:
            gone = tuple(each.at for each in state.logs[shard])
            if gone:
                table = SHARDS[shard]
                # In the commit that removes: a reader that finds no entry finds where the log begins now.
                begins = fx.Set(layout.log(table), encode_log(table, gone[-1] + 1), fx.ANY_VERSION)
                removes = tuple(fx.Delete(layout.log_entry(table, index), fx.ANY_VERSION) for index in gone)
                after = self._pushed(state, (begins, *removes))[0]
                yield f"log {shard} is cleaned", after._replace(cleans=without(state.cleans, shard))
        for number, operations in enumerate(state.late):
            after, outcome = self._pushed(state, operations)
            if isinstance(outcome, fx.Applied):
                self.probes.add("applied late")
            yield "a late commit arrives", after._replace(late=(*state.late[:number], *state.late[number + 1 :]))

    def _write(self, state: CutState, place: int) -> Iterator[tuple[str, CutState, int]]:
        """Give each way in which the commit of a writer ends.  A writer reads what is there, in no step of its own."""
        while place > END and not isinstance(effect := self._kernel.effect(place), fx.Commit):
            place = self._kernel.step(place, looked_up(state.tree, effect))
        if place == END:
            yield "is done", state, END
            return
        for told, after, outcome in self._ends(state, effect.operations):
            yield told, after, self._kernel.step(place, outcome)

    def _ends(self, state: CutState, operations: tuple[fx.Operation, ...]) -> Iterator[tuple[str, CutState, Any]]:
        after, outcome = self._pushed(state, operations)
        yield f"-> {type(outcome).__name__}", after, outcome
        left = spent(state.budget, Fault.UNKNOWN)
        # A lost answer tells nothing: the commit has taken place, or may still do so.
        if left is not None:
            yield "applied, not told", after._replace(budget=left), fx.Unknown()
            yield "on its way", state._replace(budget=left, late=(*state.late, operations)), fx.Unknown()

    def _pushed(
        self, state: CutState, operations: tuple[fx.Operation, ...]
    ) -> tuple[CutState, fx.Applied | fx.Refused]:
        """Return the state after a commit, and what became of it."""
        tree, outcome = state.tree.commit(operations, 1)
        # What changes nothing is no transaction that a session could be told of.
        if tree is state.tree or isinstance(outcome, fx.Refused):
            return state, outcome
        zxid, stamps = Zxid(state.newest + 1), dict(state.moments[-1].stamps)
        # Of all other nodes no number is asked for.
        stamps.update((each.path, (zxid, zxid)) for each in operations if each.path not in stamps)
        stamp(stamps, operations, outcome, zxid)
        logs = list(state.logs)
        for number, shard in enumerate(SHARDS):
            for path in outcome.created:
                if path.startswith(f"{shard.path}/log") and "/log-" in path:
                    node = tree.get(path)
                    assert node is not None
                    entry = decode_entry(node.value, path)
                    self.probes.add({SettleEntry: "settled", FailEntry: "failed"}.get(type(entry), ""))
                    logs[number] = (*logs[number], Written(layout.index_of(shard, path), zxid, entry))
        moments = (*state.moments, Moment(tree, kept(stamps.items())))
        return state._replace(moments=moments, logs=tuple(logs)), outcome

    # --- the readers ------------------------------------------------------------------------------------------------------

    def _of_reader(self, state: CutState, number: int, reader: Reader) -> Iterator[tuple[str, CutState]]:
        levels = self.model.reads[number]
        if not reader.stage:
            if reader.number == len(levels):
                return
            fresh = Reader(reader.number, last=reader.last)
            # What is settled now has to be in the cut of a linearizable read that begins now (D3).
            if levels[reader.number] == LINEARIZABLE:
                place, due = self._told_session(self._kernel.begin(tell_clock)), settled_now(state)
                begun = fresh._replace(stage="clock", place=place, due=due)
                yield f"reader {number} begins", _at(state, number, begun)
            elif levels[reader.number] in (SERVER, SERVER_LINEARIZABLE):
                for told, after, begun in self._asks_server(state, fresh, levels[reader.number]):
                    yield f"reader {number} {told}", _at(after, number, begun)
            else:
                begins = fresh._replace(stage="seen")
                if levels[reader.number] == OWN:
                    begins = begins._replace(own=own_indexes(state), due=settled_now(state))
                for told, after, begun in self._asked(state, begins):
                    yield f"reader {number} {told}", _at(after, number, begun)
            return
        effect = self._kernel.effect(reader.place)
        for told, after, outcome in self._performed(state, reader.seat, reader.shard, effect):
            place = self._told_session(self._kernel.step(reader.place, outcome))
            heard = self._kernel.effect(place) if place != END else None
            what = f"reader {number} at {SEATS[reader.seat]}: {type(effect).__name__} {told}"
            if isinstance(heard, Heard):
                for more, then, next_one in self._hear(after, number, reader, heard.outcome):
                    yield f"{what}{more}", _at(then, number, next_one)
            else:
                yield what, _at(after, number, reader._replace(place=place))

    def _asks_server(self, state: CutState, reader: Reader, level: str) -> Iterator[tuple[str, CutState, Reader]]:
        """Give each transaction that the session of a server may have been told of when a reader asks for all shards."""
        by_clock = level == SERVER_LINEARIZABLE
        shards = tuple(parent_reached(state, seat) for seat in range(len(SHARDS)))
        place = self._told_session(self._kernel.begin(tell_shards, shards, by_clock))
        asks = reader._replace(stage="shards", place=place, due=settled_now(state) if by_clock else reader.due)
        # A write tells the session of all that came before it.
        for zxid in range(state.told[0], state.told[0] + 1 if by_clock else state.newest + 1):
            yield f"asks the server, which was told of {zxid}", state._replace(told=put(state.told, 0, zxid)), asks

    def _asked(self, state: CutState, reader: Reader) -> Iterator[tuple[str, CutState, Reader]]:
        """Give each replica that a reader may ask next, and what its session may have been told of meanwhile."""
        if reader.ends:
            # In the same session: what it is told of meanwhile makes no difference, because entries never change.
            end = reader.ends[reader.shard]
            shard = SHARDS[reader.shard].below(layout.parent_of(end.index))
            place = self._kernel.begin(tell_position, shard, Zxid(reader.cut), end, None)
            yield "asks of the next shard", state, reader._replace(seat=0, place=place)
            return
        for seat in range(reader.shard, len(state.told), len(SHARDS)):
            shard = parent_reached(state, seat)
            if reader.stage == "seen":
                place = self._kernel.begin(tell_seen, shard, reader.own[reader.shard])
            else:
                # A linearizable read has asked no replica what it has seen.
                by = None if reader.seen else PLACE
                place = self._kernel.begin(tell_position, shard, Zxid(reader.cut), state.ends[seat], by)
            # A session is told of something newer, or of nothing: never of less than before.
            for zxid in range(state.told[seat], state.newest + 1):
                after = state._replace(told=put(state.told, seat, zxid))
                yield f"asks {SEATS[seat]}, which was told of {zxid}", after, reader._replace(seat=seat, place=place)

    def _hear(
        self, state: CutState, number: int, reader: Reader, outcome: Any
    ) -> Iterator[tuple[str, CutState, Reader]]:
        """Give what a reader does next when a replica has answered."""
        if outcome is None or isinstance(outcome, CutNotYet | CutGone):
            self.probes.add({CutNotYet: "not yet", CutGone: "gone"}.get(type(outcome), "in doubt"))
            yield " -> no answer", state, Reader(reader.number + 1, last=reader.last)
            return
        if isinstance(outcome, ShardsSeen):
            if outcome.cut < reader.last:
                # The server is behind: the replicas of each shard are asked.
                yield " -> an old cut", state, Reader(reader.number + 1, last=reader.last)
                return
            shows = reader._replace(stage="show", shard=0, cut=outcome.cut, ends=outcome.ends)
        elif reader.stage == "clock":
            shows = reader._replace(stage="show", shard=0, cut=outcome)
        elif reader.stage == "seen":
            # What it told of an entry is for this reader only.
            state = state._replace(ends=put(state.ends, reader.seat, CutEnd(outcome.index, outcome.seen)))
            seen, written = (*reader.seen, outcome.seen), Zxid(max(reader.written, outcome.written))
            if reader.own[reader.shard] is not None:
                index = layout.log_entry(SHARDS[reader.shard], fx.LogIndex(reader.own[reader.shard] or 0))
                self.probes.add("own" if state.tree.exists(index) else "own removed")
            shows = reader._replace(seen=seen, written=written, shard=reader.shard + 1)
            # Without the answer of every shard there is no cut: it may be above none of them.
            if len(seen) == len(SHARDS):
                last = Cut(ENSEMBLE, Zxid(reader.last)) if reader.last >= 0 else None
                cut = cut_of([Cut(ENSEMBLE, each) for each in seen], last, written)
                assert isinstance(cut, Cut)
                shows = shows._replace(stage="show", shard=0, cut=cut.zxid, own=(None, None), written=BEFORE_ALL)
        else:
            rows = (*reader.rows, self._shown(state, reader, outcome))
            shows = reader._replace(rows=rows, shard=reader.shard + 1)
            if len(rows) == len(SHARDS):
                self.probes.add("read")
                promise = "D10" if self.model.reads[number][reader.number] == OWN else "D3"
                ended = Answered(reader.cut, rows, reader.due, promise, reader.last)
                yield f" -> {rows} at {reader.cut}", state, Reader(reader.number + 1, last=reader.cut, answered=ended)
                return
        for told, after, asked in self._asked(state, shows):
            yield f" -> {outcome}, {told}", after, asked

    def _shown(self, state: CutState, reader: Reader, position: fx.LogIndex) -> Rows:
        log = state.logs[reader.shard]
        if any(each.at >= position for each in log):
            self.probes.add("above the cut")
        entries = tuple((each.at, each.entry) for each in log)
        ended = {
            entry.index for index, entry in entries if index < position and isinstance(entry, SettleEntry | FailEntry)
        }
        if any(isinstance(e, GetEntry) and quorum_of(e) and i < position and i not in ended for i, e in entries):
            self.probes.add("open at the cut")
        if log and not state.tree.exists(layout.log_entry(SHARDS[reader.shard], max(position - 1, 0))):
            self.probes.add("below all entries")
        return rows_of(log, shown_at(entries, position))

    def _performed(self, state: CutState, seat: int, shard: int, effect: Any) -> Iterator[tuple[str, CutState, Any]]:
        """Give each way in which an effect of a replica of a shard may end in the session of a seat."""
        match effect:
            case GetStamped(paths):
                if state.told[seat] < state.newest:
                    self.probes.add("behind")
                seen, ways = Zxid(state.told[seat]), dict[tuple[Any, int], None]()
                # Only what is asked for the end of a log tells more than it shows: entries never change.
                tells_more = any(
                    layout.log_parent(shard, 0) in paths or "/log." in path for shard in SHARDS for path in paths
                )
                for nodes, view in read_in_turn(state, paths, state.told[seat]):
                    for header in range(view, state.newest + 1) if tells_more else (view,):
                        ways[nodes, header] = None
                for nodes, header in ways:
                    yield f"tells {header}", state._replace(told=put(state.told, seat, header)), Stamped(nodes, seen)
            case fx.Commit(operations):
                for told, after, outcome in self._ends(state, operations):
                    # A session sees its own commits once they are answered.
                    is_told = isinstance(outcome, fx.Applied)
                    heard = put(after.told, seat, after.newest) if is_told else after.told
                    yield told, after._replace(told=heard), outcome
            case fx.Sync():
                self.probes.add("synced")
                yield "", state._replace(told=put(state.told, seat, state.newest)), None
            case AwaitExecuted(index):
                # The replica may have pulled more than it was asked for.
                ends = {index, *(next_index(each.at, each.entry) for each in state.logs[shard][-1:])}
                for pointer in sorted(each for each in ends if each >= index):
                    yield f"has pulled up to {pointer}", state, pointer
            case _:
                raise AssertionError(effect)

    def _told_session(self, place: int) -> int:
        """Return where a reader stands: that its session is the same is no step of its own."""
        while place > END and isinstance(self._kernel.effect(place), fx.CurrentSession):
            place = self._kernel.step(place, 1)
        return place


def _at(state: CutState, number: int, reader: Reader) -> CutState:
    return state._replace(readers=put(state.readers, number, reader))
