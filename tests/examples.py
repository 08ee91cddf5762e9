"""How many examples hypothesis draws for a test whose examples are dear."""

from __future__ import annotations

import hypothesis

GATE = 40
"""Examples of a test that says nothing else, in the gate."""


def examples(in_the_gate: int) -> int:
    """Return so many in the gate, and at night as many times more as other tests draw."""
    return max(1, in_the_gate * hypothesis.settings().max_examples // GATE)
