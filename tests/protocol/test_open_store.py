"""A store that a table gets is open when what earlier processes had left is settled, not before."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.program.life_in_store import Reached, StoreNotReached, open_store
from replitree.protocol.program.stages import End, Opened, Stage
from replitree.protocol.shares.share_effects import Sharer

REPLICA = Replica(TablePlace("/t"), "r1")
SHARER = Sharer(REPLICA, "i1")


def answer(effect: Any, given_back: fx.Committed) -> Any:
    """Answer as coordination does in which this replica has left a claim."""
    match effect:
        case fx.Get(path) if path == layout.sharing(REPLICA.table):
            return fx.Node(b"the store", fx.Version(1))
        case fx.Get():
            return fx.Node(b"i1", fx.Version(0))
        case fx.Children(path) if path == layout.sharing(REPLICA.table):
            return (f"{layout.MOVING}p",)
        case fx.Children():
            return ()
        case fx.GetMany():
            return fx.Many((fx.Node(SHARER.signature, fx.Version(0)),))
        case fx.CurrentEpoch():
            return fx.Epoch(3)
        case fx.Commit():
            return given_back
    return None


def performed(stage: Stage, given_back: fx.Committed) -> tuple[list[Any], object]:
    """Run a stage; return its effects and its end."""
    effects, reply = list[Any](), None
    while True:
        try:
            effects.append(stage.send(reply))
        except StopIteration as stop:
            return effects, stop.value
        reply = answer(effects[-1], given_back)


@pytest.mark.parametrize(
    ("given_back", "outcome"), [(fx.Applied(), Reached), (fx.Unknown(), StoreNotReached)], ids=["applied", "unknown"]
)
def test_no_other_thread_may_use_a_store_that_could_not_be_opened(given_back: fx.Committed, outcome: type) -> None:
    effects, end = performed(open_store(REPLICA, fx.Epoch(3), "the store", "i1"), given_back)
    assert isinstance(end, End)
    assert isinstance(end.outcome, outcome)
    opened = [number for number, effect in enumerate(effects) if isinstance(effect, Opened)]
    assert opened == ([len(effects) - 1] if outcome is Reached else [])
