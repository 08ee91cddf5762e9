"""Models that `small_search` searches: what is pinned of a kind of them, and what the fast gate has time for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from replitree_verify.engine.small_search import Declaration, Searched
from replitree_verify.patches.patch import Patch
from replitree_verify.pins import PINS
from tests.verify.pinned import each_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModels:
    """Models of one kind, their mutants, and what is known of them.

    Attributes
    ----------
    models, mutants, search
        What is tested.
    steps
        How long the shortest way is to what each mutant breaks.
    slow_mutants, nightly_mutants
        Mutants for which the fast gate has no time, or the day has none.
    """

    models: Sequence[Any]
    mutants: Sequence[Patch]
    search: Callable[[Any, Any], Searched]
    steps: Mapping[str, int]
    slow_mutants: Collection[str] = ()
    nightly_mutants: Collection[str] = ()

    def __post_init__(self) -> None:
        assert set(self.steps) == {mutant.name for mutant in self.mutants}
        assert {*self.slow_mutants, *self.nightly_mutants} <= set(self.steps)

    def each_model(self) -> list[Any]:
        """Return the names of the models, marked by when they are explored."""
        return each_of([model.name for model in self.models])

    def each_mutant(self) -> list[Any]:
        """Return the names of the mutants, marked when they are slow."""
        marks = dict.fromkeys(self.slow_mutants, pytest.mark.slow)
        marks |= dict.fromkeys(self.nightly_mutants, pytest.mark.nightly)
        return [pytest.param(name, marks=marks.get(name, ())) for name in self.steps]

    def assert_model_holds(self, name: str) -> None:
        """Search a model to its end."""
        model = self._model(name)
        found, pin = self.search(model, None), PINS[name]
        assert (found.violation, found.trace) == ("", ())
        assert (found.states, found.transitions) == (pin.states, pin.transitions)
        assert not isinstance(model, Declaration) or set(model.probes) <= found.probes

    def assert_mutant_is_caught(self, name: str) -> None:
        """Search a mutant's model until the invariant that it is there for notices."""
        mutant = next(each for each in self.mutants if each.name == name)
        found = self.search(self._model(mutant.model), mutant)
        assert found.violation.partition(":")[0] == mutant.invariant
        assert len(found.trace) == self.steps[name]

    def _model(self, name: str) -> Any:
        return next(model for model in self.models if model.name == name)
