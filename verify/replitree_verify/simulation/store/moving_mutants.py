"""Broken rules of parts that move, which simulated runs catch: most of the models', and some that only a run shows."""

from __future__ import annotations

from replitree_verify.moving.mutants import MUTANTS
from replitree_verify.patches.patch import read_patches

_OF_MODELS = (
    "swapped-before-marked",
    "removed-before-owned",
    "moved-without-note",
    "moved-unnoted",
    "moved-attempt-kept",
    "moved-unclaimed",
    "claim-kept",
    "let-go-before-home",
    "home-without-note",
    "moved-mark-deleted-alone",
    "moved-and-deleted",
    "moved-never-let-go",
)

MOVING_MUTANTS = {mutant.name: mutant for mutant in MUTANTS if mutant.name in _OF_MODELS} | {
    mutant.name: mutant for mutant in read_patches("simulation")
}
"""By name."""


__all__ = ["MOVING_MUTANTS"]
