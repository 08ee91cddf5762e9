"""Models as parameters of a test, each marked by when its pin says that it is explored."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from replitree_verify.pins import PINS

MARKS = {
    "check": (),
    "test": (pytest.mark.slow,),
    "nightly": (pytest.mark.nightly, pytest.mark.recorded),
}


def each_of(names: Collection[str]) -> list[Any]:
    """Return models by name, for `pytest.mark.parametrize`."""
    missing = [name for name in names if name not in PINS]
    assert not missing, f"no line in verify/replitree_verify/pins.jsonl: {', '.join(missing)}"
    return [pytest.param(name, marks=MARKS[PINS[name].run], id=name) for name in names]
