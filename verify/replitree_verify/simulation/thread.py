"""A thread of a virtual process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from replitree.protocol.core import effects as fx
from replitree_verify.world.kernel import Conversation
from replitree_verify.world.kernel import Stage as StageFunction


@dataclass(slots=True, eq=False)
class Thread:
    """A thread: its stage, what that was told so far, and the effect that it is at."""

    kind: str
    stage: StageFunction
    arguments: tuple[Any, ...]
    generator: fx.Procedure[Any]
    turns: list[tuple[Any, Any]] = field(default_factory=list)
    effect: Any = None
    waits: bool = False
    in_vain: tuple[Any, Any] = (None, None)
    """The effect that was looked at last, and everything that could have ended its wait then."""
    end: Any = None
    """What its last stage has found out."""

    @property
    def told(self) -> Conversation:
        """The stage so far."""
        return Conversation(self.stage, self.arguments, self.turns)
