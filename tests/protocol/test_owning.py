"""Owning many parts in one commit: a process that knows nothing of what an earlier one wrote looks once, at all of them."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import Applied, Check, Commit, Committed, Create, Refused, Version
from replitree.protocol.layout import Replica, Table
from replitree.protocol.owning import own
from replitree.protocol.share import ShareId
from replitree.protocol.share_effects import ForgetParts, SharedPart, Sharer, SharesSettled
from tests.protocol.tree_world import TreeWorld

TABLE = Table("/t")
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

    def own(self) -> Committed:
        """Register and own all parts, as a commit of the executor does."""
        register = tuple(Create(layout.part(REPLICA, each.part)) for each in PARTS)
        procedure: Any = own(SHARER, (Check(layout.host(REPLICA), Version(0)), *register), PARTS)
        ended: Committed = self.run(procedure)
        return ended

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case Commit():
                self.commits += 1
            case ForgetParts(parts):
                self.forgotten += parts
                return None
            case SharesSettled():
                return None
        return super().perform(effect)


def test_a_restarted_replica_registers_any_number_of_parts_that_it_wrote_before() -> None:
    world = World()

    assert isinstance(world.own(), Applied)
    assert world.commits == 2
    assert all(world.tree.exists(SHARER.mark(each)) for each in PARTS)
    assert world.tree.children(layout.all_writing(TABLE)) == ()


@pytest.mark.parametrize("gone", [("s0",), ("s39",), ("s3", "s17")])
def test_all_parts_whose_shares_are_gone_are_put_out_of_the_way_at_once(gone: tuple[str, ...]) -> None:
    world = World(gone=gone)

    assert isinstance(world.own(), Refused)
    assert world.forgotten == tuple(each.part for each in PARTS if each.share in gone)
    assert world.tree.children(layout.parts(REPLICA)) == ()
