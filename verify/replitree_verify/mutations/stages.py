"""How mutants are made of the real stages: changed effects, and functions of the protocol exchanged while a stage runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.protocol.core.effects import Commit, Operation
from replitree_verify.mutations.changes import Asked, Change, changed, find_stage
from replitree_verify.mutations.table import Patches, with_patches
from replitree_verify.world.kernel import Stage as StageFunction


def with_change(new_change: Callable[..., Change], *names: str) -> dict[str, StageFunction]:
    """Return stages, changed."""
    return {name: changed(find_stage(name), new_change) for name in names}


def with_others(patches: Patches, *names: str) -> dict[str, StageFunction]:
    """Return stages, with functions of the protocol exchanged while they run."""
    return {name: with_patches(find_stage(name), patches) for name in names}


def with_both(new_change: Callable[..., Change], patches: Patches, *names: str) -> dict[str, StageFunction]:
    """Return stages, changed and with functions exchanged."""
    return {name: changed(with_patches(find_stage(name), patches), new_change) for name in names}


def leaving_out(is_left_out: Callable[[Operation, Commit], bool]) -> Callable[..., Change]:
    """Return a change that leaves operations out of commits."""

    def new_change(*_: Any) -> Change:
        def change(effect: Any) -> Asked:
            if isinstance(effect, Commit):
                kept = tuple(each for each in effect.operations if not is_left_out(each, effect))
                effect = Commit(*kept) if kept else effect
            return (yield effect)

        return change

    return new_change
