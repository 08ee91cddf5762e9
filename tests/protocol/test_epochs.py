"""A replica that joins again under its name has no epoch that anybody under this name has had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.port import REQUEST_BYTES_MAX
from replitree.coordination.requests import encode_transaction
from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.epochs import epochs_max
from replitree.protocol.core.layout import NAME_LENGTH_MAX, Replica, TablePlace
from replitree.protocol.membership.table import (
    TableOutcome,
    create_table,
    drop_replica,
    join_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/replitree/tables/t")
R1, R2, R3 = (Replica(TABLE, name) for name in ("r1", "r2", "r3"))


class World(TreeWorld):
    """A table with three replicas in coordination.

    `before_last` is what somebody else commits just before the replica's `host` is deleted.
    """

    def __init__(self, table: TablePlace = TABLE) -> None:
        parents = table.path.split("/")[1:-1]
        super().__init__(Tree.of({"/" + "/".join(parents): b""}))
        self.before_last: tuple[fx.Operation, ...] = ()
        self.commits: list[tuple[fx.Operation, ...]] = []
        assert self.run(create_table(table, b"m", b"c")) is TableOutcome.DONE

    def joined(self, *replicas: Replica) -> World:
        assert {self.run(join_table(replica)) for replica in replicas} == {TableOutcome.DONE}
        return self

    @override
    def perform(self, effect: Any) -> Any:
        if isinstance(effect, fx.Commit):
            if any(isinstance(each, fx.Delete) and each.path.endswith("/host") for each in effect.operations):
                others, self.before_last = self.before_last, ()
                assert not others or isinstance(self.commit(*others), fx.Applied)
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
            assert isinstance(self.commit(fx.Set(layout.host(replica), b"me", fx.ANY_VERSION)), fx.Applied)
        return self.version(replica)


def test_versions_go_on_where_they_ended_however_often_a_replica_is_dropped() -> None:
    world = World().joined(R1, R2)
    assert world.version(R1) == 0, "a name that is new begins at the beginning"
    for times in (1, 3, 0):
        last = world.activated(R1, times)
        assert world.run(drop_replica(R1)) is TableOutcome.DONE
        assert world.note(R1) == str(last + 1).encode(), "the mark of the drop is the last version"
        assert world.run(join_table(R1)) is TableOutcome.DONE
        assert world.version(R1) == last + 2
    assert world.version(R2) == 0


def test_a_table_on_which_an_earlier_version_has_dropped_a_replica_has_no_note_and_is_joined() -> None:
    world = World().joined(R1)
    assert world.tree.get(layout.epochs(TABLE)) is None, "nothing comes before somebody is dropped"
    assert world.version(R1) == 0


def test_a_version_that_comes_between_the_mark_and_the_end_of_a_drop_is_noted_too() -> None:
    world = World().joined(R1, R2)
    world.before_last = (fx.Set(layout.host(R1), b"dropped", fx.ANY_VERSION),)
    assert world.run(drop_replica(R1)) is TableOutcome.UNSETTLED
    assert world.note(R1) is None
    assert world.run(drop_replica(R1)) is TableOutcome.DONE
    assert world.note(R1) == b"2"


def test_two_replicas_are_dropped_at_once_and_both_are_noted() -> None:
    world = World().joined(R1, R2, R3)
    world.before_last = (fx.Create(layout.epochs(TABLE)), fx.Create(layout.last_epoch(R2), b"7"))
    assert world.run(drop_replica(R1)) is TableOutcome.DONE
    assert (world.note(R1), world.note(R2)) == (b"1", b"7")


def test_a_table_is_removed_with_its_notes() -> None:
    world = World().joined(R1, R2)
    assert world.run(mark_dropped(TABLE)) is TableOutcome.DONE
    assert {world.run(leave_table(replica)) for replica in (R1, R2)} == {TableOutcome.DONE}
    assert world.note(R1) == b"1"
    assert world.run(remove_table(TABLE)) is TableOutcome.DONE
    assert not world.tree.exists(TABLE.path)


@pytest.mark.parametrize(
    ("last", "outcome"), [(epochs_max(R1), TableOutcome.DONE), (epochs_max(R1) + 1, TableOutcome.WORN)]
)
def test_a_name_that_has_had_too_many_epochs_is_refused(last: int, outcome: TableOutcome) -> None:
    world = World()
    world.commit(fx.Create(layout.epochs(TABLE)), fx.Create(layout.last_epoch(R1), str(last).encode()))
    assert world.run(join_table(R1)) is outcome
    assert world.tree.exists(layout.host(R1)) is (outcome is TableOutcome.DONE)


@pytest.mark.parametrize("length", [1, 8, NAME_LENGTH_MAX])
def test_the_largest_joining_is_a_request_that_coordination_takes(length: int) -> None:
    table = TablePlace(layout.table_path("/replitree", "t" * length))
    replica, world = Replica(table, "r" * length), World(table)
    world.commit(
        fx.Create(layout.epochs(table)), fx.Create(layout.last_epoch(replica), str(epochs_max(replica)).encode())
    )
    assert world.run(join_table(replica, "i" * 32)) is TableOutcome.DONE
    assert world.version(replica) == fx.Version(epochs_max(replica) + 1)
    client = SimpleNamespace(chroot="", default_acl=None)
    assert len(encode_transaction(client, world.commits[-1])) < REQUEST_BYTES_MAX
