"""Cuts over shards: what the explored models leave out, on sessions over one tree in memory."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import FailEntry, GetEntry, RollEntry, SettleEntry, decode_entry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.insert.quorum import give_up, join
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.sharded import cut
from replitree.protocol.sharded.cut import AwaitExecuted, Cut, CutEnd, CutGone, CutNotYet, OtherEnsemble
from replitree.protocol.sharded.joint_insert import JointInsert, JointInserted, joint_insert
from replitree.protocol.sharded.prepare import Participant

T = TypeVar("T")
PLACE = layout.sharded("/c", "d")
SHARDS = tuple(TablePlace(f"/c/tables/d~{number}", incarnation=f"s{number}") for number in range(2))
REPLICAS = tuple(Replica(shard, "r") for shard in SHARDS)
GET = GetEntry("r", fx.StagingId("s"), (fx.StagedPart("all", 1, 1, "0" * 32),), ())
DONE = Zxid(1 << 40)


class World:
    """Two shards with the entries that tests append, and a session; replicas have executed everything."""

    def __init__(self) -> None:
        self.shared = SharedTree(Tree())
        self.session = MemoryCoordination(self.shared)
        paths = ("/c", "/c/tables", "/c/sharded", PLACE, layout.joint_tokens(PLACE), layout.joint_inserts(PLACE))
        self.commit(*map(fx.Create, (*paths, layout.shard_map(PLACE))))
        for shard, replica in zip(SHARDS, REPLICAS, strict=True):
            self.commit(*table_nodes(shard, b"", b"", encode_log(shard)))
            self.commit(
                *map(fx.Create, (layout.replica_path(replica), layout.host(replica), layout.is_active(replica)))
            )
        self.awaited = list[int]()

    def commit(self, *operations: fx.Operation) -> None:
        outcome = self.session.perform(fx.Commit(*operations))
        assert isinstance(outcome, fx.Applied), outcome

    def run(self, procedure: fx.Procedure[T]) -> T:
        outcome: Any = None
        try:
            while True:
                effect = procedure.send(outcome)
                match effect:
                    case AwaitExecuted(index):
                        self.awaited.append(index)
                        outcome = index
                    case fx.CurrentSession():
                        outcome = self.session.session_id
                    case fx.CurrentEpoch():
                        outcome = fx.Epoch(0)
                    case _:
                        outcome = self.session.perform(effect)  # type: ignore[call-overload]
        except StopIteration as stop:
            value: T = stop.value
            return value

    def append(self, *shards: TablePlace) -> Zxid:
        """Append an entry to the logs of some shards in one commit; return its transaction."""
        self.commit(*(fx.Create(layout.log_create(shard), encode_entry(GET), sequential=True) for shard in shards))
        return self.now()

    def clean(self, shard: TablePlace, first: int, end: int) -> None:
        """Remove the entries from `first` up to `end`."""
        gone = (fx.Delete(layout.log_entry(shard, index), fx.ANY_VERSION) for index in range(first, end))
        self.commit(fx.Set(layout.log(shard), encode_log(shard, end), fx.ANY_VERSION), *gone)

    def now(self) -> Zxid:
        """Return the last transaction of all."""
        end = self.end()
        return end.seen

    def end(self, shard: TablePlace = SHARDS[0]) -> CutEnd:
        """Ask for the end of a log in a session that was told of everything."""
        self.session.perform(fx.Get("/c"))
        end = self.run(cut.read_end(shard))
        assert end is not None
        return end

    def index_at(self, zxid: int, shard: TablePlace = SHARDS[0]) -> fx.LogIndex | CutGone:
        """Return where a cut lies."""
        end = self.end(shard)
        return self.run(cut.index_at(shard, CutEnd(end.index, max(end.seen, Zxid(zxid))), Zxid(zxid)))


# --- positions --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_position_of_every_cut_is_that_of_the_first_entry_after_it(seed: int) -> None:
    world, draw = World(), random.Random(seed)
    written: dict[TablePlace, list[int]] = {shard: [] for shard in SHARDS}
    begin = world.now()
    for _ in range(40):
        shards = draw.choice((SHARDS, SHARDS[:1], SHARDS[1:], ()))
        if shards:
            appended = world.append(*shards)
            for shard in shards:
                written[shard].append(appended)
        else:
            world.commit(fx.Create("/c/other-", sequential=True))
    for zxid in range(begin, world.now() + 1):
        for shard in SHARDS:
            assert world.index_at(zxid, shard) == sum(each <= zxid for each in written[shard])


def test_cuts_are_found_below_the_parents_that_a_log_has_left() -> None:
    world, start = World(), layout.PARENT_ENTRIES
    first = [world.append(SHARDS[0]) for _ in range(2)]
    assert world.run(roll_over(REPLICAS[0], fx.Epoch(0)))
    rolled = world.now()
    below = SHARDS[0].below(1)
    assert world.end() == CutEnd(fx.LogIndex(start), rolled)
    assert world.index_at(rolled) == start
    last = world.append(below)
    assert world.end().index == start + 1
    assert world.run(cut.read_end(below)) == world.end()
    assert [world.index_at(each) for each in (*first, rolled - 1, rolled, last)] == [1, 2, 2, start, start + 1]
    assert world.run(roll_over(Replica(below, "r"), fx.Epoch(0)))
    assert [world.index_at(each) for each in (first[0], rolled, last, world.now())] == [1, start, start + 1, 2 * start]


def test_a_cut_among_entries_that_were_removed_is_gone() -> None:
    world = World()
    written = [world.append(SHARDS[0]) for _ in range(30)]
    world.clean(SHARDS[0], 0, 25)
    cleaned = world.now()
    assert [world.index_at(written[at]) for at in (0, 23, 24)] == [CutGone()] * 3
    assert [world.index_at(written[at]) for at in (25, 29)] == [26, 30]
    world.clean(SHARDS[0], 25, 30)
    assert world.index_at(cleaned) == CutGone()
    assert world.index_at(world.now()) == 30
    world.append(SHARDS[0])
    assert world.index_at(world.now() - 1) == 30


def test_a_cut_from_before_a_table_was_made_is_gone() -> None:
    world = World()
    before = world.now()
    world.commit(fx.Delete(layout.open_log(SHARDS[0]), 0), fx.Delete(layout.log(SHARDS[0]), 0))
    world.commit(fx.Create(layout.log(SHARDS[0]), encode_log(SHARDS[0], 7)), fx.Create(layout.open_log(SHARDS[0])))
    assert world.index_at(before) == CutGone()
    assert world.index_at(world.now()) == 0


def test_a_table_that_is_not_there_has_no_end() -> None:
    world, missing = World(), TablePlace("/c/tables/no")
    assert world.run(cut.read_end(missing)) is None
    assert world.run(cut.seen_here(missing)) == world.run(cut.position_at(missing, DONE)) == CutNotYet()


# --- what a replica answers ---------------------------------------------------------------------------------------------------


def test_a_replica_executes_what_it_says_that_it_has_seen_and_no_more_than_a_cut_needs() -> None:
    world = World()
    first, _ = world.append(SHARDS[0]), world.append(SHARDS[0])
    world.session.perform(fx.Get("/c"))
    seen = world.run(cut.seen_here(SHARDS[0]))
    assert isinstance(seen, CutEnd)
    assert (seen.index, world.awaited) == (2, [2])
    world.awaited.clear()
    assert world.run(cut.position_at(SHARDS[0], first)) == 1
    assert world.awaited == [1]


def test_a_replica_that_knows_the_end_asks_for_it_no_more() -> None:
    world = World()
    zxid = world.append(SHARDS[0])
    known, before = world.end(), world.session.requests["get"]
    world.append(SHARDS[0])
    before = world.session.requests["get"]
    assert world.run(cut.position_at(SHARDS[0], zxid, known)) == 1
    assert world.session.requests["get"] == before + 1


def test_a_cut_that_coordination_has_not_told_of_is_asked_for_with_syncs_and_then_given_up() -> None:
    world = World()
    world.append(SHARDS[0])
    assert world.run(cut.position_at(SHARDS[0], DONE)) == CutNotYet()
    assert world.session.requests["sync"] == cut.ENDS_MAX - 1


def test_a_linearizable_cut_is_the_transaction_of_a_write_and_the_clock_is_made_by_the_first() -> None:
    world = World()
    zxid = world.append(*SHARDS)
    cuts = [world.run(cut.advance_clock(PLACE)) for _ in range(3)]
    assert None not in cuts
    assert [zxid, *cuts] == sorted({zxid, *(each for each in cuts if each is not None)})
    reader = World.__new__(World)
    reader.shared, reader.session, reader.awaited = world.shared, MemoryCoordination(world.shared), []
    assert cuts[-1] is not None
    # A session that was not told of the clock's write learns of it by the clock itself.
    assert reader.run(cut.position_at(SHARDS[1], cuts[-1], None, PLACE)) == 1


def test_a_clock_that_cannot_be_written_gives_no_cut() -> None:
    assert World().run(cut.advance_clock("/c/sharded/no")) is None


# --- which cut ----------------------------------------------------------------------------------------------------------------


def test_a_cut_is_the_lowest_that_replicas_have_seen_and_not_below_the_last() -> None:
    seen = [Cut("e", Zxid(7)), Cut("e", Zxid(5)), Cut("e", Zxid(9))]
    assert cut.cut_of(seen) == cut.cut_of(seen, Cut("e", Zxid(4))) == Cut("e", Zxid(5))
    assert cut.cut_of(seen, Cut("e", Zxid(8))) == Cut("e", Zxid(8))


def test_cuts_of_different_ensembles_are_not_compared() -> None:
    assert cut.cut_of([Cut("e", Zxid(7)), Cut("f", Zxid(7))]) == OtherEnsemble()
    assert cut.cut_of([Cut("e", Zxid(7))], Cut("f", Zxid(3))) == OtherEnsemble()


def test_an_ensemble_is_named_once() -> None:
    world = World()
    other = World.__new__(World)
    other.session, other.awaited = MemoryCoordination(world.shared), []
    assert world.run(cut.name_ensemble("/c", "5f0c")) == other.run(cut.name_ensemble("/c", "77aa")) == "5f0c"
    assert World().run(cut.name_ensemble("/c", "77aa")) == "77aa"


def test_two_processes_that_name_an_ensemble_at_once_agree() -> None:
    world = World()
    late = cut.name_ensemble("/c", "77aa")
    assert world.session.perform(late.send(None)) is None  # type: ignore[call-overload]
    assert world.run(cut.name_ensemble("/c", "5f0c")) == "5f0c"
    refused = world.session.perform(late.send(None))  # type: ignore[call-overload]
    assert isinstance(refused, fx.Refused)
    with pytest.raises(StopIteration) as stop:
        late.send(world.session.perform(late.send(refused)))  # type: ignore[call-overload]
    assert stop.value.value == "5f0c"


@pytest.mark.parametrize("text", ["", "7", "5f0c@", "@7", "5f0c@-7", "5f0c@7.0", "5f/0c@7", f"5f0c@{10**30}"])
def test_what_is_no_cut_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no cut"):
        cut.parse_cut(text)


def test_a_cut_is_read_as_it_was_written() -> None:
    wanted = Cut("5f0c", Zxid(8589934612))
    assert cut.parse_cut(str(wanted)) == wanted


# --- joint inserts ------------------------------------------------------------------------------------------------------------


def insert(world: World, name: str, quorum: int = 0) -> JointInserted:
    """Insert jointly into both shards."""
    own, other = (
        Participant(replica, fx.Epoch(0), fx.StagingId(f"{name}{at}"), GET.parts, fx.LogIndex(0), is_apart=False)
        for at, replica in enumerate(REPLICAS)
    )
    asked = JointInsert(fx.JointId(name), PLACE, fx.BlockId(name), fx.Version(0), (own, other), quorum)
    done = world.run(joint_insert(asked, b"me"))
    assert isinstance(done, JointInserted)
    return done


def shown(world: World, zxid: int) -> list[list[str]]:
    """Return the parts that the shards show at a cut."""
    found = []
    for shard in SHARDS:
        position = world.run(cut.position_at(shard, Zxid(zxid)))
        assert isinstance(position, int)
        entries = []
        for index in range(world.end(shard).index):
            node = world.session.perform(fx.Get(layout.log_entry(shard, index)))
            assert node is not None
            entries.append((fx.LogIndex(index), decode_entry(node.value, "")))
        found.append([part.name for part in cut.shown_at(entries, position)])
    return found


@pytest.mark.parametrize("ends", [SettleEntry, FailEntry])
def test_a_joint_insert_with_a_quorum_is_in_a_cut_when_it_is_settled_there(ends: type[object]) -> None:
    world = World()
    world.append(SHARDS[1])  # so that the entries of the joint insert have different indexes
    before = world.now()
    insert(world, "j", quorum=1 if ends is SettleEntry else 2)
    opened = world.now()
    node = world.session.perform(fx.Get(layout.log_entry(SHARDS[0], 0)))
    assert node is not None
    entry = decode_entry(node.value, "")
    assert isinstance(entry, GetEntry)
    world.run((join if ends is SettleEntry else give_up)(REPLICAS[0], fx.Epoch(0), fx.LogIndex(0), entry))
    ended = world.now()
    assert shown(world, before) == shown(world, opened) == [[], ["all_0_0_0"]]
    rows = [["all_0_0_0"], ["all_0_0_0", "all_1_1_0"]] if ends is SettleEntry else [[], ["all_0_0_0"]]
    assert shown(world, ended) == rows


def test_joint_inserts_are_in_every_cut_whole_or_not() -> None:
    world = World()
    world.append(SHARDS[1])
    world.append(SHARDS[1])
    for name in "abc":
        insert(world, name)
    for zxid in range(world.now() - 3, world.now() + 1):
        first, second = shown(world, zxid)
        assert len(second) == len(first) + 2


def test_a_roll_is_no_row() -> None:
    assert not list(cut.shown_at([(fx.LogIndex(0), RollEntry("r"))], fx.LogIndex(5)))
