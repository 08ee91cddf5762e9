"""The models beside those of the table's protocol, by name: shared storage, tablets, leases, each with a search of its own.

Shared storage has two kinds: owners of shares alone, and replicas of tables with their disks.
"""

from __future__ import annotations

import time
from typing import Any

from replitree.errors import BadInput
from replitree.verify.leases.model import Model as LeaseModel
from replitree.verify.leases.model import explore as explore_lease
from replitree.verify.leases.mutants import MUTANTS as LEASE_MUTANTS
from replitree.verify.leases.mutants import mutated as mutated_lease
from replitree.verify.registry import Result
from replitree.verify.shared_tables.invariants import DESCRIPTIONS as OF_TABLES
from replitree.verify.shared_tables.models import MODELS as SHARED_TABLES
from replitree.verify.shared_tables.mutants import MUTANTS as SHARED_TABLE_MUTANTS
from replitree.verify.shared_tables.search import search as search_tables
from replitree.verify.sharing.invariants import DESCRIPTIONS
from replitree.verify.sharing.models import MODELS as SHARING
from replitree.verify.sharing.mutants import MUTANTS as SHARING_MUTANTS
from replitree.verify.sharing.search import search
from replitree.verify.tablets.explore import explore as explore_tablet
from replitree.verify.tablets.models import MODELS as TABLETS
from replitree.verify.tablets.mutants import MUTANTS as TABLET_MUTANTS
from replitree.verify.tablets.mutants import mutated

LEASE = "lease"
"""The one model of leases."""


def list_beside() -> list[dict[str, Any]]:
    """Return of each model what `registry.list_models` returns of the others."""
    return [
        *(
            {
                "name": model.name,
                "description": model.description,
                "invariants": list(DESCRIPTIONS),
                "mutants": [mutant.name for mutant in SHARING_MUTANTS if mutant.model == model.name],
                "nightly": False,
            }
            for model in SHARING
        ),
        *(
            {
                "name": table.name,
                "description": table.description,
                "invariants": list(OF_TABLES),
                "mutants": [mutant.name for mutant in SHARED_TABLE_MUTANTS if mutant.model == table.name],
                "nightly": False,
            }
            for table in SHARED_TABLES
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
    return _of_sharing(name, mutant) if any(model.name == name for model in SHARING) else _of_tables(name, mutant)


def _of_sharing(name: str, mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    broken = next((each for each in SHARING_MUTANTS if each.name == mutant), None)
    found = search(next(model for model in SHARING if model.name == name), broken)
    return _result(name, mutant, found.states, found.transitions, found.violation, found.trace, began, cpu)


def _of_tables(name: str, mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    broken = next((each for each in SHARED_TABLE_MUTANTS if each.name == mutant), None)
    found = search_tables(next(model for model in SHARED_TABLES if model.name == name), broken)
    return _result(name, mutant, found.states, found.transitions, found.violation, found.trace, began, cpu)


def _of_tablets(name: str, mutant: str | None) -> Result:
    began, cpu = time.perf_counter(), time.process_time()
    if mutant is None:
        found = explore_tablet(TABLETS[name])
    else:
        with mutated(TABLET_MUTANTS[mutant]):
            found = explore_tablet(TABLETS[name])
    violation = found.violation or ""
    return _result(name, mutant, found.states, found.transitions, violation, found.trace, began, cpu)


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


__all__ = ["explore_beside", "list_beside"]
