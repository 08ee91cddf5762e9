"""Running a procedure to its end: the simplest of all interpreters, for whoever can perform every effect at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from replitree.protocol.effects import Effect, Procedure

T = TypeVar("T")


def run(procedure: Procedure[T], perform: Callable[[Effect], Any]) -> T:
    """Perform each effect and send its outcome, until the procedure returns; then return its value.

    Whatever `perform` raises closes the procedure, as a crash would.
    """
    outcome: object = None
    try:
        while True:
            outcome = perform(procedure.send(outcome))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        procedure.close()
