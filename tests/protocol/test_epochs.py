"""A replica that joins again under its name has no epoch that anybody under this name has had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.requests import encode_transaction
from replitree.coordination.tree import Tree
from replitree.coordination.zookeeper import REQUEST_BYTES_MAX
from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Commit,
    Create,
    Delete,
    Operation,
    Set,
    Version,
)
from replitree.protocol.epochs import EPOCHS_MAX
from replitree.protocol.layout import NAME_LENGTH_MAX, Replica, Table
from replitree.protocol.table import (
    Outcome,
    create_table,
    drop_replica,
    join_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from tests.protocol.tree_world import TreeWorld

TABLE = Table("/replitree/tables/t")
R1, R2, R3 = (Replica(TABLE, name) for name in ("r1", "r2", "r3"))


class World(TreeWorld):
    """A table with three replicas in coordination.

    `before_last` is what somebody else commits just before the replica's `host` is deleted.
    """

    def __init__(self, table: Table = TABLE) -> None:
        parents = table.path.split("/")[1:-1]
        super().__init__(Tree.of({"/" + "/".join(parents): b""}))
        self.before_last: tuple[Operation, ...] = ()
        self.commits: list[tuple[Operation, ...]] = []
        assert self.run(create_table(table, b"m", b"c")) is Outcome.DONE

    def joined(self, *replicas: Replica) -> World:
        assert {self.run(join_table(replica)) for replica in replicas} == {Outcome.DONE}
        return self

    @override
    def perform(self, effect: Any) -> Any:
        if isinstance(effect, Commit):
            if any(isinstance(each, Delete) and each.path.endswith("/host") for each in effect.operations):
                others, self.before_last = self.before_last, ()
                assert not others or isinstance(self.commit(*others), Applied)
            self.commits.append(effect.operations)
        return super().perform(effect)

    def version(self, replica: Replica) -> int:
        node = self.tree.get(layout.host(replica))
        assert node is not None
        return int(node.version)

    def note(self, replica: Replica) -> bytes | None:
        node = self.tree.get(layout.last_epoch(replica))
        return None if node is None else node.value

    def activated(self, replica: Replica, times: int) -> int:
        for _ in range(times):
            assert isinstance(self.commit(Set(layout.host(replica), b"me", ANY_VERSION)), Applied)
        return self.version(replica)


def test_versions_go_on_where_they_ended_however_often_a_replica_is_dropped() -> None:
    world = World().joined(R1, R2)
    assert world.version(R1) == 0, "a name that is new begins at the beginning"
    for times in (1, 3, 0):
        last = world.activated(R1, times)
        assert world.run(drop_replica(R1)) is Outcome.DONE
        assert world.note(R1) == str(last + 1).encode(), "the mark of the drop is the last version"
        assert world.run(join_table(R1)) is Outcome.DONE
        assert world.version(R1) == last + 2
    assert world.version(R2) == 0


def test_a_table_on_which_an_earlier_version_has_dropped_a_replica_has_no_note_and_is_joined() -> None:
    world = World().joined(R1)
    assert world.tree.get(layout.epochs(TABLE)) is None, "nothing comes before somebody is dropped"
    assert world.version(R1) == 0


def test_a_version_that_comes_between_the_mark_and_the_end_of_a_drop_is_noted_too() -> None:
    world = World().joined(R1, R2)
    world.before_last = (Set(layout.host(R1), b"dropped", ANY_VERSION),)
    assert world.run(drop_replica(R1)) is Outcome.UNSETTLED
    assert world.note(R1) is None
    assert world.run(drop_replica(R1)) is Outcome.DONE
    assert world.note(R1) == b"2"


def test_two_replicas_are_dropped_at_once_and_both_are_noted() -> None:
    world = World().joined(R1, R2, R3)
    world.before_last = (Create(layout.epochs(TABLE)), Create(layout.last_epoch(R2), b"7"))
    assert world.run(drop_replica(R1)) is Outcome.DONE
    assert (world.note(R1), world.note(R2)) == (b"1", b"7")


def test_a_table_is_removed_with_its_notes() -> None:
    world = World().joined(R1, R2)
    assert world.run(mark_dropped(TABLE)) is Outcome.DONE
    assert {world.run(leave_table(replica)) for replica in (R1, R2)} == {Outcome.DONE}
    assert world.note(R1) == b"1"
    assert world.run(remove_table(TABLE)) is Outcome.DONE
    assert not world.tree.exists(TABLE.path)


@pytest.mark.parametrize(("last", "outcome"), [(EPOCHS_MAX, Outcome.DONE), (EPOCHS_MAX + 1, Outcome.WORN)])
def test_a_name_that_has_had_too_many_epochs_is_refused(last: int, outcome: Outcome) -> None:
    world = World()
    world.commit(Create(layout.epochs(TABLE)), Create(layout.last_epoch(R1), str(last).encode()))
    assert world.run(join_table(R1)) is outcome
    assert world.tree.exists(layout.host(R1)) is (outcome is Outcome.DONE)


def test_the_largest_joining_is_a_request_that_coordination_takes() -> None:
    table = Table(layout.table_path("/replitree", "t" * NAME_LENGTH_MAX))
    replica, world = Replica(table, "r" * NAME_LENGTH_MAX), World(table)
    world.commit(Create(layout.epochs(table)), Create(layout.last_epoch(replica), str(EPOCHS_MAX).encode()))
    assert world.run(join_table(replica, "i" * 32)) is Outcome.DONE
    assert world.version(replica) == Version(EPOCHS_MAX + 1)
    client = SimpleNamespace(chroot="", default_acl=None)
    assert len(encode_transaction(client, world.commits[-1])) < REQUEST_BYTES_MAX
