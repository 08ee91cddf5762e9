"""Running a procedure to its end, for a caller that can perform every effect at once.

The procedures of `protocol` and of `tablet` are generators that yield effects and are sent their outcomes.  Neither of these
packages may import the other, so what runs both stands below them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

E = TypeVar("E")
T = TypeVar("T")


def run(procedure: Generator[E, Any, T], perform: Callable[[E], Any]) -> T:
    """Perform each effect and send its outcome, until the procedure returns; then return its value.

    Parameters
    ----------
    procedure
        What is run.
    perform
        Returns the outcome of an effect.  What it raises ends the procedure as a crash would, and is raised here.
    """
    outcome: object = None
    try:
        while True:
            outcome = perform(procedure.send(outcome))
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        procedure.close()
