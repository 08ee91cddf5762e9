"""Broken rules of tables on an object store that simulated runs catch: some of the models', and some that only a run shows."""

from __future__ import annotations

from replitree_verify.patches.patch import find_patch

_OF_MODELS = (
    "put-before-noted",
    "attempts-not-given-up",
    "given-up-twice",
    "taken-over-unmarked",
    "marked-afterwards",
    "attempt-kept",
    "share-resurrected",
    "mark-deleted-alone",
    "objects-deleted-first",
    "dropped-with-marks",
    "fetched-again-unmarked",
)

_OWN = (
    "detached-deleted-with-its-replica",
    "looked-at-one-by-one",
    "given-before-owned",
    "sources-of-broken-dropped",
    "new-content-unmarked",
)

SHARED_MUTANTS = {
    name: find_patch(room, name) for room, names in (("stored", _OF_MODELS), ("simulation", _OWN)) for name in names
}
"""By name."""


__all__ = ["SHARED_MUTANTS"]
