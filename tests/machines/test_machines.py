"""The machines answer every command, and a snapshot gives the same state back."""

from __future__ import annotations

import msgspec
import pytest

from replitree.machines.register import NEVER_SET, Cell, CompareAndSet, CompareAndSetResult, Register, Registers
from replitree.machines.sequencer import NumberRange, Sequencer, Sequences, Take


def change(state: Registers, name: str, expected: int, value: str) -> tuple[Registers, CompareAndSetResult]:
    """Give the register a command."""
    state, answer = Register().apply(state, msgspec.msgpack.encode(CompareAndSet(name, expected, value)))
    return state, msgspec.msgpack.decode(answer, type=CompareAndSetResult)


def take(state: Sequences, count: int) -> tuple[Sequences, NumberRange]:
    """Give the sequencer a command."""
    state, answer = Sequencer().apply(state, msgspec.msgpack.encode(Take("s", count)))
    return state, msgspec.msgpack.decode(answer, type=NumberRange)


def test_value_is_replaced_when_its_version_is_the_expected_one() -> None:
    state, outcome = change(Register().begin(), "a", 0, "x")
    assert outcome == CompareAndSetResult(is_done=True, cell=Cell(1, "x"))
    state, outcome = change(state, "a", 1, "y")
    assert outcome.cell == Cell(2, "y")


@pytest.mark.parametrize("expected", [0, 2, -1])
def test_value_stays_when_it_is_not(expected: int) -> None:
    before, _ = change(Register().begin(), "a", 0, "x")
    state, outcome = change(before, "a", expected, "y")
    assert outcome == CompareAndSetResult(is_done=False, cell=Cell(1, "x"))
    assert state == before


def test_value_that_was_never_set_has_version_0() -> None:
    _, outcome = change(Register().begin(), "a", 7, "x")
    assert outcome == CompareAndSetResult(is_done=False, cell=NEVER_SET)


def test_states_are_never_changed() -> None:
    before, _ = change(Register().begin(), "a", 0, "x")
    change(before, "a", 1, "y")
    assert before == {"a": Cell(1, "x")}


def test_numbers_are_given_once() -> None:
    state, first = take(Sequencer().begin(), 3)
    _, second = take(state, 1)
    assert (first, second) == (NumberRange(1, 3), NumberRange(4, 4))


def test_snapshots_give_the_state_back() -> None:
    registers, _ = change(Register().begin(), "a", 0, "x")
    assert Register().restore(Register().snapshot(registers)) == registers
    sequences, _ = take(Sequencer().begin(), 3)
    assert Sequencer().restore(Sequencer().snapshot(sequences)) == sequences
