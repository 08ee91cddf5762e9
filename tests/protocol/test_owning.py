"""Owning many parts in one commit: a process that knows nothing of what an earlier one wrote looks once, at all of them."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.owning import own
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import ForgetParts, SharedPart, Sharer, SharesSettled
from tests.protocol.tree_world import TreeWorld

TABLE = TablePlace("/t")
REPLICA = Replica(TABLE, "r1")
SHARER = Sharer(REPLICA, "i1")
PARTS = tuple(SharedPart(f"all_{n}_{n}_0", ShareId(f"s{n}"), is_new=False) for n in range(40))


class World(TreeWorld):
    """Coordination, and what was told the process."""

    def __init__(self, *, gone: tuple[str, ...] = ()) -> None:
        begun = {layout.writing(TABLE, each.share): SHARER.signature for each in PARTS if each.share not in gone}
        nodes = dict.fromkeys((layout.shares(TABLE), layout.parts(REPLICA), layout.host(REPLICA)), b"")
        super().__init__(Tree.of(nodes | begun))
        self.forgotten: tuple[str, ...] = ()
        self.commits = 0

    def own(self) -> fx.Committed:
        """Register and own all parts, as a commit of the executor does."""
        register = tuple(fx.Create(layout.part(REPLICA, each.part)) for each in PARTS)
        procedure: Any = own(SHARER, (fx.Check(layout.host(REPLICA), fx.Version(0)), *register), PARTS)
        ended: fx.Committed = self.run(procedure)
        return ended

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case fx.Commit():
                self.commits += 1
            case ForgetParts(parts):
                self.forgotten += parts
                return None
            case SharesSettled():
                return None
        return super().perform(effect)


def test_a_restarted_replica_registers_any_number_of_parts_that_it_wrote_before() -> None:
    world = World()

    assert isinstance(world.own(), fx.Applied)
    assert world.commits == 2
    assert all(world.tree.exists(SHARER.mark(each)) for each in PARTS)
    assert world.tree.children(layout.all_writing(TABLE)) == ()


@pytest.mark.parametrize("gone", [("s0",), ("s39",), ("s3", "s17")])
def test_all_parts_whose_shares_are_gone_are_put_out_of_the_way_at_once(gone: tuple[str, ...]) -> None:
    world = World(gone=gone)

    assert isinstance(world.own(), fx.Refused)
    assert world.forgotten == tuple(each.part for each in PARTS if each.share in gone)
    assert world.tree.children(layout.parts(REPLICA)) == ()
