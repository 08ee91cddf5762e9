"""Places in procedures: equal histories are one number, and a place can always be found again by replay."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.protocol.program.stages import Stage, Then
from replitree_verify.world import kernel as kernel_module
from replitree_verify.world.kernel import END, Interner, Kernel, ProcedureFailed


def sums(base: int) -> Stage:
    first = yield "first"
    second = yield "second"
    return Then(shows, (base + first + second,))


def shows(total: int) -> Stage:
    yield f"total {total}"
    return None


def fails() -> Stage:
    told = yield "tell"
    assert told, "told nothing"
    return None


def test_equal_histories_are_one_place() -> None:
    kernel = Kernel()
    one, other = kernel.begin(sums, 10), kernel.begin(sums, 10)
    assert one == other
    assert kernel.step(one, 1) == kernel.step(other, 1)
    assert kernel.step(one, 1) != kernel.step(one, 2)


def test_a_stage_that_continues_forgets_how_it_got_there() -> None:
    kernel = Kernel()
    begin = kernel.begin(sums, 0)
    by_one = kernel.step(kernel.step(begin, 1), 4)
    by_other = kernel.step(kernel.step(begin, 3), 2)
    assert by_one == by_other
    assert kernel.effect(by_one) == "total 5"
    assert kernel.step(by_one, None) == END


def test_a_place_is_rebuilt_by_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_module, "LIVE_GENERATORS_MAX", 0)
    kernel = Kernel()
    places = [kernel.step(kernel.begin(sums, 0), first) for first in range(5)]
    totals = [kernel.effect(kernel.step(place, 10)) for place in reversed(places)]
    assert totals == [f"total {14 - n}" for n in range(5)]


def test_a_conversation_tells_effects_and_outcomes() -> None:
    kernel = Kernel()
    told = kernel.conversation(kernel.step(kernel.begin(sums, 7), 1))
    assert (told.stage, told.arguments, told.turns) == (sums, (7,), (("first", 1),))


def test_a_stage_can_be_replaced_by_name() -> None:
    def other(total: int) -> Stage:
        yield f"other {total}"
        return None

    kernel = Kernel({"shows": other})
    place = kernel.step(kernel.step(kernel.begin(sums, 0), 1), 1)
    assert kernel.effect(place) == "other 2"


def test_a_procedure_that_raises_is_told_apart() -> None:
    kernel = Kernel()
    with pytest.raises(ProcedureFailed, match="told nothing"):
        kernel.step(kernel.begin(fails), False)


def test_numbers_are_given_in_the_order_of_first_sight() -> None:
    interner: Interner[Any] = Interner()
    assert [interner.number(value) for value in ("b", "a", "b", ("c",))] == [0, 1, 0, 2]
    assert (interner[2], len(interner)) == (("c",), 3)
