"""What an operator declares the table's state goes on with the inserts that are open there."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, GetEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import LOST, create_table, join_table
from replitree.protocol.rescue.recover import NotSurvivor, Survivor, survive
from replitree.protocol.state.counted import QuorumValue, encode_quorum
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
R1 = Replica(TABLE, "r1")
STAGING = fx.StagingId("s0")
OPEN = GetEntry("r1", STAGING, (fx.StagedPart("p", 1, 1, "h"),), (), format=3, quorum=2)
OTHER = GetEntry("r1", fx.StagingId("s1"), (fx.StagedPart("p", 1, 1, "h"),), ())
END = SettleEntry("r2", STAGING, 0, ("r1", "r2"))


def world_with(world: TreeWorld, log: tuple[Entry, ...]) -> TreeWorld:
    """Return a table whose only replica is lost, and has pulled the first entry of a log, an insert that is open."""
    for procedure in (create_table(TABLE, b"", b""), join_table(R1)):
        world.run(procedure)
    for entry in log:
        world.commit(fx.Create(layout.log_create(TABLE), encode_entry(entry), sequential=True))
    world.commit(
        fx.Set(layout.log_pointer(R1), layout.pointer_value(fx.LogIndex(1), (fx.LogIndex(0),)), fx.ANY_VERSION),
        fx.Set(layout.is_lost(R1), LOST, fx.ANY_VERSION),
    )
    return world


def remove(world: TreeWorld, first: int) -> None:
    """Remove the entries below `first`."""
    world.commit(
        *(fx.Delete(layout.log_entry(TABLE, fx.LogIndex(index)), fx.ANY_VERSION) for index in range(first)),
        fx.Set(layout.log(TABLE), encode_log(TABLE, fx.LogIndex(first)), fx.ANY_VERSION),
    )


@pytest.mark.parametrize(
    ("log", "first", "opened"),
    [
        pytest.param((OPEN, OTHER), 0, (0,), id="it has not ended"),
        pytest.param((OPEN, OTHER, END), 0, (0,), id="its end is still to be pulled"),
        pytest.param((OPEN, OTHER, END), 2, (0,), id="its own entry is gone, its end is not"),
        pytest.param((OPEN, END, OTHER), 2, (), id="its end is gone"),
    ],
)
def test_an_insert_stays_open_unless_the_survivor_misses_its_end(
    log: tuple[Entry, ...], first: int, opened: tuple[int, ...]
) -> None:
    world = world_with(TreeWorld(Tree()), log)
    if END not in log:
        world.commit(fx.Create(layout.quorum_status(TABLE, STAGING), encode_quorum(QuorumValue(2, ("r1",)))))
    remove(world, first)
    assert world.run(survive(TABLE, "r1")) == Survivor(fx.LogIndex(1), fx.LogIndex(max(1, first)))
    pointer = world.tree.get(layout.log_pointer(R1))
    assert pointer is not None
    assert layout.pointer_open(pointer.value) == opened


class CleanedMeanwhile(TreeWorld):
    """The log is cleaned after it was read, by a replica that is lost when the marks are read."""

    @override
    def perform(self, effect: Any) -> Any:
        if effect == fx.Children(layout.replicas(TABLE)):
            remove(self, 2)
        return super().perform(effect)


def test_nothing_is_declared_when_the_log_was_cleaned_meanwhile() -> None:
    world = world_with(CleanedMeanwhile(Tree()), (OPEN, OTHER, END))
    assert isinstance(world.run(survive(TABLE, "r1")), NotSurvivor)
