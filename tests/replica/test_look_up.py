"""A look-up runs without a stage: it may read and check, and changes nothing."""

from __future__ import annotations

import pytest

from replitree.coordination.memory import MemoryCoordination, SharedTree
from replitree.protocol.core import effects as fx
from replitree.replica.perform.runner import Performer


def test_a_look_up_reads_and_commits_checks() -> None:
    session = MemoryCoordination(SharedTree())
    session.perform(fx.Commit(fx.Create("/t", b"value")))

    def look() -> fx.Procedure[tuple[object, object]]:
        return (yield fx.Get("/t")), (yield fx.Commit(fx.Check("/t", 0)))

    node, committed = Performer(lambda: session, lambda _: None, lambda *_: None).look_up(look())
    assert node == fx.Node(b"value", fx.Version(0))
    assert isinstance(committed, fx.Applied)


@pytest.mark.parametrize(
    "effect",
    [
        fx.Commit(fx.Check("/t", 0), fx.Set("/t", b"other", 0)),
        fx.RemovePart("all_1_1_0"),
        fx.AdoptEpoch(fx.Epoch(2)),
        fx.Answer(fx.RequestId(1), fx.MaybeInserted()),
    ],
)
def test_a_look_up_performs_no_effect_that_changes_something(effect: fx.Effect) -> None:
    performed: list[object] = []
    session = MemoryCoordination(SharedTree())
    session.perform(fx.Commit(fx.Create("/t", b"value")))
    performer = Performer(lambda: session, performed.append, lambda *answer: performed.append(answer))

    def change() -> fx.Procedure[None]:
        yield effect

    with pytest.raises(AssertionError, match="not only a look"):
        performer.look_up(change())
    node = session.perform(fx.Get("/t"))
    assert isinstance(node, fx.Node)
    assert (node.value, performed, performer.epoch.current) == (b"value", [], None)
