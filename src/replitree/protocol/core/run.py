"""Running a procedure on other effects than those that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")


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
