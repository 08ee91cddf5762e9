"""Broken rules of parts that move, which simulated runs catch: most of the models', and some that only a run shows."""

from __future__ import annotations

from replitree_verify.patches.patch import find_patch

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

_OWN = ("claim-given-back-unproved", "doubt-worked-off", "notes-forgotten", "own-claim-kept")

MOVING_MUTANTS = {name: find_patch("moved", name) for name in _OF_MODELS} | {
    name: find_patch("simulation", name) for name in _OWN
}
"""By name."""


__all__ = ["MOVING_MUTANTS"]
