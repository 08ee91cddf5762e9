"""Which later form takes the place of a broken part whose lost sources were made empty."""

from __future__ import annotations

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import LostEntry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.execute.execute_lost import later_forms
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import View


def parts(*names: str) -> PartSet:
    return PartSet.of([parse_part(name) for name in names])


COVER, LATER = parse_part("p_2_3_1"), parse_part("p_0_3_2")
LOSS = Queued(LogIndex(7), LostEntry("r3", "p_2_2_0", "p:", 0), Change((LATER,), (LATER,)))


def forms(*kept: str, detached: tuple[str, ...] = ()) -> tuple[Part, ...]:
    """The later forms of a broken part on a replica that has not made the merge of all four blocks."""
    view = View(parts("p_0_3_2"), parts("p_0_1_1", "p_2_3_1"), kept=parts(*kept), detached=parts(*detached))
    return later_forms(view, LOSS, COVER)


def test_two_lost_sources_of_a_broken_part_do_not_wait_for_each_other() -> None:
    assert forms("p_2_2_0", "p_3_3_0") == (LATER,)


def test_a_lost_part_beside_the_broken_one_is_made_empty_first() -> None:
    assert forms("p_1_1_0", "p_2_2_0") == ()


def test_a_detach_keeps_its_part_aside_first() -> None:
    assert forms("p_2_2_0", "p_3_3_0", detached=("p_3_3_0",)) == ()
