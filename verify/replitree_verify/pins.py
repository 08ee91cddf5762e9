"""The size of every model, and when it is explored: ``pins.jsonl`` has a line for each.

A size that changes although nothing in the protocol did is a finding.  The tests take the sizes and their marks from here, and
``replitree verify list`` shows what they do.  A new model needs a line; the first exploration gives its numbers.

The published models are pinned in their tests, each with several limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from replitree.decoding import json_decoder


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file.

    Attributes
    ----------
    model
        Its name.
    states, transitions, depth, quiet
        What the exploration of the whole model counts; some searches count no depth, and some no quiet states.
    run
        What explores it: ``make check``, which ``make test`` and ``make nightly`` include; ``make test``, because it takes
        seconds; or ``make nightly`` alone.
    """

    model: str
    states: int
    transitions: int
    depth: int | None = None
    quiet: int | None = None
    run: Literal["check", "test", "nightly"]


_LINES = Path(__file__).with_suffix(".jsonl").read_bytes()
PINS: Mapping[str, Pin] = {pin.model: pin for pin in json_decoder(Pin).decode_lines(_LINES)}
"""Every pin by the name of its model."""


def is_nightly(model: str) -> bool:
    """Return whether no test explores a model by day: it has to wait for the night, or has no pin and so no test."""
    return model not in PINS or PINS[model].run == "nightly"
