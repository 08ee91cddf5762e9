"""The checker by name: what `replitree verify` calls.

Results are plain values with the keys that the command prints: `states`, `transitions`, `seconds`, `violations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import entry_points
from multiprocessing import get_context
from typing import Any

from xxhash import xxh3_64_hexdigest

from replitree.errors import BadInput
from replitree_verify.engine.checker import Checker
from replitree_verify.engine.explore import Explored
from replitree_verify.engine.explore import explore as explore_model
from replitree_verify.engine.reductions import THEMES
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.mutants.mutant import Mutant
from replitree_verify.pins import PINS, is_nightly
from replitree_verify.rules.invariants import NAMES
from replitree_verify.rules.shares import NAMES as OF_SHARES
from replitree_verify.simulation.runs import Run
from replitree_verify.simulation.simulate import simulate_seed, summed_up
from replitree_verify.simulation.store.store_mutants import MOVING_MUTANTS, SHARED_MUTANTS
from replitree_verify.traces.trace import state_of, trace_of
from replitree_verify.views.histories import history_of
from replitree_verify.world.model import Model

VIEWS_FROM = 20_000
"""From this seed on each seed also goes through a history of materialised views; those before it are as they were recorded."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an exploration or a simulation found.

    Attributes
    ----------
    name, mutant
        What ran.
    states, transitions
        Distinct states and moves between them; for a simulation the events.
    seconds
        How long it took.
    violations
        What is wrong, each with the invariant, and the number of steps or the seed that leads to it.
    depth, quiet
        The longest of the shortest ways; states in which nothing was left to do.
    probes, missing
        The rare branches that were seen (for a simulation: in how many seeds); those that should have been and were not.
    trace
        Shortest counterexample, one line for each effect, and the state at its end.
    digest
        Of a simulation: hash of everything that happened.
    warnings
        Of a packed model: what proves less than it seems to. Of another one: why names count although they were not to.
    cpu_seconds
        Of an exploration of procedures: how long it took of one core, whatever else ran.
    permutations
        Under how many permutations of names states were one.
    """

    name: str
    mutant: str | None
    states: int
    transitions: int
    seconds: float
    violations: tuple[dict[str, Any], ...] = ()
    depth: int = 0
    quiet: int = 0
    probes: dict[str, int] | tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    digest: str = ""
    warnings: tuple[str, ...] = ()
    cpu_seconds: float = 0.0
    permutations: int = 1


def list_models() -> list[dict[str, Any]]:
    """Return of each model: name, description, invariants, the mutants it catches, whether only `make nightly` explores it."""
    return [
        {
            "name": model.name,
            "description": model.description,
            "invariants": [*NAMES, *(OF_SHARES if model.stored else ())],
            "mutants": [mutant.name for mutant in MUTANTS.values() if mutant.model == model.name],
            "nightly": is_nightly(model.name),
        }
        for model in MODELS.values()
    ]


@cache
def _published() -> Any:
    """Return the module that has the published models, or None where it is not installed."""
    # The checker imports no published model: their package offers itself, where it is installed.
    found = tuple(entry_points(group="replitree.verify.models"))
    return found[0].load() if found else None


def list_packed() -> list[dict[str, Any]]:
    """Return the same of each published model, and its limits as they are by default; nothing where they are not installed."""
    published = _published()
    listed: list[dict[str, Any]] = [] if published is None else published.list_packed()
    return listed


def explore_published(
    name: str, mutant: str | None = None, settings: Mapping[str, int] | None = None, *, symmetric: bool = False
) -> Result:
    """Search a published model, or a mutant of it; see `replitree_published.registry`.

    Raises
    ------
    BadInput
        There is no such model, mutant or limit, a limit does not fit, or no published model is installed.
    """
    published = _published()
    if published is None:
        raise BadInput(
            "the published models are in no wheel: clone the repository of replitree and run `make setup` there"
        )
    found: Result = published.explore_published(name, mutant, settings, symmetric=symmetric)
    return found


def find_model(name: str) -> Model:
    """Return a model.

    Raises
    ------
    BadInput
        There is none of this name.
    """
    if name not in MODELS:
        near = ", ".join(get_close_matches(name, MODELS)) or "none has a name like it"
        raise BadInput(f"there is no model {name!r} ({near}): `replitree verify list` shows all {len(MODELS)}")
    return MODELS[name]


def find_mutant(name: str) -> Mutant:
    """Return a mutant.

    Raises
    ------
    BadInput
        There is none of this name.
    """
    if name not in MUTANTS:
        raise BadInput(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")
    return MUTANTS[name]


REDUCTIONS = {"plain": (False, False), "joined": (True, False), "ample": (True, True)}
"""How states are left out: whether steps are joined (`reduction`), and whether ample sets are followed (`ample`)."""

COMPARED_STATES_MAX = 300_000
"""The plain search of a model with more takes too long to compare it by default."""


def compared() -> tuple[str, ...]:
    """Return the names of the models by which reductions are compared (`reductions`)."""
    sizes = {name: pin.states for name, pin in PINS.items() if name in MODELS and name.startswith(THEMES)}
    return tuple(name for name, states in sizes.items() if states <= COMPARED_STATES_MAX)


def explore(name: str, mutant: str | None = None, reduction: str | None = None, *, symmetric: bool = False) -> Result:
    """Explore a model, or a mutant in it.

    Parameters
    ----------
    name, mutant
        Names of the model and of the mutant.
    reduction
        One of `REDUCTIONS`; by default as the model says.
    symmetric
        Whether states that differ by names only are one (`symmetry`).

    Raises
    ------
    BadInput
        There is no such model, mutant or reduction.
    """
    model = find_model(name)
    if reduction is not None and reduction not in REDUCTIONS:
        raise BadInput(f"there is no reduction {reduction!r}; there are {', '.join(REDUCTIONS)}")
    # None: ample sets are followed when the model says so.
    reduce, ample = (True, None) if reduction is None else REDUCTIONS[reduction]
    broken = find_mutant(mutant) if mutant else None
    with broken.performing() if broken else nullcontext():
        stages = broken.stages if broken else None
        explored = explore_model(model, stages, reduce=reduce, ample=ample, symmetric=symmetric)
    # A search that ends at a violation has not seen the rest, and a mutant need not reach what the protocol reaches.
    missing = () if mutant or explored.violation else explored.missing_probes
    return Result(
        name,
        mutant,
        explored.states,
        explored.transitions,
        round(explored.seconds, 3),
        violations_of(explored.violation, len(explored.trace), missing),
        explored.depth,
        len(explored.quiet),
        tuple(sorted(explored.probes)),
        missing,
        counterexample(explored),
        warnings=(f"names are not interchangeable: {explored.asymmetry}",) if explored.asymmetry else (),
        permutations=explored.permutations,
        cpu_seconds=round(explored.cpu_seconds, 3),
    )


def violations_of(violation: str | None, steps: int, missing: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Return what is wrong; that a rare branch was never seen is wrong too, for then the model proves little."""
    if violation:
        return ({"invariant": violation.partition(":")[0], "what": violation, "steps": steps},)
    return tuple({"invariant": "PROBES", "what": f"never seen: {probe}"} for probe in missing)


