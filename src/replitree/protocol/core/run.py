"""Running a procedure to its end, for a caller that can perform every effect at once, or replaces effects by others."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from replitree.protocol.core.effects import Effect, Procedure

T = TypeVar("T")


def run(procedure: Procedure[T], perform: Callable[[Effect], Any]) -> T:
    """Perform each effect and send its outcome, until the procedure returns; then return its value."""
    outcome: object = None
    try:
        while True:
            outcome = perform(procedure.send(outcome))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        # An error of `perform` ends the procedure as a crash would.
        procedure.close()


def translate(
    procedure: Generator[Any, Any, T], each: Callable[[Any], Generator[Any, Any, object]]
) -> Generator[Any, Any, T]:
    """Run a procedure on other effects, and return its value.

    Parameters
    ----------
    procedure
        What is run.  Whatever ends this generator closes it, as a crash would.
    each
        What is asked for in the place of one effect; it returns the outcome that the procedure hears.
    """
    outcome: object = None
    try:
        while True:
            outcome = yield from each(procedure.send(outcome))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        procedure.close()
