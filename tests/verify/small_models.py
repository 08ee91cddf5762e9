"""Models that `small_search` searches: what is pinned of a kind of them, and what the fast gate has time for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from replitree_verify.engine.small_search import Declaration, Searched
from replitree_verify.patches.patch import Patch


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModels:
    """Models of one kind, their mutants, and what is known of them.

    Attributes
    ----------
    models, mutants, search
        What is tested.
    pins
        States and transitions of each model.
    steps
        How long the shortest way is to what each mutant breaks.
    slow_states, nightly_states
        Models with more are slow, or for the night.
    slow_mutants, nightly_mutants
        Mutants for which the fast gate has no time, or the day has none.
    """

    models: Sequence[Any]
    mutants: Sequence[Patch]
    search: Callable[[Any, Any], Searched]
    pins: Mapping[str, tuple[int, int]]
    steps: Mapping[str, int]
    slow_states: int
    nightly_states: int
    slow_mutants: Collection[str] = ()
    nightly_mutants: Collection[str] = ()

    def __post_init__(self) -> None:
        assert set(self.pins) == {model.name for model in self.models}
        assert set(self.steps) == {mutant.name for mutant in self.mutants}
        at_night = {name for name, (states, _) in self.pins.items() if states > self.nightly_states}
        declared = {model.name for model in self.models if isinstance(model, Declaration) and model.nightly}
        assert declared <= at_night
        assert declared == at_night or not any(isinstance(model, Declaration) for model in self.models)
        assert {*self.slow_mutants, *self.nightly_mutants} <= set(self.steps)

    def each_model(self) -> list[Any]:
        """Return the names of the models, marked by their size."""
        return [pytest.param(name, marks=self._marks(states)) for name, (states, _) in self.pins.items()]

    def each_mutant(self) -> list[Any]:
        """Return the names of the mutants, marked when they are slow."""
        marks = dict.fromkeys(self.slow_mutants, pytest.mark.slow)
        marks |= dict.fromkeys(self.nightly_mutants, pytest.mark.nightly)
        return [pytest.param(name, marks=marks.get(name, ())) for name in self.steps]

    def assert_model_holds(self, name: str) -> None:
        """Search a model to its end."""
        model = self._model(name)
        found = self.search(model, None)
        assert (found.violation, found.trace) == ("", ())
        assert (found.states, found.transitions) == self.pins[name]
        assert not isinstance(model, Declaration) or set(model.probes) <= found.probes

    def assert_mutant_is_caught(self, name: str) -> None:
        """Search a mutant's model until the invariant that it is there for notices."""
        mutant = next(each for each in self.mutants if each.name == name)
        found = self.search(self._model(mutant.model), mutant)
        assert found.violation.partition(":")[0] == mutant.invariant
        assert len(found.trace) == self.steps[name]

    def _model(self, name: str) -> Any:
        return next(model for model in self.models if model.name == name)

    def _marks(self, states: int) -> list[pytest.MarkDecorator]:
        if states > self.nightly_states:
            return [pytest.mark.nightly]
        return [pytest.mark.slow] if states > self.slow_states else []
