"""The published models by name: what `replitree_verify.registry` calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replitree_published.packed.catalog import PACKED
from replitree_published.packed.report import explore_packed
from replitree_verify.registry import Result


def list_packed() -> list[dict[str, Any]]:
    """Return of each packed model what `registry.list_models` returns of the others, and its limits as they are by default."""
    return [
        {
            "name": model.name,
            "description": model.description,
            "invariants": list(model.asked),
            "mutants": [mutant.name for mutant in model.mutants],
            "nightly": False,
            "limits": model.limits._asdict(),
        }
        for model in PACKED.values()
    ]


def explore_published(
    name: str, mutant: str | None = None, settings: Mapping[str, int] | None = None, *, symmetric: bool = False
) -> Result:
    """Search a packed model, or a mutant of it; see `packed.report.explore_packed`.

    Raises
    ------
    BadInput
        There is no such model, mutant or limit, or a limit does not fit.
    """
    told = explore_packed(name, mutant, settings, symmetric=symmetric)
    return Result(
        name,
        mutant,
        told.states,
        told.generated,
        round(told.seconds, 3),
        told.violations,
        told.depth,
        told.stuck,
        tuple(told.probes),
        trace=told.trace,
        warnings=told.warnings,
    )
