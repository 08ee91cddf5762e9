"""The models beside those of the table's protocol, by name: shared storage, openings of blob groups, tablets, leases.

Each has a search of its own.

Shared storage has several kinds: owners of shares alone, replicas of tables with their disks, and what these make together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replitree.errors import BadInput
from replitree_verify.engine.small_search import Searched
from replitree_verify.leases.model import Model as LeaseModel
from replitree_verify.leases.model import explore as explore_lease
from replitree_verify.leases.mutants import MUTANTS as LEASE_MUTANTS
from replitree_verify.leases.mutants import mutated as mutated_lease
from replitree_verify.lone.model import DESCRIPTIONS as OF_LONE_PLACES
from replitree_verify.lone.model import MODELS as LONE_PLACES
from replitree_verify.lone.search import search as search_lone_places
from replitree_verify.merging.invariants import DESCRIPTIONS as OF_MERGES
from replitree_verify.merging.models import MODELS as MERGES
from replitree_verify.merging.search import search as search_merges
from replitree_verify.moving.invariants import DESCRIPTIONS as OF_MOVES
from replitree_verify.moving.models import MODELS as MOVES
from replitree_verify.moving.search import search as search_moves
from replitree_verify.openings.invariants import DESCRIPTIONS as OF_OPENINGS
from replitree_verify.openings.models import MODELS as OPENINGS
from replitree_verify.openings.search import search as search_openings
from replitree_verify.patches.patch import Patch, read_patches
from replitree_verify.prepared.models import MODELS as PREPARED
from replitree_verify.prepared.search import search as search_prepared
from replitree_verify.registry import WORKERS_MAX, Result
from replitree_verify.rejoining.invariants import DESCRIPTIONS as OF_REJOINING
from replitree_verify.rejoining.models import MODELS as REJOINING
from replitree_verify.rejoining.search import search as search_rejoining
from replitree_verify.shared_tables.invariants import DESCRIPTIONS as OF_TABLES
from replitree_verify.shared_tables.models import MODELS as SHARED_TABLES
from replitree_verify.shared_tables.search import search as search_tables
from replitree_verify.sharing.invariants import DESCRIPTIONS
from replitree_verify.sharing.models import MODELS as SHARING
from replitree_verify.sharing.search import search
from replitree_verify.tablets.explore import explore as explore_tablet
from replitree_verify.tablets.models.catalog import MODELS as TABLETS
from replitree_verify.tablets.mutants import MUTANTS as TABLET_MUTANTS
from replitree_verify.tablets.simulate import simulate as simulate_histories

LEASE = "lease"
"""The one model of leases."""


@dataclass(frozen=True, slots=True)
class Room:
    """Models that have one small search: the models, their mutants, what must hold, and the search."""

    models: Sequence[Any]
    mutants: Sequence[Patch]
    invariants: Mapping[str, str]
    search: Callable[[Any, Any], Searched]


ROOMS = (
    Room(SHARING, read_patches("sharing"), DESCRIPTIONS, search),
    Room(SHARED_TABLES, read_patches("shared_tables"), OF_TABLES, search_tables),
    Room(MOVES, read_patches("moving"), OF_MOVES, search_moves),
    Room(MERGES, read_patches("merging"), OF_MERGES, search_merges),
    Room(PREPARED, read_patches("prepared"), OF_MERGES, search_prepared),
    Room(REJOINING, read_patches("rejoining"), OF_REJOINING, search_rejoining),
    Room(OPENINGS, read_patches("openings"), OF_OPENINGS, search_openings),
    Room(LONE_PLACES, read_patches("lone"), OF_LONE_PLACES, search_lone_places),
)


def list_beside() -> list[dict[str, Any]]:
    """Return of each model what `registry.list_models` returns of the others."""
    return [
        *(
            {
                "name": model.name,
                "description": model.description,
                "invariants": list(room.invariants),
                "mutants": [mutant.name for mutant in room.mutants if mutant.model == model.name],
                "nightly": False,
            }
            for room in ROOMS
            for model in room.models
        ),
        *(
            {
                "name": model.name,
                "description": model.description,
                "invariants": sorted({mutant.invariant for mutant in TABLET_MUTANTS.values()}),
                "mutants": [mutant.name for mutant in TABLET_MUTANTS.values() if mutant.model == model.name],
                "nightly": model.nightly,
            }
            for model in TABLETS.values()
        ),
        {
            "name": LEASE,
            "description": "a leader with a lease and its successor, with clocks of different speeds",
            "invariants": ["I14"],
            "mutants": list(LEASE_MUTANTS),
            "nightly": False,
        },
    ]


def explore_beside(name: str, mutant: str | None = None) -> Result:
    """Search one of these models, or a mutant in it.

    Raises
    ------
    BadInput
        There is no such model, or no such mutant of it.
    """
    known = {model["name"]: model["mutants"] for model in list_beside()}
    if name not in known:
        raise BadInput(f"there is no model {name!r}; there are {', '.join(known)}")
    if mutant is not None and mutant not in known[name]:
        raise BadInput(f"model {name} has no mutant {mutant!r}; it has {', '.join(known[name]) or 'none'}")
    if name == LEASE:
        return _of_leases(mutant)
    if name in TABLETS:
        return _of_tablets(name, mutant)
    return _of_shares(next(room for room in ROOMS if any(model.name == name for model in room.models)), name, mutant)


def _of_shares(room: Room, name: str, mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    broken = next((each for each in room.mutants if each.name == mutant), None)
    found = room.search(next(model for model in room.models if model.name == name), broken)
    return _result(name, mutant, found.states, found.transitions, found.violation, found.trace, began, cpu)


def _of_tablets(name: str, mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    if mutant is None:
        found = explore_tablet(TABLETS[name])
    else:
        with TABLET_MUTANTS[mutant].mutated():
            found = explore_tablet(TABLETS[name])
    violation = found.violation or ""
    return _result(name, mutant, found.states, found.transitions, violation, found.trace, began, cpu)


def simulate_tablets(first: int, end: int, mutant: str | None = None, workers: int = 1) -> Result:
    """Go through random histories of random models of a tablet, one for each seed from `first` up to and without `end`.

    Parameters
    ----------
    first, end
        The seeds.
    mutant
        One of the tablets', or None.
    workers
        Processes that share the seeds; what is found does not depend on it.

    Raises
    ------
    BadInput
        There is no such mutant, or `workers` is not from 1 to `WORKERS_MAX`.
    """
    if not 1 <= workers <= WORKERS_MAX:
        raise BadInput(f"{workers} workers: use 1 to {WORKERS_MAX}")
    if mutant is not None and mutant not in TABLET_MUTANTS:
        raise BadInput(f"tablets have no mutant {mutant!r}; they have {', '.join(TABLET_MUTANTS)}")
    began = time.perf_counter()
    found = simulate_histories(first, end, mutant, workers)
    return Result(
        "simulation of tablets",
        mutant,
        found.moves,
        found.moves,
        round(time.perf_counter() - began, 3),
        tuple({"invariant": what.partition(":")[0], "what": what, "seed": seed} for seed, what in found.violations),
        probes=dict(sorted(found.probes.items())),
        trace=found.trace,
        digest=f"{found.digest:016x}",
    )


def _of_leases(mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    if mutant is None:
        found = explore_lease(LeaseModel())
    else:
        with mutated_lease(LEASE_MUTANTS[mutant]):
            found = explore_lease(LEASE_MUTANTS[mutant].model)
    violation = f"I14: {found.trace[-1]}" if found.trace else ""
    return _result(LEASE, mutant, found.states, found.moves, violation, found.trace, began, cpu)


def _result(
    name: str,
    mutant: str | None,
    states: int,
    transitions: int,
    violation: str,
    trace: tuple[str, ...],
    began: float,
    cpu: float,
) -> Result:
    invariant = violation.partition(":")[0]
    return Result(
        name,
        mutant,
        states,
        transitions,
        round(time.perf_counter() - began, 3),
        ({"invariant": invariant, "what": violation, "steps": len(trace)},) if violation else (),
        trace=trace,
        cpu_seconds=round(time.process_time() - cpu, 3),
    )


__all__ = ["explore_beside", "list_beside", "simulate_tablets"]
