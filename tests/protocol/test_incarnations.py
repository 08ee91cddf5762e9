"""A table that is made anew under its name is another one: what belongs to the earlier one finds nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Create, Procedure, StagingId
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.activate import Activated, NotJoined, activate, renew_epoch
from replitree.protocol.membership.table import (
    TableOutcome,
    create_table,
    find_table,
    join_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from replitree.protocol.shares.table_store import Store, agree_on_store, incarnation_of
from replitree.protocol.state.counted import QuorumValue, encode_quorum
from tests.protocol.tree_world import TreeWorld

PATH = "/replitree/tables/t"
EARLIER, LATER, PLAIN = (TablePlace(PATH, incarnation=each) for each in ("a1", "b2", ""))
STEPS_OF_A_REMOVAL = 13
ME = b"me"


class World(TreeWorld):
    """Coordination with a table that one replica has joined, and a process that hosts whichever table of the name is there."""

    def __init__(self, table: TablePlace) -> None:
        super().__init__(Tree.of({"/replitree/tables": b""}))
        self.create(table)

    def create(self, table: TablePlace) -> None:
        assert self.run(create_table(table, b"m", b"c")) is TableOutcome.DONE
        assert self.run(join_table(Replica(table, "r1"))) is TableOutcome.DONE
        self.commit(Create(layout.log_create(table), sequential=True))

    def drop(self, table: TablePlace) -> None:
        assert self.run(mark_dropped(table)) in (TableOutcome.DONE, TableOutcome.EXISTS)
        assert self.run(leave_table(Replica(table, "r1"))) is TableOutcome.DONE
        assert self.run(remove_table(table)) is TableOutcome.DONE

    def asked(self, procedure: Procedure[Any]) -> Iterator[Any]:
        """Run a procedure, and stop after each answer; yields what was asked for."""
        effect = next(procedure)
        while True:
            outcome = self.perform(effect)
            yield effect
            try:
                effect = procedure.send(outcome)
            except StopIteration:
                return


def test_a_table_says_which_one_it_is() -> None:
    world = World(EARLIER)
    assert world.run(find_table(PATH)) == EARLIER
    assert world.run(find_table(f"{PATH}2")) == TablePlace(f"{PATH}2")
    assert world.tree.exists(f"{PATH}/replicas-a1/r1/host")


def test_a_process_of_a_dropped_table_does_not_choose_the_store_of_the_next_one() -> None:
    world = World(EARLIER)
    world.commit(Create(layout.sharing(EARLIER)))
    activated = world.run(activate(Replica(EARLIER, "r1"), ME))
    assert isinstance(activated, Activated)
    world.drop(EARLIER)
    world.create(LATER)
    world.commit(Create(layout.sharing(LATER)))
    assert world.run(agree_on_store(Replica(EARLIER, "r1"), activated.epoch, "another store")) is Store.UNSETTLED
    chosen = world.tree.get(layout.sharing(LATER))
    assert chosen is not None
    assert chosen.value == b""


def test_a_process_under_an_earlier_epoch_gives_its_replica_no_incarnation() -> None:
    world, replica = World(EARLIER), Replica(EARLIER, "r1")
    first, second = world.run(activate(replica, ME)), world.run(activate(replica, ME))
    assert isinstance(first, Activated)
    assert isinstance(second, Activated)
    assert world.run(incarnation_of(replica, first.epoch, "late")) is None
    assert world.run(incarnation_of(replica, second.epoch, "fresh")) == "fresh"


def test_a_table_of_an_earlier_version_is_found_where_it_was() -> None:
    world = World(PLAIN)
    assert world.run(find_table(PATH)) == PLAIN
    assert world.tree.exists(f"{PATH}/replicas/r1/host")


def test_earlier_versions_do_not_join_a_table_whose_replicas_they_would_not_find() -> None:
    formats = {table.incarnation: World(table).tree.get(layout.log(table)) for table in (PLAIN, EARLIER)}
    assert {name: node and node.value for name, node in formats.items()} == {
        "": b'{"first":0,"format":1}',
        "a1": b'{"first":0,"format":2}',
    }


@pytest.mark.parametrize(("later", "found"), [(LATER, NotJoined), (EARLIER, Activated)])
def test_a_process_takes_no_epoch_in_a_later_table_with_what_it_has_of_an_earlier_one(
    later: TablePlace, found: type
) -> None:
    world = World(EARLIER)
    replica = Replica(EARLIER, "r1")
    assert isinstance(world.run(activate(replica, ME)), Activated)
    world.drop(EARLIER)
    world.create(later)
    assert isinstance(world.run(activate(Replica(later, "r1"), ME)), Activated)
    assert isinstance(world.run(renew_epoch(replica, ME, None)), found), (
        "the same process hosts both: only the place differs"
    )


def test_nobody_joins_a_later_table_in_the_place_of_an_earlier_one() -> None:
    world = World(EARLIER)
    world.drop(EARLIER)
    world.create(LATER)
    assert world.run(join_table(Replica(EARLIER, "r2"))) is TableOutcome.MISSING


def test_an_insert_that_is_open_does_not_keep_a_table_from_being_removed() -> None:
    world = World(EARLIER)
    status = layout.quorum_status(EARLIER, StagingId("open"))
    world.commit(Create(status, encode_quorum(QuorumValue(2, ("r1",)))))
    assert world.tree.exists(status)
    world.drop(EARLIER)
    assert not world.tree.exists(PATH)


@pytest.mark.parametrize("steps", range(STEPS_OF_A_REMOVAL))
def test_who_removes_a_table_touches_no_later_one(steps: int) -> None:
    world = World(EARLIER)
    for each in (mark_dropped(EARLIER), leave_table(Replica(EARLIER, "r1"))):
        assert world.run(each) is TableOutcome.DONE
    removing = world.asked(remove_table(EARLIER))
    for _ in range(steps):
        next(removing)
    world.drop(EARLIER)
    world.create(LATER)
    made = world.tree
    assert made.exists(layout.log_entry(LATER, 0))
    list(removing)
    assert world.tree == made


def test_the_removal_was_stopped_at_every_step() -> None:
    world = World(EARLIER)
    for each in (mark_dropped(EARLIER), leave_table(Replica(EARLIER, "r1"))):
        world.run(each)
    assert len(list(world.asked(remove_table(EARLIER)))) == STEPS_OF_A_REMOVAL
