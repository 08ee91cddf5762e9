"""Open inserts in the fold, and what one replica says of them when something has changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    BlockValue,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    MergeEntry,
    MutateEntry,
    SettleEntry,
    decode_entry,
    encode_block,
    encode_entry,
)
from replitree.protocol.core.fold import fold, open_after, settled
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.insert.earlier import find_earlier
from replitree.protocol.insert.quorum import (
    Awaited,
    Replicas,
    answer_awaited,
    count_first,
    count_replicas,
    give_up,
    give_up_overdue,
    join,
)
from replitree.protocol.membership.table import DROPPED_HOST, LOST, TableOutcome, create_table, drop_replica, join_table
from replitree.protocol.state.counted import QuorumValue, count_no_more, decode_quorum, encode_quorum
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
R1, R2, R3 = (Replica(TABLE, name) for name in ("r1", "r2", "r3"))
INSERT, TOKEN = fx.StagingId("s0"), fx.BlockId("a")


def get(index: int, quorum: int = 0, partition: str = "p") -> GetEntry:
    parts = (fx.StagedPart(partition, 1, 1, "h"),)
    if quorum:
        return GetEntry("r1", fx.StagingId(f"s{index}"), parts, (TOKEN,), format=3, quorum=quorum)
    return GetEntry("r1", fx.StagingId(f"s{index}"), parts, ())


def settle(index: int) -> SettleEntry:
    return SettleEntry("r2", fx.StagingId(f"s{index}"), index, ("r1", "r2"))


def fail(index: int) -> FailEntry:
    return FailEntry("r1", fx.StagingId(f"s{index}"), index, ("p",))


def state_of(*log: Entry) -> tuple[list[str], tuple[int, ...], list[str]]:
    """Return the parts of a log, the inserts that are open at its end, and the parts that a strict read shows."""
    opened: tuple[fx.LogIndex, ...] = ()
    for index, entry in enumerate(log):
        opened = open_after(opened, fx.LogIndex(index), entry)
    parts: PartSet = fold((fx.LogIndex(index), entry) for index, entry in enumerate(log))
    return [part.name for part in parts], opened, [part.name for part in settled(parts, opened)]


MERGE = MergeEntry("r1", ("p_0_0_0", "p_1_1_0"))
MUTATE = MutateEntry("r1", fx.EntryId("m"), EVERY_PARTITION, "x")
DROP = DropEntry("r1", fx.EntryId("d"), "p")


@pytest.mark.parametrize(
    ("log", "parts", "opened", "shown"),
    [
        ([get(0), get(1, 2)], ["p_0_0_0", "p_1_1_0"], (1,), ["p_0_0_0"]),
        ([get(0), get(1, 2), settle(1)], ["p_0_0_0", "p_1_1_0"], (), ["p_0_0_0", "p_1_1_0"]),
        ([get(0), get(1, 2), fail(1)], ["p_0_0_0"], (), ["p_0_0_0"]),
        ([get(0), get(1, 2), MERGE], ["p_0_0_0", "p_1_1_0"], (1,), ["p_0_0_0"]),
        ([get(0), get(1, 2), settle(1), MERGE], ["p_0_1_1"], (), ["p_0_1_1"]),
        ([get(0), get(1, 2), MERGE, fail(1)], ["p_0_0_0"], (), ["p_0_0_0"]),
        ([get(0, 2), get(1, 2), settle(1)], ["p_0_0_0", "p_1_1_0"], (0,), ["p_1_1_0"]),
        ([get(0, 2), MUTATE, fail(0)], [], (), []),
        ([get(0, 2), MUTATE, settle(0)], ["p_0_0_0_1"], (), ["p_0_0_0_1"]),
        ([get(0, 2), MUTATE], ["p_0_0_0_1"], (0,), []),
        ([get(0, 2), DROP], [], (0,), []),
        ([get(0, 2), DROP, fail(0)], [], (), []),
        ([get(0, 2), DROP, get(2), settle(0)], ["p_2_2_0"], (), ["p_2_2_0"]),
    ],
)
def test_what_the_table_has_while_inserts_are_open(
    log: list[Entry], parts: list[str], opened: tuple[int, ...], shown: list[str]
) -> None:
    assert state_of(*log) == (parts, opened, shown)


# --- one replica against coordination -----------------------------------------------------------------------------------------


class World(TreeWorld):
    """A table of three replicas with one open insert of r1, which needs `quorum` of them."""

    def __init__(self, quorum: int = 2) -> None:
        super().__init__(Tree())
        self.answers: dict[int, fx.ClientAnswer] = {}
        self.entry = get(0, quorum)
        self.known: fx.Epoch | None = None
        self.before_commit: tuple[fx.Operation, ...] = ()
        for procedure in (create_table(TABLE, b"", b""), *(join_table(each) for each in (R1, R2, R3))):
            self.run(procedure)
        self.commit(
            fx.Create(layout.block(TABLE, TOKEN), encode_block(BlockValue(INSERT, 0))),
            fx.Create(self.status, encode_quorum(QuorumValue(quorum, ("r1",)))),
            fx.Create(layout.log_create(TABLE), encode_entry(self.entry), sequential=True),
        )

    @property
    def status(self) -> str:
        return layout.quorum_status(TABLE, INSERT)

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case fx.Commit():
                other, self.before_commit = self.before_commit, ()
                if other:
                    self.commit(*other)
            case fx.CurrentEpoch():
                return self.known
            case fx.Answer(request, given):
                self.answers[request] = given
                return None
        return super().perform(effect)

    def join(self, replica: Replica) -> bool:
        host = self.tree.get(layout.host(replica))
        assert host is not None
        joined: bool = self.run(join(replica, fx.Epoch(host.version), fx.LogIndex(0), self.entry))
        return joined

    def counted(self) -> tuple[str, ...] | None:
        node = self.tree.get(self.status)
        return None if node is None else decode_quorum(node.value, "").replicas

    def last(self) -> Entry:
        names = self.tree.children(layout.log_parent(TABLE, TABLE.parent)) or ()
        node = self.tree.get(f"{layout.log(TABLE)}/{names[-1]}")
        assert node is not None
        return decode_entry(node.value, "")

    def told(self, *, duplicate: bool = False) -> fx.ClientAnswer:
        self.run(answer_awaited(TABLE, Awaited(fx.LogIndex(0), self.entry, (fx.RequestId(1),), duplicate)))
        return self.answers[1]


def test_the_replica_that_completes_the_number_settles() -> None:
    world = World(quorum=3)
    assert world.join(R3)
    assert world.counted() == ("r1", "r3")
    assert world.join(R3), "who is counted already is not counted again"
    assert world.join(R2)
    assert world.counted() is None
    assert world.last() == SettleEntry("r2", INSERT, 0, ("r1", "r2", "r3"))
    assert world.told() == fx.Inserted(fx.LogIndex(0), settled=fx.LogIndex(1))
    assert world.told(duplicate=True) == fx.Duplicate(fx.LogIndex(0), settled=fx.LogIndex(1))


def test_another_one_counts_itself_at_the_same_moment_and_none_is_forgotten() -> None:
    world = World(quorum=3)
    world.before_commit = (fx.Set(world.status, encode_quorum(QuorumValue(3, ("r1", "r3"))), 0),)
    assert world.join(R2)
    assert world.last() == SettleEntry("r2", INSERT, 0, ("r1", "r2", "r3"))


def test_a_holder_that_has_left_the_table_does_not_count() -> None:
    world = World()
    for name in world.tree.children(layout.replica_path(R1)) or ():
        world.commit(fx.Delete(f"{layout.replica_path(R1)}/{name}", fx.ANY_VERSION))
    assert world.join(R2)
    assert world.counted() == ("r2",)
    assert world.join(R3)
    assert world.last() == SettleEntry("r3", INSERT, 0, ("r2", "r3"))


def test_a_replica_that_is_dropped_is_counted_no_more_and_counts_again_only_when_it_has_joined_and_has_it() -> None:
    world = World(quorum=3)
    assert world.join(R2)
    assert world.run(drop_replica(R2)) is TableOutcome.DONE
    assert world.counted() == ("r1",)
    assert world.run(join_table(R2)) is TableOutcome.DONE
    assert world.join(R3)
    assert world.counted() == ("r1", "r3"), "the old r2 would have settled it"
    assert world.join(R2)
    assert world.last() == SettleEntry("r2", INSERT, 0, ("r1", "r2", "r3"))


def test_a_writer_that_is_dropped_is_counted_no_more_also_by_who_does_not_look() -> None:
    world = World()
    assert world.run(drop_replica(R1)) is TableOutcome.DONE
    assert world.run(join_table(R1)) is TableOutcome.DONE
    assert isinstance(first_at(world, R2), fx.Refused)
    assert world.join(R2)
    assert world.counted() == ("r2",)


def test_a_name_is_taken_back_beside_somebody_who_counts_itself_and_not_twice() -> None:
    world = World(quorum=3)
    assert world.join(R2)
    marked = (fx.Set(layout.host(R2), DROPPED_HOST, fx.ANY_VERSION), fx.Create(layout.replica_dropped(R2)))
    world.commit(*marked)
    world.before_commit = (fx.Set(world.status, encode_quorum(QuorumValue(4, ("r1", "r2", "r3"))), 1),)
    proof = fx.Check(layout.replica_dropped(R2), fx.ANY_VERSION)
    assert world.run(count_no_more(R2, proof))
    assert world.counted() == ("r1", "r3")
    world.before_commit = (fx.Delete(world.status, fx.ANY_VERSION),)
    assert world.run(count_no_more(R3, proof)), "what is open no more names nobody"


def test_who_has_joined_again_stays_counted_when_a_drop_that_was_cut_off_goes_on() -> None:
    world = World(quorum=3)
    assert world.join(R2)
    assert not world.run(count_no_more(R2, fx.Check(layout.replica_dropped(R2), fx.ANY_VERSION)))
    assert world.counted() == ("r1", "r2")


def test_counting_goes_on_under_the_epoch_that_this_process_has_taken_meanwhile() -> None:
    world = World()
    world.before_commit = (fx.Set(layout.host(R2), b"", 0),)
    world.known = fx.Epoch(1)
    assert world.join(R2)
    assert world.counted() is None


def test_a_process_that_was_replaced_does_not_count() -> None:
    world = World()
    world.before_commit = (fx.Set(layout.host(R2), b"other", 0),)
    assert not world.join(R2)
    assert world.counted() == ("r1",)


def test_the_end_of_a_quorum_goes_below_the_parent_that_is_open() -> None:
    world = World()
    following = fx.Create(layout.open_log(TABLE, 1))
    world.before_commit = (fx.Delete(layout.open_log(TABLE), 0), fx.Create(layout.log_parent(TABLE, 1)), following)
    assert world.join(R2)
    assert world.counted() is None
    assert world.tree.children(layout.log_parent(TABLE, 1)) == ("log-0000000000",)


def first_at(world: World, replica: Replica) -> Any:
    """Count a replica without a look at the node, as the commit does that registers its parts."""
    return world.commit(*count_first(replica, ((fx.LogIndex(0), world.entry),)))


def test_the_first_after_the_writer_settles_without_a_look() -> None:
    world = World()
    assert isinstance(first_at(world, R2), fx.Applied)
    assert world.counted() is None
    assert world.last() == SettleEntry("r2", INSERT, 0, ("r1", "r2"))


def test_the_first_of_several_is_only_counted_and_the_next_one_is_not_the_first() -> None:
    world = World(quorum=3)
    assert isinstance(first_at(world, R3), fx.Applied)
    assert world.counted() == ("r1", "r3")
    assert isinstance(first_at(world, R2), fx.Refused)
    assert world.join(R2)
    assert world.last() == SettleEntry("r2", INSERT, 0, ("r1", "r2", "r3"))


def test_who_comes_first_after_the_end_or_after_the_writer_has_left_is_refused() -> None:
    world = World()
    assert world.run(give_up(R1, fx.Epoch(0), fx.LogIndex(0), world.entry))
    assert isinstance(first_at(world, R2), fx.Refused)
    assert world.last() == FailEntry("r1", INSERT, 0, ("p",))
    world = World()
    for name in world.tree.children(layout.replica_path(R1)) or ():
        world.commit(fx.Delete(f"{layout.replica_path(R1)}/{name}", fx.ANY_VERSION))
    assert isinstance(first_at(world, R2), fx.Refused)
    assert world.counted() == ("r1",)


def test_several_inserts_are_settled_in_one_commit() -> None:
    world = World()
    other = get(1, 2)
    world.commit(
        fx.Create(layout.quorum_status(TABLE, other.insert), encode_quorum(QuorumValue(2, ("r1",)))),
        fx.Create(layout.log_create(TABLE), encode_entry(other), sequential=True),
    )
    applied = world.commit(*count_first(R2, ((fx.LogIndex(0), world.entry), (fx.LogIndex(1), other))))
    assert [path.rpartition("-")[2] for path in applied.created] == ["0000000002", "0000000003"]
    assert world.last() == SettleEntry("r2", other.insert, 1, ("r1", "r2"))


def test_an_insert_that_is_given_up_frees_its_token_and_settles_no_more() -> None:
    world = World()
    assert world.run(give_up(R1, fx.Epoch(0), fx.LogIndex(0), world.entry))
    assert not world.tree.exists(layout.block(TABLE, TOKEN))
    assert world.join(R2)
    assert world.last() == FailEntry("r1", INSERT, 0, ("p",))
    told = world.told()
    assert isinstance(told, fx.NotInserted)
    assert "nothing of it is in the table; insert it again" in told.reason


def test_an_insert_that_settles_while_it_is_given_up_is_settled() -> None:
    world = World()
    settled_by_r2 = fx.Create(layout.log_create(TABLE), encode_entry(settle(0)), sequential=True)
    world.before_commit = (fx.Delete(world.status, 0), settled_by_r2)
    assert world.run(give_up(R1, fx.Epoch(0), fx.LogIndex(0), world.entry))
    assert world.last() == settle(0)
    assert world.tree.exists(layout.block(TABLE, TOKEN))
    assert world.told() == fx.Inserted(fx.LogIndex(0), settled=fx.LogIndex(1))


def test_an_earlier_insert_is_in_the_table_or_not_or_still_open() -> None:
    world = World()
    assert world.run(find_earlier(TABLE, fx.BlockId("b"))) is None
    assert world.run(find_earlier(TABLE, TOKEN)) == fx.MaybeInserted()
    assert world.join(R2)
    assert world.run(find_earlier(TABLE, TOKEN)) == fx.Duplicate(fx.LogIndex(0), settled=fx.LogIndex(1))


def test_an_earlier_insert_that_was_given_up_is_not_in_the_table_even_if_its_token_is_there() -> None:
    world = World()
    world.commit(
        fx.Delete(world.status, 0), fx.Create(layout.log_create(TABLE), encode_entry(fail(0)), sequential=True)
    )
    assert world.tree.exists(layout.block(TABLE, TOKEN))
    assert world.run(find_earlier(TABLE, TOKEN)) is None


def test_the_token_of_another_insert_stays() -> None:
    world = World()
    world.commit(fx.Set(layout.block(TABLE, TOKEN), encode_block(BlockValue(fx.StagingId("s9"), 0)), 0))
    assert world.run(give_up(R1, fx.Epoch(0), fx.LogIndex(0), world.entry))
    assert world.tree.exists(layout.block(TABLE, TOKEN))


def test_when_the_entry_that_tells_is_gone_the_token_tells() -> None:
    world = World()
    world.commit(fx.Delete(world.status, 0))
    assert world.told() == fx.Inserted(fx.LogIndex(0))
    world.commit(fx.Delete(layout.block(TABLE, TOKEN), 0))
    assert world.told() == fx.MaybeInserted()


def test_only_replicas_that_are_active_and_good_can_take_part() -> None:
    world = World()
    for replica in (R1, R2):
        world.commit(fx.Create(layout.is_active(replica), b"", ephemeral=True))
    assert world.run(count_replicas(TABLE)) == Replicas(3, ("r1", "r2"))
    world.commit(fx.Set(layout.is_lost(R2), LOST, 0))
    assert world.run(count_replicas(TABLE)) == Replicas(3, ("r1",))


@pytest.mark.parametrize(("age_ms", "given_up"), [(-1, 1), (1_000_000, 0)])
def test_the_leader_gives_up_what_nobody_has_joined_for_long(age_ms: int, given_up: int) -> None:
    """The tree has no clock: all its nodes are of the same age, 0 ms."""
    world = World()
    assert world.run(give_up_overdue(R2, fx.Epoch(0), (fx.LogIndex(0),), age_ms)) == given_up
    assert (world.counted() is None) is bool(given_up)
