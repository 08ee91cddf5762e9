"""Invariants that no mutant of today's procedures breaks are shown to notice what they are for."""

from __future__ import annotations

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Applied, Create, Delete, LogIndex
from replitree.protocol.core.part_set import PartSet
from replitree_verify.engine.initial import table_tree
from replitree_verify.rules.invariants import (
    Look,
    log_and_queue_give_the_table,
    no_process_gives_up,
    parts_never_overlap,
    registered_parts_are_on_disk,
)
from replitree_verify.world.disk import Disk
from replitree_verify.world.history import Log
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import Model

MODEL = Model("", "", (("r1", "r1"),), (), {})
R1 = MODEL.replica("r1")


def look_at(tree: Tree, memory: Memory | None = None, disk: Disk | None = None) -> Look:
    return Look(MODEL, Log(tree), {}, {"r1": disk or Disk()}, {"r1": memory or Memory(0, 1)})


def with_parts(*names: str) -> Tree:
    operations = [Create(layout.part(R1, name), b"all:1") for name in names]
    tree, outcome = table_tree(("r1",)).commit(operations, session=1)
    assert isinstance(outcome, Applied)
    return tree


def test_parts_that_share_a_block_are_noticed() -> None:
    assert parts_never_overlap(look_at(with_parts("all_0_0_0", "all_1_1_0", "p_0_0_0"))) is None
    wrong = parts_never_overlap(look_at(with_parts("all_0_1_1", "all_1_2_1")))
    assert wrong == "I7: all_0_1_1 and all_1_2_1 of r1 overlap"
    assert parts_never_overlap(look_at(with_parts("all_0_1_1", "all_1_1_0"))) is None  # a later form covers it


def test_a_registered_part_that_the_log_does_not_have_is_noticed() -> None:
    assert log_and_queue_give_the_table(look_at(table_tree(("r1",)))) is None
    wrong = log_and_queue_give_the_table(look_at(with_parts("all_0_0_0")))
    assert wrong == "I1: r1 will never agree with the log about all_0_0_0"


def test_a_registered_part_with_other_content_on_disk_is_noticed() -> None:
    tree = with_parts("all_0_0_0")
    assert registered_parts_are_on_disk(look_at(tree, disk=Disk().with_part("all_0_0_0", "all:1"))) is None
    assert registered_parts_are_on_disk(look_at(tree, disk=Disk().with_part("all_0_0_0", "all:2"))) is not None


def test_a_process_that_stops_for_no_reason_is_noticed() -> None:
    assert no_process_gives_up(look_at(Tree(), Memory(0, 1, state=State.ACTIVE))) is None
    assert no_process_gives_up(look_at(Tree(), Memory(0, 1, state=State.STOPPED))) is not None
    assert no_process_gives_up(look_at(Tree(), Memory(0, 1, missed=LogIndex(0)))) is not None


def test_a_log_is_read_as_far_as_it_goes() -> None:
    tree, _ = with_parts("all_0_0_0").commit([Delete(layout.part(R1, "all_0_0_0"), ANY_VERSION)], session=1)
    log = Log(tree)
    assert (log.entries, log.parts, log.pointer(R1), log.queue(R1), log.registered(R1)) == ((), PartSet(), 0, (), {})
