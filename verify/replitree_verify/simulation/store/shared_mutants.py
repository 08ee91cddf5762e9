"""Broken rules of tables on an object store that simulated runs catch: some of the models', and some that only a run shows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from replitree.protocol.core.layout import Replica
from replitree.protocol.membership import table
from replitree.protocol.program import life_in_store
from replitree.protocol.shares import owning
from replitree.protocol.shares.share import DeleteObjects
from replitree_verify.engine.small_search import Mutant
from replitree_verify.shared_tables import mutants as of_models
from replitree_verify.simulation.store import shared_disk, shared_process
from replitree_verify.simulation.store.shared_disk import SharedDisk
from replitree_verify.simulation.store.shared_process import ListDetached

_OF_MODELS = (
    "put-before-noted",
    "attempts-not-given-up",
    "given-up-twice",
    "taken-over-unmarked",
    "marked-afterwards",
    "attempt-kept",
    "share-resurrected",
    "fetched-again-unmarked",
    "mark-deleted-alone",
    "objects-deleted-first",
    "dropped-with-marks",
)


def _looks_at_nothing(_sharer: Any, _parts: Any) -> Generator[Any, Any, dict[Any, Any]]:
    yield from ()
    return {}


FEW_ATTEMPTS = {(owning, "ATTEMPTS_MAX"): 3}
"""Fewer tries than the product has: a run in which a restarted replica has more than eight parts of its own is too rare."""


def _gives_always(_source: Any, _part: str) -> bool:
    return True


def _detached_in_its_share(disk: SharedDisk, parts: tuple[str, ...]) -> SharedDisk:
    """Keep no rows aside but the manifest, which names the share, and the mark on that."""
    shared = (each for each in disk.shares if each[0] in parts)
    return replace(_KEPT_ASIDE(disk, parts), detached=tuple(sorted({*disk.detached, *shared})))


def _deleting_what_is_detached(replica: Replica, *, shared: bool) -> Generator[Any, Any, Any]:
    """Delete the objects of what a dropped replica has detached, without a look at who else owns them."""
    outcome = yield from _FINISH_LEAVING(replica, shared=shared)
    for share in (yield ListDetached()):
        yield DeleteObjects(share)
    return outcome


_KEPT_ASIDE, _FINISH_LEAVING = shared_disk.kept_aside, table.finish_leaving
_OWN = (
    Mutant(
        "detached-deleted-with-its-replica",
        "what is detached has no rows of its own, and a replica that is dropped deletes what it has detached",
        "simulation",
        "WHOLE",
        {
            (shared_disk, "kept_aside"): _detached_in_its_share,
            (life_in_store, "finish_leaving"): _deleting_what_is_detached,
        },
    ),
    Mutant(
        "looked-at-one-by-one",
        "of the parts of a commit one more is looked at for each try: a restarted replica never registers many of its own",
        "simulation",
        "CONVERGES",
        {(owning, "_look_at_all"): _looks_at_nothing, **FEW_ATTEMPTS},
    ),
    Mutant(
        "given-before-owned",
        "a replica gives parts away that it does not own yet: two that need each other's in one commit wait for ever",
        "simulation",
        "CONVERGES",
        {(shared_process, "gives_share"): _gives_always},
    ),
)

SHARED_MUTANTS = {mutant.name: mutant for mutant in (*map(of_models.find_mutant, _OF_MODELS), *_OWN)}
"""By name."""


__all__ = ["FEW_ATTEMPTS", "SHARED_MUTANTS"]
