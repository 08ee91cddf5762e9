"""The zero entry says of each step what the recovery found, exactly, also where the words of its mask meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.tablet.core.entries import LogEntry, ZeroEntry, flaw
from replitree.tablet.core.zero import Verdict, last_step, verdict, zero_of
from replitree.tablet.group.ids import NOTHING, Step
from tests.tablet.building import at, entry_id

PLAIN = LogEntry(NOTHING, Step(0))
SNAPSHOT = LogEntry(NOTHING, Step(0), is_snapshot=True)


@pytest.mark.parametrize(
    ("steps", "prefix", "tail", "mask"),
    [
        ((1, 2, 3), 3, 0, ()),
        ((1, 3), 1, 2, (0b10,)),
        ((2, 3), 0, 3, (0b110,)),
        ((1, 2, 4, 7), 2, 5, (0b10010,)),
        ((1, 64), 1, 63, (1 << 62,)),
        ((1, 65), 1, 64, (1 << 63,)),
        ((1, 66), 1, 65, (0, 1)),
        ((65,), 0, 65, (0, 1)),
    ],
)
def test_prefix_and_mask(steps: tuple[int, ...], prefix: int, tail: int, mask: tuple[int, ...]) -> None:
    zero = zero_of([(at(2, step), PLAIN) for step in steps])
    assert zero == ZeroEntry(NOTHING, at(2, prefix), tail, mask)
    assert last_step(zero) == steps[-1]


def test_nothing_was_there() -> None:
    assert zero_of([]) == ZeroEntry(NOTHING, NOTHING)


def test_prefix_begins_at_a_snapshot() -> None:
    zero = zero_of([(at(1, 4), PLAIN), (at(2, 5), SNAPSHOT), (at(2, 6), PLAIN), (at(2, 8), PLAIN)])
    assert zero == ZeroEntry(at(2, 5), at(2, 6), 2, (0b10,))


def test_last_snapshot_counts_and_generations_without_entries_do_not() -> None:
    zero = zero_of([(at(1, 1), SNAPSHOT), (at(1, 2), PLAIN), (at(4, 1), PLAIN)])
    assert zero == ZeroEntry(at(1, 1), at(4, 1))


@given(st.sets(st.integers(1, 200), min_size=1))
def test_verdicts_are_what_was_accepted(steps: set[int]) -> None:
    zero = zero_of([(at(2, step), PLAIN) for step in sorted(steps)])
    assert flaw(entry_id(3, 0), zero) is None
    present = [step for step in range(1, 300) if verdict(zero, Step(step)) is Verdict.PRESENT]
    assert present == sorted(steps)
    assert verdict(zero, Step(1000)) is Verdict.IGNORED
