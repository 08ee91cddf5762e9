"""Broken rules of tables on an object store that simulated runs catch: some of the models', and some that only a run shows."""

from __future__ import annotations

from replitree_verify.patches.patch import Patch, find_patch


def _patches(**rooms: str) -> dict[str, Patch]:
    """Return mutants by name; `rooms`: their names, by the rooms of `patches`."""
    return {name: find_patch(room, name) for room, names in rooms.items() for name in names.split()}


SHARED_MUTANTS = _patches(
    stored="""
    put-before-noted attempts-not-given-up given-up-twice taken-over-unmarked marked-afterwards attempt-kept
    share-resurrected mark-deleted-alone objects-deleted-first dropped-with-marks fetched-again-unmarked
    left-with-garbage
    """,
    uploads="upload-believed prepared-believed",
    simulation="""
    detached-deleted-with-its-replica looked-at-one-by-one given-before-owned sources-of-broken-dropped
    new-content-unmarked released-under-known-epoch late-registration-unnoticed
    """,
)
"""Of shares, by name."""

MOVING_MUTANTS = _patches(
    moved="""
    swapped-before-marked removed-before-owned moved-without-note moved-unnoted moved-attempt-kept
    moved-unclaimed claim-kept let-go-before-home home-without-note moved-mark-deleted-alone moved-and-deleted
    moved-never-let-go
    """,
    simulation="claim-given-back-unproved doubt-worked-off notes-forgotten own-claim-kept",
)
"""Of parts that move, by name."""
