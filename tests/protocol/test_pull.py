"""What a puller makes of an entry that is not there."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Create,
    Delete,
    Epoch,
    LogIndex,
    Many,
    Node,
    Set,
    Version,
)
from replitree.protocol.layout import Replica, Table
from replitree.protocol.log import encode_log
from replitree.protocol.part_set import PartSet
from replitree.protocol.pull import Fenced, Gap, Place, Pointer, Pulled, pull_log
from replitree.protocol.run import run
from replitree.protocol.table import Outcome, create_table, join_table
from tests.protocol.tree_world import TreeWorld

TABLE = Table("/t")
ONE = Replica(TABLE, "r1")


class World(TreeWorld):
    """Coordination with a table whose replica has pulled nothing."""

    def __init__(self) -> None:
        super().__init__(Tree())
        assert self.run(create_table(TABLE, b"m", b"c")) is Outcome.DONE
        assert self.run(join_table(ONE)) is Outcome.DONE


@pytest.mark.parametrize("count", [1, 8])
def test_an_entry_that_was_removed_is_not_waited_for_though_none_is_there_yet(count: int) -> None:
    """As after a pull in doubt that took place once the pointer was read: the entry is not needed any more, and is cleaned."""
    world = World()
    place = Place(Pointer(LogIndex(0), ANY_VERSION), PartSet())
    assert world.run(pull_log(ONE, Epoch(0), place, count)) == Pulled(place, (), more=False), "nothing is there yet"
    assert isinstance(world.commit(Create(layout.log_create(TABLE), sequential=True)), Applied)
    gone = Delete(layout.log_entry(TABLE, 0), ANY_VERSION), Set(layout.log(TABLE), encode_log(TABLE, 1), ANY_VERSION)
    assert isinstance(world.commit(*gone), Applied)
    assert world.run(pull_log(ONE, Epoch(0), place, count)) == Gap(LogIndex(0))


def test_entries_that_were_removed_behind_those_that_were_read_are_not_waited_for() -> None:
    """A pull whose reads are not one moment: the log is cleaned between two of them."""
    place = Place(Pointer(LogIndex(0), ANY_VERSION), PartSet())
    entry, log = Node(b"", Version(0)), Node(encode_log(TABLE, 2), Version(1))
    answers = iter([Many((entry, None, log))])
    assert run(pull_log(ONE, Epoch(0), place, 2), lambda _: next(answers)) == Gap(LogIndex(1))


def test_who_pulls_from_a_table_that_is_removed_is_fenced() -> None:
    world = World()
    assert isinstance(world.commit(Delete(layout.log(TABLE), ANY_VERSION)), Applied)
    assert world.run(pull_log(ONE, Epoch(0), Place(Pointer(LogIndex(0), ANY_VERSION), PartSet()))) == Fenced()
