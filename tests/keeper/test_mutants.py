"""Each mutant of the core is noticed by the test that it names, which passes without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from replitree.keeper.core.wire import Refused
from tests.keeper.client import Client
from tests.keeper.memory import MemoryKeeper
from tests.keeper.mutants import MUTANTS, Mutant

NOTICED = (AssertionError, ValueError, LookupError, Refused, pytest.fail.Exception)
"""How a test fails: what it asserts, or what it unpacks, is not there."""


def run(test: Callable[..., None], arguments: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test of another file with its fixtures."""
    keeper = MemoryKeeper()
    fixtures: dict[str, Callable[[], object]] = {
        "keeper": lambda: keeper,
        "client": lambda: Client(keeper),
        "other": lambda: Client(keeper),
        "monkeypatch": lambda: monkeypatch,
    }
    names = [name for name in inspect.signature(test).parameters if name not in arguments]
    test(**{name: fixtures[name]() for name in names}, **arguments)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        run(mutant.test, mutant.arguments, context)
    with mutant.patch().mutated(), monkeypatch.context() as context, pytest.raises(NOTICED):
        run(mutant.test, mutant.arguments, context)
