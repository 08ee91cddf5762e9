"""Mutations: small transformations around real stages, each of which breaks one rule.

A mutation changes the effects that a stage asks for, leaves one out, puts it off, adds one, or makes an outcome up.
`replitree_verify.mutants` names them, and the invariant that must notice each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from replitree.protocol.core.run import translate
from replitree.protocol.program import (
    candidate,
    cleaner,
    commands,
    executor,
    inserter,
    keeper,
    leader,
    life,
    mender,
    puller,
    quorum_waiter,
)
from replitree_verify.process import longlife, losing, quorums, restoring, threads, upkeep
from replitree_verify.world.kernel import Stage as StageFunction

Asked: TypeAlias = Generator[Any, Any, Any]
"""What is asked instead of one effect; returns the outcome that the procedure hears."""

Change: TypeAlias = Callable[[Any], Asked]

_ROOMS = (
    life,
    puller,
    executor,
    keeper,
    candidate,
    mender,
    quorum_waiter,
    leader,
    cleaner,
    commands,
    inserter,
    threads,
    longlife,
    upkeep,
    losing,
    quorums,
    restoring,
)


def changed(stage: StageFunction, new_change: Callable[..., Change]) -> StageFunction:
    """Return a stage whose every effect goes through a change.

    Parameters
    ----------
    stage
        A stage of `life`.
    new_change
        Makes the change for one run of the stage, from the stage's arguments.
    """

    def run(*arguments: Any) -> Generator[Any, Any, Any]:
        return (yield from translate(stage(*arguments), new_change(*arguments)))

    return run


def find_stage(name: str) -> StageFunction:
    """Return a stage of a thread, or of a duty, by its name."""
    found: StageFunction = next(getattr(room, name) for room in _ROOMS if hasattr(room, name))
    return found
