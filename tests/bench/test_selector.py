"""The simulation adds up, the peer's selector is its formula, and ours keeps what it promises on the same stream."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from replitree.protocol.core.parts import Part
from replitree.protocol.propose.select_merges import GIB, MIB, Choice, MergeCandidate
from replitree_bench.selector.clickhouse import result_bytes_max, select_as_clickhouse
from replitree_bench.selector.year import (
    COMPRESSED,
    DAY_S,
    STEADY_MACHINE,
    Comparison,
    Insert,
    Machine,
    SimulationResult,
    clickhouse_selector,
    draw_comparison,
    our_selector,
    simulate,
    steady_stream,
    year_stream,
)

SLOTS = 8


def parts_of(sizes: Sequence[int], ages_s: Sequence[int]) -> list[MergeCandidate]:
    return [
        MergeCandidate(Part("all", block, block, 0), 1, size, age_s)
        for block, (size, age_s) in enumerate(zip(sizes, ages_s, strict=True))
    ]


# --- the peer's formula ---------------------------------------------------------------------------------------------------


def between(value: float, low: float, high: float) -> float:
    return min(1.0, max(0.0, (value - low) / (high - low)))


def by_formula(parts: Sequence[MergeCandidate]) -> tuple[int, int] | None:
    """The best stretch, written down as the specification says it, without any haste."""
    fixed, best, found = 5 * MIB, math.inf, None
    for begin in range(len(parts)):
        for end in range(begin + 2, min(len(parts), begin + 100) + 1):
            sizes = [part.bytes for part in parts[begin:end]]
            total, count = sum(sizes), end - begin
            size_share = between(math.log(1 + total), math.log(1 + MIB), math.log(1 + 100 * GIB))
            age_max_s = 3600 + (30 * DAY_S - 3600) * size_share
            age = between(min(part.age_s for part in parts[begin:end]), 10, age_max_s)
            base = 5 - 3 * min(1.0, age + between(len(parts), 10, 50))
            if total > 150 * GIB or (total + fixed * count) / (max(sizes) + fixed) < base:
                continue
            score = (total + fixed * count) / (count - 1.9)
            left = parts[begin - 1].bytes if begin else 0
            if left > 0.9 * total and abs(math.log2(total / left)) < 0.5:
                score *= 0.75 + 0.25 * abs(math.log2(total / left)) / 0.5
            if score < best:
                while end - begin >= 3 and parts[end - 1].bytes < 0.01 * total:
                    end -= 1  # noqa: PLW2901 - as in the original
                best, found = score, (begin, end)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_peer_chooses_by_its_formula(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randrange(2, 40)
    sizes = [int(draw.lognormvariate(15, draw.choice([0.1, 2.0, 4.0]))) + 1 for _ in range(count)]
    parts = parts_of(sizes, [draw.choice([0, 600, 40 * DAY_S]) for _ in sizes])
    choices = select_as_clickhouse(parts, running=0, slots=SLOTS)
    expected = by_formula(parts)
    found = choices[0].sources if choices else None
    assert found == (tuple(part.part for part in parts[slice(*expected)]) if expected else None)


def test_peer_aligns_with_the_part_on_its_left() -> None:
    parts = parts_of([64 * MIB, *[8 * MIB] * 8, *[8 * MIB] * 4], [0] * 13)
    choice = select_as_clickhouse(parts, running=0, slots=SLOTS)[0]
    expected = by_formula(parts)
    assert expected is not None
    assert choice.sources == tuple(part.part for part in parts[slice(*expected)])


def test_peer_merges_less_when_its_pool_fills() -> None:
    assert result_bytes_max(4, SLOTS) == 150 * GIB
    assert result_bytes_max(0, SLOTS) == 0
    limits = [result_bytes_max(free, SLOTS) for free in range(5)]
    assert all(left < right for left, right in pairwise(limits))
    assert select_as_clickhouse(parts_of([MIB] * 20, [0] * 20), running=SLOTS, slots=SLOTS) == ()


# --- the simulation -------------------------------------------------------------------------------------------------------


def never(candidates: Sequence[MergeCandidate], running: Sequence[int]) -> tuple[Choice, ...]:
    return ()


def pairs(candidates: Sequence[MergeCandidate], running: Sequence[int]) -> tuple[Choice, ...]:
    """Merge the first two parts whenever they are free."""
    if len(candidates) < 2 or not (candidates[0].free and candidates[1].free):
        return ()
    first, second = candidates[:2]
    return (Choice((first.part, second.part), 0, first.bytes + second.bytes, 0.0),)


def test_without_merges_every_part_stays() -> None:
    result = simulate(never, steady_stream(100, 1, 10), 100, samples=10)
    assert result.write_amplification == 1
    assert (result.parts_end, result.partition_parts_max, result.inserted_bytes) == (100, 100, 1000)
    assert result.parts_mean == pytest.approx(50.5)
    assert result.series_parts[0] == pytest.approx(5.5)


def test_bytes_of_merges_are_counted_when_they_end() -> None:
    machine = Machine(bytes_per_s=10, merge_s=0, source_s=0, select_every_s=0)
    stream = [Insert(0, "all", 30), Insert(1, "all", 70)]
    before = simulate(pairs, stream, 10.5, machine, samples=1)
    assert (before.merges, before.parts_end) == (0, 2)
    after = simulate(pairs, stream, 12, machine, samples=1)
    assert (after.merges, after.parts_end, after.write_amplification) == (1, 1, 2.0)


def test_same_stream_gives_the_same_result() -> None:
    assert list(year_stream(7, 3)) == list(year_stream(7, 3))
    first, second = (simulate(our_selector(Machine()), year_stream(7, 20), 20 * DAY_S) for _ in range(2))
    assert first == second


def test_stream_ascends_and_goes_to_its_month_or_an_earlier_one() -> None:
    inserts = list(year_stream(1, 70))
    assert all(left.time_s <= right.time_s for left, right in pairwise(inserts))
    assert {each.partition for each in inserts} == {"m01", "m02", "m03"}
    assert all(each.bytes > 0 for each in inserts)


# --- ours beside the peer's -----------------------------------------------------------------------------------------------


def steady(ours: bool, seconds: int = 100) -> SimulationResult:
    selector = our_selector(STEADY_MACHINE) if ours else clickhouse_selector(STEADY_MACHINE)
    return simulate(selector, steady_stream(seconds, 100, 20_000), seconds, STEADY_MACHINE, samples=10)


def test_parts_stay_below_a_hundred_at_a_hundred_inserts_a_second() -> None:
    assert steady(ours=True).partition_parts_max < 100


def test_ours_writes_no_more_than_the_peer_at_a_hundred_inserts_a_second() -> None:
    assert steady(ours=True).write_amplification <= steady(ours=False).write_amplification


def test_rows_that_compress_well_are_not_rewritten_again_and_again() -> None:
    ours, peer = (
        simulate(selector, steady_stream(60, 100, 100), 60, STEADY_MACHINE, samples=10, shape=COMPRESSED)
        for selector in (our_selector(STEADY_MACHINE), clickhouse_selector(STEADY_MACHINE))
    )
    assert ours.write_amplification <= min(12, peer.write_amplification)
    assert ours.partition_parts_max < 100


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_ours_writes_no_more_than_the_peer_in_a_year(seed: int) -> None:
    machine = Machine()
    ours = simulate(our_selector(machine), year_stream(seed), 365 * DAY_S, machine)
    peer = simulate(clickhouse_selector(machine), year_stream(seed), 365 * DAY_S, machine)
    assert ours.write_amplification <= peer.write_amplification
    assert ours.parts_mean <= peer.parts_mean
    assert ours.partition_parts_max < 100


def test_comparison_is_drawn_as_xml() -> None:
    result = simulate(our_selector(Machine()), year_stream(1, 5), 5 * DAY_S, samples=5)
    document = ET.fromstring(draw_comparison(Comparison(*[result] * 6)))
    assert len(document.findall(".//{http://www.w3.org/2000/svg}polyline")) == 6
