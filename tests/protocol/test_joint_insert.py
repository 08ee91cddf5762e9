"""Joint inserts over shards: what the explored models leave out."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, RollEntry, SettleEntry, decode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.insert.quorum import give_up, join
from replitree.protocol.membership.table import TableOutcome, drop_replica, join_table, table_nodes
from replitree.protocol.propose.roll_over import roll_over
from replitree.protocol.sharded.joint_insert import (
    JOINT_BYTES_MAX,
    JointInsert,
    JointInserted,
    joint_insert,
)
from replitree.protocol.sharded.prepare import (
    Abandonment,
    Participant,
    ParticipantGone,
    Preparer,
    abandon,
    forget_prepared,
    prepare,
)
from tests.protocol.tree_world import TreeWorld

PLACE = layout.sharded("/c", "d")
SHARDS = tuple(TablePlace(f"/c/tables/d~{number}", incarnation=f"s{number}") for number in range(2))
ME = b"me"


class ShardWorld(TreeWorld):
    """Two shards, each with a replica that is active under its first epoch; each partition has a row."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(Tree())
        self.partitions = partitions
        self.staged = set[str]()
        paths = ("/c", "/c/tables", "/c/sharded", PLACE, layout.joint_tokens(PLACE), layout.joint_inserts(PLACE))
        self.commit(*(fx.Create(path) for path in (*paths, layout.shard_map(PLACE))))
        for shard in SHARDS:
            self.commit(*table_nodes(shard, b"", b"", encode_log(shard)))
            assert self.run(join_table(Replica(shard, "r"))) is TableOutcome.DONE
            host = layout.host(Replica(shard, "r"))
            self.commit(fx.Set(host, ME, fx.ANY_VERSION), fx.Create(layout.is_active(Replica(shard, "r")), ME))

    @override
    def perform(self, effect: Any) -> Any:
        """Stage in memory."""
        match effect:
            case fx.Stage(staging):
                self.staged.add(staging)
                names = (f"p{number}" for number in range(self.partitions))
                return fx.Staged(tuple(fx.StagedPart(name, 1, 1, "0" * 32) for name in names))
            case fx.RemoveStaging(staging):
                self.staged.discard(staging)
                return None
        return super().perform(effect)

    def prepare(self, shard: int, staging: str, *, is_apart: bool = True) -> Participant:
        """Prepare rows of a shard."""
        preparer = Preparer(Replica(SHARDS[shard], "r"), ME, fx.LogIndex(0), is_apart=is_apart)
        made = self.run(prepare(preparer, fx.Epoch(1), fx.StagingId(staging), (fx.RequestId(0),)))
        assert isinstance(made, Participant)
        return made

    def insert(self, name: str, *participants: Participant, quorum: int = 0) -> Any:
        """Insert jointly."""
        asked = JointInsert(fx.JointId(name), PLACE, fx.BlockId("t"), fx.Version(0), participants, quorum)
        return self.run(joint_insert(asked, ME))

    def open_quorum(self) -> None:
        """Insert with a quorum of two, and let another replica join each shard."""
        told = self.insert("j1", self.prepare(0, "a", is_apart=False), self.prepare(1, "b"), quorum=2)
        assert isinstance(told, JointInserted)
        for shard in SHARDS:
            assert self.run(join_table(Replica(shard, "r2"))) is TableOutcome.DONE

    def count(self, shard: int, name: str = "r2") -> None:
        """Count a replica for the insert that is open in its shard."""
        entry = self.log(shard)[0]
        assert isinstance(entry, GetEntry)
        assert self.run(join(Replica(SHARDS[shard], name), fx.Epoch(0), fx.LogIndex(0), entry))

    def log(self, shard: int) -> list[Entry]:
        """Return what the log of a shard says, below whichever parents."""
        paths = (path for path in self.tree.paths() if path.startswith(f"{SHARDS[shard].path}/log") and "/log-" in path)
        nodes = ((path, self.tree.get(path)) for path in paths)
        return [decode_entry(node.value, path) for path, node in nodes if node is not None]


def test_both_shards_have_their_entry_and_a_repetition_is_told_where() -> None:
    world = ShardWorld()
    own, other = world.prepare(0, "a", is_apart=False), world.prepare(1, "b")
    written = (("d~0", fx.LogIndex(0)), ("d~1", fx.LogIndex(0)))
    assert world.insert("j1", own, other) == JointInserted(fx.JointId("j1"), written)
    assert world.tree.children(layout.all_prepared(other.replica)) == ()
    again = world.insert("j2", world.prepare(0, "c", is_apart=False), world.prepare(1, "d"))
    assert again == JointInserted(fx.JointId("j1"), written, is_duplicate=True)


def test_a_commit_that_a_client_sends_again_is_known_for_the_same_insert() -> None:
    world = ShardWorld()
    own, other = world.prepare(0, "a", is_apart=False), world.prepare(1, "b")
    assert world.insert("j1", own, other) == world.insert("j1", own, other)
    assert [len(world.log(shard)) for shard in range(2)] == [1, 1]