def counterexample(explored: Explored) -> tuple[str, ...]:
    """Return the lines of the shortest way to the violation, and of the state at its end; none without a violation."""
    if not explored.trace:
        return ()
    look = Checker(explored.space).look(explored.trace[-1][0])
    return (*trace_of(explored.space, explored.trace), "", *state_of(look))


WORKERS_MAX = 256
HOURS_MAX = 24 * 31
SEEDS_AT_ONCE = 4
"""Seeds that a worker process takes at a time."""

ON_STORES = {**SHARED_MUTANTS, **MOVING_MUTANTS}
"""The mutants of tables on an object store, by name: a quarter of the seeds has one."""


def simulate(seed_from: int, seed_to: int, mutant: str | None = None, workers: int = 1, hours: int = 0) -> Result:
    """Simulate the seeds from `seed_from` up to and without `seed_to`.

    Parameters
    ----------
    mutant
        Its name: one of the explorer's, whose tables lie on local disks, or of `ON_STORES`.
    workers
        Processes that share the seeds; what is found, and in which order, does not depend on it.
    hours
        Virtual hours that each run lasts at least; 0: as long as its seed says, which is less than a minute.

    Raises
    ------
    BadInput
        There is no such mutant, `workers` is not from 1 to `WORKERS_MAX`, or `hours` not from 0 to `HOURS_MAX`.
    """
    if not 0 <= hours <= HOURS_MAX:
        raise BadInput(f"{hours} hours: use 0 to {HOURS_MAX}")
    # Before any process starts: an unknown name is an error of the caller, not of a seed.
    if mutant is not None and mutant not in ON_STORES:
        find_mutant(mutant)
    return run_seeds("simulation", mutant, partial(_run_seed, mutant, hours), range(seed_from, seed_to), workers)


def run_seeds(name: str, mutant: str | None, run: Callable[[int], Run], seeds: Sequence[int], workers: int) -> Result:
    """Run seeds, and sum up what they saw.

    Parameters
    ----------
    name, mutant
        Of the result.
    run
        Runs one seed; another process can be sent it.
    seeds
        Which.
    workers
        Processes that run them, 1 to `WORKERS_MAX`.

    Raises
    ------
    BadInput
        There can't be so many workers.
    """
    if not 1 <= workers <= WORKERS_MAX:
        raise BadInput(f"{workers} workers: use 1 to {WORKERS_MAX}")
    if workers == 1:
        simulated = summed_up(map(run, seeds))
    else:
        with get_context("spawn").Pool(workers) as pool:
            simulated = summed_up(pool.imap(run, seeds, SEEDS_AT_ONCE))
    return Result(
        name,
        mutant,
        simulated.events,
        simulated.events,
        round(simulated.seconds, 3),
        tuple({"invariant": what.partition(":")[0], "what": what, "seed": seed} for seed, what in simulated.violations),
        probes=dict(sorted(simulated.probes.items())),
        digest=simulated.digest,
    )


def _run_seed(mutant: str | None, hours: int, seed: int) -> Run:
    """Run one seed, in whatever process."""
    # By its name: what a mutant puts in the place of other functions can't be sent to another process.
    if mutant in ON_STORES:
        with ON_STORES[mutant].mutated():
            return simulate_seed(seed, None, hours)
    broken = find_mutant(mutant) if mutant else None
    with broken.performing() if broken else nullcontext():
        run = simulate_seed(seed, broken.stages if broken else None, hours)
    return run if seed < VIEWS_FROM or mutant else _with_views(run)


def _with_views(run: Run) -> Run:
    """Go through a random history of materialised views, too: the simulated cluster has one table, and they need two."""
    history = history_of(run.seed)
    digest = xxh3_64_hexdigest("\n".join((run.digest, *history.steps)).encode())
    probes = {**run.probes, **{f"views: {each}": 1 for each in history.probes}}
    violation = run.violation or history.violation or None
    return replace(run, digest=digest, events=run.events + len(history.steps), violation=violation, probes=probes)
