"""The execution of a rewrite whose results a later entry removes."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import RewriteEntry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.execute.rewrite import execute_rewrite
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import Executed, Postponed, View
from tests.protocol.tree_world import TreeWorld

R1 = Replica(TablePlace("/t"), "r1")
SOURCE, NEW = parse_part("p_0_0_0"), parse_part("q_1_1_0")
RESULT = parse_part("p_0_0_0_1")
INDEX = fx.LogIndex(1)
MOVES = Queued(
    INDEX,
    RewriteEntry(
        "r2",
        fx.EntryId("w"),
        fx.StagingId("s"),
        (fx.StagedResult(SOURCE.name, 0, 0, "h"),),
        (fx.StagedPart("q", 1, 1, "h"),),
    ),
    Change((SOURCE,), (RESULT, NEW)),
)


class Disk(TreeWorld):
    """A replica that has pulled a rewrite, and whose disk keeps parts aside, or fails."""

    def __init__(self, *, fails: bool) -> None:
        nodes = {layout.host(R1): b"", layout.part(R1, SOURCE.name): b"h", layout.queue_entry(R1, INDEX): b""}
        super().__init__(Tree.of(nodes))
        self.fails = fails
        self.kept: tuple[str, ...] = ()
        self.shown: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @override
    def perform(self, effect: Any) -> Any:
        match effect:
            case fx.FetchMany(fetches):
                return tuple(fx.Fetched(fetch.part) for fetch in fetches)
            case fx.Detach(parts):
                if self.fails:
                    return fx.StoreFailed("the disk is full")
                self.kept = parts
                return None
            case fx.Reveal(shown, gone):
                self.shown = (shown, gone)
                return None
        return super().perform(effect)

    def execute(self, *, is_detached: bool) -> Any:
        """Execute the rewrite, which moves all rows of p to q; a drop of p was pulled since."""
        detached = PartSet.of((RESULT,)) if is_detached else PartSet()
        view = View(PartSet.of((NEW,)), PartSet.of((SOURCE,)), kept=detached, detached=detached)
        return self.run(execute_rewrite(R1, fx.Epoch(0), view, MOVES))


@pytest.mark.parametrize("is_detached", [False, True])
def test_the_source_of_a_result_that_is_dropped_goes_with_the_commit_that_moves_its_rows(*, is_detached: bool) -> None:
    disk = Disk(fails=False)
    assert disk.execute(is_detached=is_detached) == Executed((INDEX,))
    assert disk.tree.children(layout.parts(R1)) == (NEW.name,)
    assert disk.shown == ((NEW.name,), (SOURCE.name,))
    assert disk.kept == ((SOURCE.name,) if is_detached else ())


def test_the_rewrite_waits_until_the_source_that_is_to_be_detached_is_kept_aside() -> None:
    disk = Disk(fails=True)
    assert disk.execute(is_detached=True) == Executed((), (Postponed(INDEX, "the disk is full"),))
    assert disk.tree.children(layout.parts(R1)) == (SOURCE.name,)
