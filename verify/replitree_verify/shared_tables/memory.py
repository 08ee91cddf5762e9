"""What the threads of a replica ask of the memory of their process, and how their stages run on an object store.

A process that must activate is in trouble; the life thread ends that (`replitree.protocol.program.life`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.life_in_store import stages_in_store
from replitree.protocol.program.stages import (
    AskReload,
    AwaitIdle,
    AwaitTrouble,
    BeginLoad,
    CurrentSharer,
    Forget,
    Lack,
    Opened,
    Quieten,
    ReportTrouble,
    Serve,
    TakeOver,
)
from replitree.protocol.shares.sharing import with_shares
from replitree_verify.shared_tables.world import INCARNATION, STORE_ID, Seat, sharer_of
from replitree_verify.world.kernel import Kernel, Running
from replitree_verify.world.kernel import Stage as AnyStage


@dataclass(frozen=True, slots=True)
class AwaitActive:
    """Wait until the process is active.  Outcome: its epoch."""


class KernelInStore(Kernel):
    """Runs the stages of the program as a replica of a table on an object store does."""

    def __init__(self) -> None:
        super().__init__(stages_in_store(STORE_ID, INCARNATION))

    @override
    def _generator(self, stage: AnyStage, arguments: tuple[Any, ...]) -> Running:
        running = super()._generator(stage, arguments)
        of_program = isinstance(arguments[0] if arguments else None, Replica)
        return with_shares(sharer_of(arguments[0].name), running) if of_program else running


def remembered(seat: Seat, name: str, effect: Any) -> tuple[Any, Seat] | None:
    """Return the outcome of an effect on a process's memory, and that memory after it; None for all other effects."""
    match effect:
        case fx.CurrentEpoch() | AwaitActive():
            return seat.epoch, seat
        case CurrentSharer():
            return sharer_of(name), seat
        case Opened(incarnation):
            assert incarnation == INCARNATION, "coordination has it of each replica"
            return None, seat
        case fx.AdoptEpoch(epoch):
            return None, replace(seat, epoch=epoch)
        case Forget():
            return None, replace(seat, epoch=None)
        case Quieten():
            return None, replace(seat, in_trouble=False)
        case ReportTrouble():
            return None, replace(seat, in_trouble=True)
        case TakeOver():  # parts are shown by its own thread alone
            return (), seat
    is_nothing = isinstance(effect, AwaitIdle | BeginLoad | AskReload | Lack | Serve | AwaitTrouble)
    return (None, seat) if is_nothing else None


__all__ = ["AwaitActive", "KernelInStore", "remembered"]
