"""Stages that run with functions of the protocol exchanged."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeAlias

from replitree_verify.mutations.changes import find_stage
from replitree_verify.world.kernel import Stage as StageFunction

Patches: TypeAlias = Mapping[tuple[ModuleType | type, str], Any]


def patched(patches: Patches, *names: str) -> dict[str, StageFunction]:
    """Return the stages with these names, with functions of the protocol exchanged while they run."""
    return {name: with_patches(find_stage(name), patches) for name in names}


def with_patches(stage: StageFunction, patches: Patches) -> StageFunction:
    """Return a stage, with functions of the protocol exchanged while it runs."""

    def run(*arguments: Any) -> Generator[Any, Any, Any]:
        procedure = stage(*arguments)
        outcome: Any = None
        while True:
            try:
                with _exchanged(patches):
                    effect = procedure.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = yield effect

    return run


@contextmanager
def _exchanged(patches: Patches) -> Iterator[None]:
    before = {key: getattr(*key) for key in patches}
    for (module, name), function in patches.items():
        setattr(module, name, function)
    try:
        yield
    finally:
        for (module, name), function in before.items():
            setattr(module, name, function)
