"""What a puller makes of an entry that is not there."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.membership.table import TableOutcome, create_table, join_table, leave_table
from replitree.protocol.state.pull import Fenced, Gap, Place, Pointer, Pulled, load, pull_log
from replitree.protocol.state.start import catch_up
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
ONE = Replica(TABLE, "r1")


class World(TreeWorld):
    """Coordination with a table whose replica has pulled nothing."""

    def __init__(self) -> None:
        super().__init__(Tree())
        assert self.run(create_table(TABLE, b"m", b"c")) is TableOutcome.DONE
        assert self.run(join_table(ONE)) is TableOutcome.DONE


@pytest.mark.parametrize("count", [1, 8])
def test_an_entry_that_was_removed_is_not_waited_for_though_none_is_there_yet(count: int) -> None:
    """As after a pull in doubt that took place once the pointer was read: the entry is not needed any more, and is cleaned."""
    world = World()
    place = Place(Pointer(fx.LogIndex(0), fx.ANY_VERSION), PartSet())
    assert world.run(pull_log(ONE, fx.Epoch(0), place, count)) == Pulled(place, (), more=False), "nothing is there yet"
    assert isinstance(world.commit(fx.Create(layout.log_create(TABLE), sequential=True)), fx.Applied)
    gone = (
        fx.Delete(layout.log_entry(TABLE, 0), fx.ANY_VERSION),
        fx.Set(layout.log(TABLE), encode_log(TABLE, 1), fx.ANY_VERSION),
    )
    assert isinstance(world.commit(*gone), fx.Applied)
    assert world.run(pull_log(ONE, fx.Epoch(0), place, count)) == Gap(fx.LogIndex(0))


def test_entries_that_were_removed_behind_those_that_were_read_are_not_waited_for() -> None:
    """A pull whose reads are not one moment: the log is cleaned between two of them."""
    place = Place(Pointer(fx.LogIndex(0), fx.ANY_VERSION), PartSet())
    entry, log = fx.Node(b"", fx.Version(0)), fx.Node(encode_log(TABLE, 2), fx.Version(1))
    answers = iter([fx.Many((entry, None, log))])
    assert run(pull_log(ONE, fx.Epoch(0), place, 2), lambda _: next(answers)) == Gap(fx.LogIndex(1))


def test_who_pulls_from_a_table_that_is_removed_is_fenced() -> None:
    world = World()
    assert isinstance(world.commit(fx.Delete(layout.log(TABLE), fx.ANY_VERSION)), fx.Applied)
    assert world.run(pull_log(ONE, fx.Epoch(0), Place(Pointer(fx.LogIndex(0), fx.ANY_VERSION), PartSet()))) == Fenced()


def test_a_replica_that_was_dropped_while_it_activates_is_fenced() -> None:
    world = World()
    assert world.run(leave_table(ONE)) is TableOutcome.DONE
    assert world.run(load(ONE)) == Fenced()
    assert world.run(catch_up(ONE, fx.Epoch(0))) == Fenced()
