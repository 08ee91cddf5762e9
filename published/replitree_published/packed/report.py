"""Packed models by name: search, and say what was found.

`violations` holds what is wrong.  `warnings` holds what proves less than it seems to: an action that is never enabled, an
invariant whose antecedent never holds, a property that is eventually so because the first state has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from replitree.errors import BadInput
from replitree_published.packed.catalog import PACKED
from replitree_published.packed.compiling import can_compile
from replitree_published.packed.fair import first_state_fails, unfair_end
from replitree_published.packed.model import Limits, PackedModel, PackedMutant
from replitree_published.packed.plain import search_plainly
from replitree_published.packed.raw import NOBODY, Raw

STATES_MAX = 200_000_000
"""A search that knows so many states ends undecided: 28 bytes for each are 5.6 GB."""

FAIR_STATES_MAX = 30_000
"""What is eventually so is asked of spaces up to this size only."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a search has found.

    Attributes
    ----------
    limits
        The model's constants.
    states, generated, depth
        Different states; the first one and all successors, also those that were known; levels, the first state's included.
    fired, enabled
        Successors by action, and in how many states it was enabled; empty when the search ended at a violation.
    probes
        At which depth each was seen first; those only that were.
    stuck
        How many states have no successor; not counted up to a violation.
    trace
        Shortest way to the violation: action and state.
    """

    name: str
    mutant: str | None
    limits: Mapping[str, int]
    states: int
    generated: int
    depth: int
    seconds: float
    fired: Mapping[str, int]
    enabled: Mapping[str, int]
    probes: Mapping[str, int]
    stuck: int
    violations: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()


def find_packed(name: str) -> PackedModel:
    """Return a packed model.

    Raises
    ------
    BadInput
        There is none of this name.
    """
    if name not in PACKED:
        raise BadInput(f"there is no packed model {name!r}; there are {', '.join(PACKED)}")
    return PACKED[name]


def explore_packed(
    name: str,
    mutant: str | None = None,
    settings: Mapping[str, int] | None = None,
    *,
    symmetric: bool = False,
    plain: bool = False,
    states_max: int = STATES_MAX,
    asked: tuple[str, ...] = (),
) -> Told:
    """Search all states of a packed model, or of a mutant up to the first violation.

    Parameters
    ----------
    settings
        Limits that differ from the model's own, such as ``{"replicas": 5}``; the mutant's come on top.
    symmetric
        Count states that differ by names of replicas only once.  What is eventually so is not asked then.
    plain
        Don't compile, even if numba is there.
    asked
        Names of what is asked instead of what the model, or the mutant, asks by itself.

    Raises
    ------
    BadInput
        There is no such model, mutant or limit, or a limit does not fit.
    """
    model = find_packed(name)
    change = model.mutant(mutant) if mutant else PackedMutant("", "", 0, {})
    limits = model.set_to({**(settings or {}), **change.settings})
    asked = asked or change.asked or model.asked
    if not plain:
        _search(
            model, limits, 0, symmetric=symmetric, plain=False, states_max=2
        )  # compiles: that is no part of the time
    started = time.perf_counter()
    raw = _search(model, limits, model.mask(asked), symmetric=symmetric, plain=plain, states_max=states_max)
    ends = [] if symmetric else list(_ends(raw, limits, asked))
    seconds = time.perf_counter() - started
    wrong = [*_violations(raw), *(violation for violation, _ in ends)]
    last = raw.violating if raw.violating is not None else next((number for _, number in ends), None)
    return Told(
        name,
        mutant,
        limits._asdict(),
        len(raw.states),
        raw.generated,
        raw.depth + int(raw.violating is not None),
        seconds,
        {} if raw.bad else dict(zip(model.actions, raw.fired, strict=False)),
        {} if raw.bad else dict(zip(model.actions, raw.enabled, strict=False)),
        {probe: depth for probe, depth in zip(model.probes, raw.seen, strict=True) if depth},
        0 if raw.bad else raw.stuck[1],
        tuple(wrong),
        () if wrong else tuple(_warnings(raw, limits, asked, symmetric=symmetric)),
        () if last is None else tuple(_trace(raw, limits, last, symmetric=symmetric)),
    )


def _search(model: PackedModel, limits: Limits, wanted: int, *, symmetric: bool, plain: bool, states_max: int) -> Raw:
    if plain or not can_compile():
        return search_plainly(model, limits, wanted, symmetric=symmetric, states_max=states_max)
    from replitree_published.packed.search import search

    return search(model, limits, wanted, symmetric=symmetric, states_max=states_max)


def _violations(raw: Raw) -> Iterator[dict[str, Any]]:
    for number, invariant in enumerate(raw.model.invariants):
        if raw.bad >> number & 1:
            said = f"{invariant.name}: {invariant.what}"
            yield {"invariant": invariant.name, "what": said, "steps": raw.depth + 1}
    if raw.violating is None and raw.stuck[1]:
        yield {"invariant": "STUCK", "what": f"STUCK: nothing is possible in {raw.stuck[1]:,} states"}
    seen = {probe for probe, depth in zip(raw.model.probes, raw.seen, strict=True) if depth}
    for probe in raw.model.required:
        if raw.violating is None and not raw.cut_short and probe not in seen:
            yield {"invariant": "PROBES", "what": f"PROBES: never seen: {probe}"}
    if raw.cut_short:
        yield {"invariant": "LIMIT", "what": f"LIMIT: undecided after {len(raw.states):,} states"}


def _ends(raw: Raw, limits: Limits, asked: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], int]]:
    """Return what is not eventually so, and where a fair behaviour stays away from it."""
    if raw.violating is not None or raw.cut_short or len(raw.states) > FAIR_STATES_MAX:
        return
    for claim in raw.model.eventually:
        if claim.name in asked and first_state_fails(raw.model, limits, claim):
            number = unfair_end(raw.model, limits, claim, [int(state) for state in raw.states])
            if number is not None:
                said = f"{claim.name}: a fair behaviour that comes to the last state stays away from it"
                yield {"invariant": claim.name, "what": said, "steps": len(_way(raw, number))}, number


def _warnings(raw: Raw, limits: Limits, asked: tuple[str, ...], *, symmetric: bool) -> Iterator[str]:
    for action, count in zip(raw.model.actions, raw.enabled, strict=False):
        if not count and action not in raw.model.never:
            yield f"action {action} is never enabled"
    seen = {probe for probe, depth in zip(raw.model.probes, raw.seen, strict=True) if depth}
    for invariant in raw.model.invariants:
        if invariant.name in asked and invariant.needs and invariant.needs not in seen:
            yield f"{invariant.name} says nothing here: never {invariant.needs}"
    for claim in raw.model.eventually:
        if claim.name not in asked:
            continue
        if not first_state_fails(raw.model, limits, claim):
            yield f"{claim.name} says nothing: the first state has it already"
        elif symmetric:
            yield f"{claim.name} was not asked: states stand for others"
        elif len(raw.states) > FAIR_STATES_MAX:
            yield f"{claim.name} was not asked: more than {FAIR_STATES_MAX:,} states"


def _way(raw: Raw, number: int) -> list[int]:
    """Return the numbers of the states from the first one to this."""
    way = [number]
    while raw.parents[way[-1]] != NOBODY:
        way.append(int(raw.parents[way[-1]]))
    return way[::-1]


def _trace(raw: Raw, limits: Limits, number: int, *, symmetric: bool) -> Iterator[str]:
    """Say the way to a state, action by action.  It is walked again, so it is one way also where a state stands for many."""
    model, state = raw.model, raw.model.initial(limits)
    out, by = [0] * model.fan_out, [0] * model.fan_out
    yield f"{1:>3} {'':28} {model.describe(state, limits)}"
    for step, after in enumerate(_way(raw, number)[1:], 2):
        count, goal = model.successors(state, limits, out, by, 0), int(raw.states[after])
        which = next(
            each for each in range(count) if (model.canonical(out[each], limits) if symmetric else out[each]) == goal
        )
        state = out[which]
        action = f"{model.actions[by[which] >> 8]} r{(by[which] >> 4 & 15) + 1}"
        yield f"{step:>3} {action:28} {model.describe(state, limits)}"
