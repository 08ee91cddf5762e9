"""The log goes on below a fresh parent, and nobody who reads it notices more than a jump of the index."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, GetEntry, MergeEntry, encode_entry
from replitree.protocol.core.layout import PARENT_ENTRIES, Replica, TablePlace
from replitree.protocol.core.log import search_log
from replitree.protocol.membership.table import (
    TableOutcome,
    create_table,
    join_table,
    leave_table,
    mark_dropped,
    remove_table,
)
from replitree.protocol.propose.propose import NotProposed, Proposed, Proposer, propose, propose_merges
from replitree.protocol.propose.roll_over import NUMBERS_LEFT, is_due, roll_over
from replitree.protocol.state.pull import Pulled, load, pull_log
from replitree.protocol.upkeep.clean_log import Cleaned, Keep, clean_log
from tests.protocol.tree_world import TreeWorld

ROOT = "/t"
LAST = PARENT_ENTRIES - NUMBERS_LEFT


class World(TreeWorld):
    """One table with one replica on a tree in memory, whose first parent has few numbers left."""

    def __init__(self, used: int) -> None:
        self.table = TablePlace(ROOT)
        self.replica = Replica(self.table, "r1")
        super().__init__(Tree())
        self.run(create_table(self.table, b"m", b"c"))
        self.tree._folders[layout.log(self.table)] = (used, {})  # noqa: SLF001 - two billion creations take too long
        self.run(join_table(self.replica))
        self.commit(fx.Create(layout.is_active(self.replica), b"me"))
        pointer = layout.log_pointer(self.replica)
        self.tree._folders[layout.replica_path(self.replica)][1]["log_pointer"] = self._node(str(used))  # noqa: SLF001
        assert self.tree.get(pointer) is not None
        self.epoch = fx.Epoch(0)

    def _node(self, value: str) -> Any:
        tree, _ = Tree().commit((fx.Create("/n", value.encode()),), session=1)
        return tree._folders[""][1]["n"]  # noqa: SLF001

    @override
    def perform(self, effect: Any) -> Any:
        return self.epoch if isinstance(effect, fx.CurrentEpoch | fx.AdoptEpoch) else super().perform(effect)

    def append(self, table: TablePlace, name: str) -> Any:
        """Append an insert as `protocol.insert.insert` does."""
        entry = GetEntry("r1", fx.StagingId(name), (fx.StagedPart("all", 1, 1, "h"),), ())
        return self.commit(
            fx.Check(layout.host(self.replica), 0),
            fx.Check(layout.open_log(table), -1),
            fx.Create(layout.log_create(table), encode_entry(entry), sequential=True),
        )

    def pull_all(self) -> tuple[fx.LogIndex, list[fx.LogIndex]]:
        """Pull to the tail; return the pointer and the indexes of what was pulled."""
        place = self.run(load(self.replica)).place
        pulled: list[fx.LogIndex] = []
        more = True
        while more:
            outcome = self.run(pull_log(self.replica, self.epoch, place, 4))
            assert isinstance(outcome, Pulled)
            place, more = outcome.place, outcome.more
            pulled += [item.index for item in outcome.entries]
        return place.pointer.index, pulled


@pytest.fixture
def world() -> World:
    return World(LAST)


def test_it_is_due_long_before_the_numbers_end() -> None:
    assert not is_due(fx.LogIndex(LAST - 1))
    assert is_due(fx.LogIndex(LAST))
    assert not is_due(fx.LogIndex(PARENT_ENTRIES))
    assert is_due(fx.LogIndex(PARENT_ENTRIES + LAST))


def test_entries_go_on_below_the_next_parent_and_are_pulled_in_order(world: World) -> None:
    first = world.append(world.table, "a").created[0]
    assert layout.index_of(world.table, first) == LAST
    assert world.run(roll_over(world.replica, world.epoch)) is True
    following = TablePlace(ROOT, 1)
    second = world.append(following, "b").created[0]
    assert second == "/t/log.2/log-0000000000"
    assert world.pull_all() == (PARENT_ENTRIES + 1, [LAST, LAST + 1, PARENT_ENTRIES])
    found = world.run(search_log(world.table, fx.LogIndex(LAST), lambda index, _: index if index > LAST + 1 else None))
    assert found == PARENT_ENTRIES


def test_nothing_comes_after_the_last_entry(world: World) -> None:
    assert world.run(roll_over(world.replica, world.epoch)) is True
    late = world.append(world.table, "late")
    assert isinstance(late, fx.Refused)
    assert late.operation == fx.Check(layout.open_log(world.table), -1)
    assert world.run(roll_over(world.replica, world.epoch)) is False
    proposer = Proposer(world.replica, b"me", fx.LogIndex(LAST))
    outcome = world.run(propose(proposer, world.epoch, DropEntry("r1", fx.EntryId("d"), "all")))
    assert isinstance(outcome, NotProposed)
    assert isinstance(
        world.run(propose_merges(world.replica, world.epoch, [MergeEntry("r1", ("all_0_0_0",))])), fx.Refused
    )
    moved = Proposer(Replica(TablePlace(ROOT, 1), "r1"), b"me", fx.LogIndex(PARENT_ENTRIES))
    outcome = world.run(propose(moved, world.epoch, DropEntry("r1", fx.EntryId("d"), "all")))
    assert outcome == Proposed(fx.LogIndex(PARENT_ENTRIES))


def test_a_closed_parent_is_cleaned_to_its_end_and_not_beyond(world: World) -> None:
    for number in range(150):
        assert isinstance(world.append(world.table, f"a{number}"), fx.Applied)
    assert world.run(roll_over(world.replica, world.epoch)) is True
    following, keep = Replica(TablePlace(ROOT, 1), "r1"), Keep(2, 3)
    start = world.tree.get(layout.log(world.table))
    assert start is not None
    world.tree._folders[ROOT][1]["log"] = world._node(f'{{"first":{LAST},"format":1}}')  # noqa: SLF001
    world.pull_all()
    assert world.run(clean_log(following, world.epoch, keep)) == Cleaned(
        fx.LogIndex(LAST)
    )  # distances mean nothing yet
    for number in range(5):
        world.append(following.table, f"b{number}")
    world.pull_all()
    cleaned = world.run(clean_log(following, world.epoch, keep))
    assert isinstance(cleaned, Cleaned)
    assert cleaned.first == PARENT_ENTRIES + 3
    assert world.tree.children(layout.log(world.table)) == ()
    assert len(world.tree.children(layout.log_parent(world.table, 1)) or ()) == 2


def test_a_table_with_two_parents_is_dropped_whole(world: World) -> None:
    world.append(world.table, "a")
    world.run(roll_over(world.replica, world.epoch))
    world.run(mark_dropped(world.table))
    assert world.run(leave_table(world.replica)) is TableOutcome.DONE
    assert world.run(remove_table(world.table)) is TableOutcome.DONE
    assert world.tree.children("/") == ()
