"""How the processes of a model begin, and end: before all this, after a crash, or when an operator starts one again.

What they do then are stages of `replitree.protocol.program`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from replitree.protocol.program import executor
from replitree.protocol.program.stages import ReportTrouble, Then
from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.replicas import go_on, let_go
from replitree_verify.shared_tables.world import replica_of

Task: TypeAlias = Generator[Any, Any, Then | None]


def running(name: str) -> Task:
    """Go on with a process that began before all this."""
    yield from go_on()
    return Then(executor.make_next, (replica_of(name),))


def restart(name: str) -> Task:
    """Begin a process that settles what is left, and let go of that; the last task of a replica."""
    yield ReportTrouble()
    epoch = yield AwaitActive()
    yield from let_go(name, epoch)
    return None


__all__ = ["restart", "running"]
