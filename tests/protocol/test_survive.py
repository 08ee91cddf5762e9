"""What an operator declares the table's state goes on with the inserts that are open there."""

from __future__ import annotations

import pytest

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, GetEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import LOST, create_table, join_table
from replitree.protocol.rescue.recover import Survivor, survive
from replitree.protocol.state.counted import QuorumValue, encode_quorum
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
R1 = Replica(TABLE, "r1")
STAGING = fx.StagingId("s0")
OPEN = GetEntry("r1", STAGING, (fx.StagedPart("p", 1, 1, "h"),), (), format=3, quorum=2)
OTHER = GetEntry("r1", fx.StagingId("s1"), (fx.StagedPart("p", 1, 1, "h"),), ())
END = SettleEntry("r2", STAGING, 0, ("r1", "r2"))


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
    world = TreeWorld(Tree())
    for procedure in (create_table(TABLE, b"", b""), join_table(R1)):
        world.run(procedure)
    for entry in log:
        world.commit(fx.Create(layout.log_create(TABLE), encode_entry(entry), sequential=True))
    if END not in log:
        world.commit(fx.Create(layout.quorum_status(TABLE, STAGING), encode_quorum(QuorumValue(2, ("r1",)))))
    world.commit(
        *(fx.Delete(layout.log_entry(TABLE, fx.LogIndex(index)), fx.ANY_VERSION) for index in range(first)),
        fx.Set(layout.log(TABLE), encode_log(TABLE, fx.LogIndex(first)), fx.ANY_VERSION),
        fx.Set(layout.log_pointer(R1), layout.pointer_value(fx.LogIndex(1), (fx.LogIndex(0),)), fx.ANY_VERSION),
        fx.Set(layout.is_lost(R1), LOST, fx.ANY_VERSION),
    )
    assert world.run(survive(TABLE, "r1")) == Survivor(fx.LogIndex(1), fx.LogIndex(max(1, first)))
    pointer = world.tree.get(layout.log_pointer(R1))
    assert pointer is not None
    assert layout.pointer_open(pointer.value) == opened
