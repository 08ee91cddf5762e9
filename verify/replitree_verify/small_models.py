"""The models beside those of the table's protocol, by name: blob groups, tablets, views, sharded tables, the feed, leases.

All have one search, `engine.small_search`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from replitree.errors import BadInput
from replitree_verify.commands.model import DESCRIPTIONS as OF_COMMANDS
from replitree_verify.commands.model import MODELS as COMMANDS
from replitree_verify.commands.search import search as search_commands
from replitree_verify.cuts.model import DESCRIPTIONS as OF_CUTS
from replitree_verify.cuts.model import MODELS as CUTS
from replitree_verify.cuts.search import search as search_cuts
from replitree_verify.engine.small_search import Searched
from replitree_verify.feeds.model import DESCRIPTIONS as OF_FEEDS
from replitree_verify.feeds.model import MODELS as FEEDS
from replitree_verify.feeds.search import search as search_feeds
from replitree_verify.joint.model import DESCRIPTIONS as OF_JOINT_INSERTS
from replitree_verify.joint.model import MODELS as JOINT_INSERTS
from replitree_verify.joint.search import search as search_joint_inserts
from replitree_verify.leases.model import DESCRIPTIONS as OF_LEASES
from replitree_verify.leases.model import MODEL as LEASE
from replitree_verify.leases.model import search as search_lease
from replitree_verify.lone.model import DESCRIPTIONS as OF_LONE_PLACES
from replitree_verify.lone.model import MODELS as LONE_PLACES
from replitree_verify.lone.search import search as search_lone_places
from replitree_verify.moves.model import DESCRIPTIONS as OF_MOVES
from replitree_verify.moves.model import MODELS as MOVES
from replitree_verify.moves.search import search as search_moves
from replitree_verify.openings.invariants import DESCRIPTIONS as OF_OPENINGS
from replitree_verify.openings.models import MODELS as OPENINGS
from replitree_verify.openings.search import search as search_openings
from replitree_verify.patches.patch import Patch, read_patches
from replitree_verify.pins import is_nightly
from replitree_verify.registry import WORKERS_MAX, Result, run_seeds, violations_of
from replitree_verify.sharded.model import DESCRIPTIONS as OF_SHARDED_TABLES
from replitree_verify.sharded.model import MODELS as SHARDED_TABLES
from replitree_verify.sharded.search import search as search_sharded_tables
from replitree_verify.simulation.runs import Run
from replitree_verify.simulation.sharded.sharded_run import ShardedSimulation
from replitree_verify.tablets.models.catalog import MODELS as TABLETS
from replitree_verify.tablets.search import search as search_tablets
from replitree_verify.tablets.simulate import simulate as simulate_histories
from replitree_verify.tags.model import DESCRIPTIONS as OF_TAGS
from replitree_verify.tags.model import MODELS as TAGS
from replitree_verify.tags.search import search as search_tags
from replitree_verify.viewed.model import DESCRIPTIONS as OF_VIEWED_TABLES
from replitree_verify.viewed.model import MODELS as VIEWED_TABLES
from replitree_verify.viewed.search import search as search_viewed_tables
from replitree_verify.views.model import DESCRIPTIONS as OF_VIEWS
from replitree_verify.views.model import MODELS as VIEWS
from replitree_verify.views.search import search as search_views


@dataclass(frozen=True, slots=True)
class Room:
    """Models of one kind: the models, their mutants, the names of what must hold, and the search."""

    models: Sequence[Any]
    mutants: Sequence[Patch]
    invariants: Collection[str]
    search: Callable[[Any, Any], Searched]


TABLET_MUTANTS = read_patches("tablets")

SHARDED_MUTANTS = {
    # Commands and moves have mutants that are called as those of joint inserts.
    f"{room}/{each.name}" if room in ("commands", "moves") else each.name: each
    for room in ("joint", "cuts", "sharded", "commands", "moves")
    for each in read_patches(room)
    # Some change the world of their own room, which a simulated cluster is not.
    if all(hunk.module.startswith("replitree.") for hunk in each.hunks)
}
"""What simulated sharded tables are told apart from, by name."""

ROOMS = (
    Room(OPENINGS, read_patches("openings"), OF_OPENINGS, search_openings),
    Room(LONE_PLACES, read_patches("lone"), OF_LONE_PLACES, search_lone_places),
    Room(
        tuple(TABLETS.values()),
        TABLET_MUTANTS,
        # Every invariant has a mutant, so these are all of them.
        sorted({mutant.invariant for mutant in TABLET_MUTANTS}),
        search_tablets,
    ),
    Room(VIEWS, read_patches("views"), OF_VIEWS, search_views),
    Room(JOINT_INSERTS, read_patches("joint"), OF_JOINT_INSERTS, search_joint_inserts),
    Room(SHARDED_TABLES, read_patches("sharded"), OF_SHARDED_TABLES, search_sharded_tables),
    Room(TAGS, read_patches("tags"), OF_TAGS, search_tags),
    Room(VIEWED_TABLES, read_patches("viewed"), OF_VIEWED_TABLES, search_viewed_tables),
    Room(CUTS, read_patches("cuts"), OF_CUTS, search_cuts),
    Room(COMMANDS, read_patches("commands"), OF_COMMANDS, search_commands),
    Room(MOVES, read_patches("moves"), OF_MOVES, search_moves),
    Room(FEEDS, read_patches("feeds"), OF_FEEDS, search_feeds),
    Room((LEASE,), read_patches("leases"), OF_LEASES, search_lease),
)


def list_beside() -> list[dict[str, Any]]:
    """Return of each model what `registry.list_models` returns of the others."""
    return [
        {
            "name": model.name,
            "description": model.description,
            "invariants": list(room.invariants),
            "mutants": [mutant.name for mutant in room.mutants if mutant.model == model.name],
            "nightly": is_nightly(model.name),
        }
        for room in ROOMS
        for model in room.models
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
    room = next(each for each in ROOMS if any(model.name == name for model in each.models))
    model = next(each for each in room.models if each.name == name)
    began, cpu = time.perf_counter(), time.process_time()
    found = room.search(model, next((each for each in room.mutants if each.name == mutant), None))
    missing = () if mutant or found.violation else tuple(sorted({*getattr(model, "probes", ())} - found.probes))
    return Result(
        name,
        mutant,
        found.states,
        found.transitions,
        round(time.perf_counter() - began, 3),
        violations_of(found.violation, len(found.trace), missing),
        found.depth,
        probes=tuple(sorted(found.probes)),
        missing=missing,
        trace=found.trace,
        cpu_seconds=round(time.process_time() - cpu, 3),
    )


def simulate_sharded(
    first: int, end: int, shards: int, replicas: int = 0, mutant: str | None = None, workers: int = 1
) -> Result:
    """Simulate a sharded table, once for each seed from `first` up to and without `end`.

    Parameters
    ----------
    first, end
        The seeds: those of so many shards are runs of their own.
    shards, replicas
        How many shards, and replicas of each; 0: the seed says, 2 or 3.
    mutant
        One of joint inserts, cuts, sharded tables or (``commands/…``) commands, or None.
    workers
        Processes that share the seeds; what is found does not depend on it.

    Raises
    ------
    BadInput
        There is no such mutant, or `workers` is not from 1 to `WORKERS_MAX`.
    """
    if mutant is not None and mutant not in SHARDED_MUTANTS:
        raise BadInput(f"sharded tables have no mutant {mutant!r}; they have {', '.join(SHARDED_MUTANTS)}")
    run = partial(run_sharded_seed, shards, replicas, mutant)
    return run_seeds("simulation of a sharded table", mutant, run, range(first, end), workers)


def run_sharded_seed(shards: int, replicas: int, mutant: str | None, seed: int) -> Run:
    """Run one seed, in whatever process."""
    with SHARDED_MUTANTS[mutant].mutated() if mutant is not None else nullcontext():
        return ShardedSimulation(seed, shards, replicas).run()


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
    known = [each.name for each in TABLET_MUTANTS]
    if mutant is not None and mutant not in known:
        raise BadInput(f"tablets have no mutant {mutant!r}; they have {', '.join(known)}")
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