def test_an_insert_into_one_shard_is_an_entry_as_any_other() -> None:
    world = ShardWorld()
    assert isinstance(world.insert("j1", world.prepare(0, "a", is_apart=False)), JointInserted)
    entry = world.tree.get(layout.log_entry(SHARDS[0], 0))
    assert entry is not None
    assert b'"format":1' in entry.value


def test_a_commit_that_coordination_would_not_take_is_refused_before_it_is_sent() -> None:
    world = ShardWorld(partitions=JOINT_BYTES_MAX // 80)
    before = world.tree
    told = world.insert("j1", world.prepare(0, "a", is_apart=False))
    assert isinstance(told, fx.NotInserted)
    assert told.why is fx.Why.REQUEST
    assert "insert fewer partitions at once" in told.reason
    assert world.tree is before


def test_what_was_abandoned_is_not_inserted_and_what_was_inserted_is_not_abandoned() -> None:
    world = ShardWorld()
    own, other = world.prepare(0, "a", is_apart=False), world.prepare(1, "b")
    assert world.run(abandon(other, ME)) is Abandonment.REMOVED
    told = world.insert("j1", own, other)
    assert isinstance(told, ParticipantGone)
    assert told.participant == other
    another = world.prepare(1, "c")
    assert isinstance(world.insert("j2", own, another), JointInserted)
    assert world.run(abandon(another, ME)) is Abandonment.COMMITTED
    assert world.staged == {"a", "c"}


def test_a_start_forgets_what_earlier_processes_have_prepared_and_what_its_own_does_not_hold() -> None:
    world = ShardWorld()
    replica, epoch = world.prepare(1, "b").replica, fx.Epoch(1)
    world.prepare(1, "c")
    assert world.run(forget_prepared(replica, ME, epoch, ())) == 0
    assert world.run(forget_prepared(replica, ME, epoch, (fx.StagingId("c"),))) == 1
    assert world.tree.children(layout.all_prepared(replica)) == ("b",)
    assert world.run(forget_prepared(replica, b"the next one", epoch, ())) == 1
    assert world.tree.children(layout.all_prepared(replica)) == ()


def test_a_shard_with_views_takes_no_rows_of_a_joint_insert() -> None:
    world = ShardWorld()
    own, other = world.prepare(0, "a", is_apart=False), world.prepare(1, "b")
    world.commit(fx.Set(layout.open_log(SHARDS[1]), b"", fx.ANY_VERSION))
    told = world.insert("j1", own, other)
    assert isinstance(told, fx.NotInserted)
    assert told.why is fx.Why.REQUEST
    assert "materialised views" in told.reason


def test_a_replica_that_has_prepared_can_be_dropped() -> None:
    world = ShardWorld()
    gone = Replica(SHARDS[1], "r")
    world.prepare(1, "b")
    assert world.run(join_table(Replica(SHARDS[1], "r2"))) is TableOutcome.DONE
    world.commit(fx.Delete(layout.is_active(gone), fx.ANY_VERSION))
    assert world.run(drop_replica(gone)) is TableOutcome.DONE
    assert not world.tree.exists(layout.replica_path(gone))


def test_shards_settle_when_the_last_one_has_its_number_and_not_before() -> None:
    world = ShardWorld()
    world.open_quorum()
    world.count(0)
    assert [len(world.log(shard)) for shard in range(2)] == [1, 1]
    world.count(1)
    for shard, insert in enumerate("ab"):
        assert world.log(shard)[1:] == [SettleEntry("r2", fx.StagingId(insert), 0, ("r", "r2"))]
    assert world.tree.children(layout.joint_inserts(PLACE)) == ()


def test_an_insert_that_is_given_up_fails_in_all_shards_and_frees_its_token() -> None:
    world = ShardWorld()
    world.open_quorum()
    world.count(0)
    entry = world.log(1)[0]
    assert isinstance(entry, GetEntry)
    assert world.run(give_up(Replica(SHARDS[1], "r2"), fx.Epoch(0), fx.LogIndex(0), entry))
    for shard, insert in enumerate("ab"):
        assert world.log(shard)[1:] == [FailEntry("r2", fx.StagingId(insert), 0, ("p0",))]
    assert world.tree.children(layout.joint_tokens(PLACE)) == ()


def test_an_insert_ends_below_the_parents_at_which_the_logs_stand_by_then() -> None:
    world = ShardWorld()
    world.open_quorum()
    assert world.run(roll_over(Replica(SHARDS[1], "r2"), fx.Epoch(0)))
    world.count(0)
    world.count(1)
    assert world.tree.children(layout.log_parent(SHARDS[1], 1)) == ("log-0000000000",)
    assert {type(entry) for entry in world.log(1)} == {GetEntry, RollEntry, SettleEntry}


def test_a_replica_that_has_left_its_shard_is_not_counted() -> None:
    world = ShardWorld()
    world.open_quorum()
    world.count(0)
    # Its nodes are gone, and its name is still to be taken back.
    gone = Replica(SHARDS[0], "r2")
    world.commit(fx.Delete(layout.host(gone), fx.ANY_VERSION))
    world.count(1)
    assert [len(world.log(shard)) for shard in range(2)] == [1, 1]
