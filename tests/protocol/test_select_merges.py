"""Which parts the selector merges: what it never does, for any parts, and what it does, by examples."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.protocol.core.parts import Part, merged_part
from replitree.protocol.propose.select_merges import (
    GIB,
    KIB,
    MIB,
    Choice,
    MergeCandidate,
    SelectorSettings,
    optimize,
    select_merges,
)
from tests.examples import examples

DAY_S = 86_400
SETTINGS = SelectorSettings()
SMALL = SelectorSettings(
    fan_in_max=6,
    fan_in_min=2,
    parts_calm=3,
    parts_crowded=12,
    sources_max=7,
    part_bytes_max=1 * GIB,
    part_overhead_bytes=64 * KIB,
    merges_max=3,
    last_slot_bytes_max=8 * MIB,
)


def table(*partitions: Sequence[int], age_s: int = 0) -> list[MergeCandidate]:
    """Parts of the given sizes, one partition after the other."""
    return [
        MergeCandidate(Part(f"p{number}", block, block, 0), size // 100, size, age_s)
        for number, sizes in enumerate(partitions)
        for block, size in enumerate(sizes)
    ]


def blocks(choices: Sequence[Choice]) -> list[tuple[int, int]]:
    return [(choice.sources[0].block_min, choice.sources[-1].block_max) for choice in choices]


def after(candidates: Sequence[MergeCandidate], choices: Sequence[Choice], passed_s: int = 0) -> list[MergeCandidate]:
    """What is there when the merges are done, some time later."""
    gone = {part for choice in choices for part in choice.sources}
    left = [replace(each, age_s=each.age_s + passed_s) for each in candidates if each.part not in gone]
    made = [MergeCandidate(merged_part(choice.sources), choice.rows, choice.bytes, 0) for choice in choices]
    return sorted(left + made, key=lambda each: each.part)


def days_until_one(candidates: list[MergeCandidate]) -> int:
    """How long it takes until there is one part, when the selector is asked once a day."""
    days = 0
    while len(candidates) > 1:
        candidates = after(candidates, select_merges(candidates), passed_s=DAY_S)
        days += 1
        assert days < 10_000
    return days


@st.composite
def tables(draw: st.DrawFn) -> list[MergeCandidate]:
    """Up to three partitions; sizes of all magnitudes; some parts not free; gaps between blocks."""
    size = st.one_of(st.integers(0, 10 * MIB), st.integers(0, 40).map(lambda power: 1 << power), st.just(100_000))
    found: list[MergeCandidate] = []
    for partition in range(draw(st.integers(1, 3))):
        block = 0
        for _ in range(draw(st.integers(0, 25))):
            block += draw(st.integers(1, 3))
            level = draw(st.integers(0, 5))
            part = Part(f"p{partition}", block, block + level, level)
            block += level
            bytes_ = draw(size)
            age_s = draw(st.sampled_from([0, 10, 3600, 3 * DAY_S, 400 * DAY_S]))
            found.append(MergeCandidate(part, bytes_ // 100, bytes_, age_s, free=draw(st.integers(0, 9)) > 0))
    return found


SOME = hypothesis.settings(max_examples=examples(16))
some_settings = st.sampled_from([SETTINGS, SMALL, replace(SMALL, merges_max=1), replace(SMALL, merges_max=2)])
some_running = st.lists(st.integers(0, 2 * GIB), max_size=4)


# --- what it never does -----------------------------------------------------------------------------------------------------


@SOME
@given(tables(), some_settings)
def test_sources_are_free_neighbours_of_one_partition(
    candidates: list[MergeCandidate], settings: SelectorSettings
) -> None:
    position = {each.part: number for number, each in enumerate(candidates)}
    for choice in select_merges(candidates, settings):
        places = [position[part] for part in choice.sources]
        assert len(places) >= 2
        assert all(right == left + 1 for left, right in pairwise(places))
        assert len({part.partition for part in choice.sources}) == 1
        assert all(candidates[place].free for place in places)


@SOME
@given(tables(), some_settings, some_running)
def test_no_part_is_chosen_twice_and_no_limit_is_passed(
    candidates: list[MergeCandidate], settings: SelectorSettings, running: list[int]
) -> None:
    choices = select_merges(candidates, settings, running=running)
    sources = [part for choice in choices for part in choice.sources]
    assert len(sources) == len(set(sources))
    assert len(choices) <= max(0, settings.merges_max - len(running))
    assert all(len(choice.sources) <= settings.sources_max for choice in choices)
    assert all(choice.bytes <= settings.part_bytes_max for choice in choices)


@SOME
@given(tables(), st.integers(0, 4 * GIB))
def test_results_have_room_on_disk(candidates: list[MergeCandidate], bytes_max: int) -> None:
    assert sum(choice.bytes for choice in select_merges(candidates, SMALL, bytes_max=bytes_max)) <= bytes_max
    assert sum(choice.bytes for choice in optimize(candidates, bytes_max=bytes_max)) <= bytes_max


@SOME
@given(tables(), some_settings)
def test_choices_are_the_sums_of_their_sources(candidates: list[MergeCandidate], settings: SelectorSettings) -> None:
    by_part = {each.part: each for each in candidates}
    for choice in select_merges(candidates, settings):
        assert choice.bytes == sum(by_part[part].bytes for part in choice.sources)
        assert choice.rows == sum(by_part[part].rows for part in choice.sources)


@SOME
@given(tables(), some_settings)
def test_same_parts_give_same_choices(candidates: list[MergeCandidate], settings: SelectorSettings) -> None:
    assert select_merges(candidates, settings) == select_merges(list(candidates), settings)


@SOME
@given(tables())
def test_most_urgent_is_first(candidates: list[MergeCandidate]) -> None:
    choices = select_merges(candidates)
    assert [choice.score for choice in choices] == sorted(choice.score for choice in choices)


@given(st.lists(st.integers(1, 100 * MIB), min_size=2, max_size=80))
def test_merge_of_young_parts_has_the_fan_in_that_was_promised(sizes: list[int]) -> None:
    for choice in select_merges(table(sizes)):
        weights = [sizes[part.block_min] + SETTINGS.part_overhead_bytes for part in choice.sources]
        shares = [weight / sum(weights) for weight in weights]
        entropy = -sum(share * math.log(share) for share in shares)
        assert entropy >= math.log(SETTINGS.fan_in_min) - 1e-9


@SOME
@given(tables(), some_settings)
def test_merging_comes_to_an_end(candidates: list[MergeCandidate], settings: SelectorSettings) -> None:
    rounds = 0
    while choices := select_merges(candidates, settings):
        candidates = after(candidates, choices)
        rounds += 1
    assert rounds <= 120


def test_candidates_out_of_order_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="ascend"):
        select_merges(list(reversed(table([1, 1]))))


# --- what it does -----------------------------------------------------------------------------------------------------------


def test_nothing_to_merge() -> None:
    assert select_merges([]) == ()
    assert select_merges(table([MIB])) == ()
    assert select_merges(table([MIB] * 5)) == ()


def test_small_parts_are_merged_at_once_and_many_together() -> None:
    assert blocks(select_merges(table([100_000] * 20))) == [(0, 19)]
    assert blocks(select_merges(table([100_000] * 100))) == [(0, 99)]


def test_stretch_that_is_too_long_is_cut() -> None:
    assert blocks(select_merges(table([100_000] * 250))) == [(0, 99), (100, 199), (200, 249)]


def test_large_part_at_the_left_is_not_rewritten_for_small_ones() -> None:
    assert blocks(select_merges(table([10 * GIB, *[100_000] * 20]))) == [(1, 20)]


def test_part_of_many_well_compressed_rows_is_not_rewritten_for_a_few() -> None:
    small = [MergeCandidate(Part("p0", block, block, 0), 100, KIB, 0) for block in range(1, 31)]
    large = MergeCandidate(Part("p0", 0, 0, 1), 6_000_000, 36 * KIB, 0)
    assert blocks(select_merges([large, *small])) == [(1, 30)]
    assert blocks(select_merges([large, *small], replace(SETTINGS, row_bytes_min=0))) == [(0, 30)]


def test_size_of_rows_counts_for_the_slots_and_not_for_the_disk() -> None:
    parts = [MergeCandidate(Part("p0", block, block, 0), 10_000_000, KIB, 0) for block in range(20)]
    (choice,) = select_merges(parts, bytes_max=20 * KIB)
    assert SETTINGS.size(choice.rows, choice.bytes) == 200_000_000 * SETTINGS.row_bytes_min
    assert select_merges(parts, bytes_max=20 * KIB - 1) == ()
    assert select_merges(parts, replace(SETTINGS, part_bytes_max=GIB)) == ()


def test_part_that_is_somewhat_larger_is_taken_along() -> None:
    """It would hold up its neighbours for long, and its own share of the work is small."""
    assert blocks(select_merges(table([*[MIB] * 15, 3 * MIB, *[MIB] * 15]))) == [(0, 30)]


def test_part_that_is_not_free_is_not_jumped_over() -> None:
    candidates = table([100_000] * 41)
    candidates[20] = replace(candidates[20], free=False)
    assert blocks(select_merges(candidates)) == [(0, 19), (21, 40)]


def test_more_parts_make_it_less_patient() -> None:
    stairs = [size for power in range(12, 0, -1) for size in [MIB << 2 * power] * 4]
    assert blocks(select_merges(table(stairs[-12:]))) == []
    assert len(select_merges(table(stairs))) >= 1


def test_lonely_parts_are_merged_in_the_end() -> None:
    sizes = [30 * MIB, 20 * MIB, 10 * MIB]
    assert select_merges(table(sizes, age_s=3600)) == ()
    assert blocks(select_merges(table(sizes, age_s=30 * DAY_S))) == [(0, 2)]


def test_finished_partition_becomes_one_part() -> None:
    """Soon when the merge is worth it, and late when little goes for much work."""
    assert days_until_one(table([GIB] * 15)) < 15
    assert 15 < days_until_one(table([20 * GIB, 5 * GIB, 2 * GIB, 300 * MIB, 20 * MIB, MIB])) < 3 * 365


def test_finished_partition_is_merged_sooner_than_one_in_use() -> None:
    sizes = [[300 * MIB] * 5, [300 * MIB] * 5]
    candidates = [
        replace(each, age_s=0) if each.part == Part("p0", 4, 4, 0) else each for each in table(*sizes, age_s=20 * DAY_S)
    ]
    assert [choice.sources[0].partition for choice in select_merges(candidates)] == ["p1"]


def test_late_row_does_not_rewrite_a_finished_partition_at_once() -> None:
    assert select_merges(table([20 * GIB, MIB], age_s=10 * DAY_S)) == ()


def test_finished_partition_stays_below_the_largest_size() -> None:
    assert select_merges(table([100 * GIB, 60 * GIB], age_s=10_000 * DAY_S)) == ()


def test_partitions_have_their_own_merges() -> None:
    choices = select_merges(table([MIB] * 20, [100_000] * 20))
    assert [choice.sources[0].partition for choice in choices] == ["p1", "p0"]


def test_no_merge_begins_when_all_slots_are_taken() -> None:
    assert select_merges(table([100_000] * 20), running=[GIB] * SETTINGS.merges_max) == ()


def test_last_slots_are_left_to_small_merges() -> None:
    large, small = table([10 * GIB] * 16), table([100_000] * 20)
    running = [100 * GIB] * (SETTINGS.merges_max - 1)
    assert select_merges(large, running=running) == ()
    assert len(select_merges(small, running=running)) == 1


def test_small_merges_under_way_do_not_hold_up_a_large_one() -> None:
    running = [MIB] * (SETTINGS.merges_max - 1)
    assert len(select_merges(table([9 * GIB] * 16), running=running)) == 1


def test_small_merges_go_on_while_a_larger_one_has_no_slot() -> None:
    """What would be taken in by a merge that can't begin is merged by itself."""
    sizes = [*[10 * GIB] * 10, *[100_000] * 20]
    running = [100 * GIB] * (SETTINGS.merges_max - 1)
    assert blocks(select_merges(table(sizes, age_s=10_000 * DAY_S), running=running)) == [(10, 29)]


def test_optimize_takes_all_of_each_partition() -> None:
    candidates = table([20 * GIB, MIB], [MIB], [MIB] * 300)
    assert blocks(optimize(candidates)) == [(0, 1), (0, 299)]
    assert blocks(optimize(candidates, "p2")) == [(0, 299)]


def test_optimize_takes_the_longest_stretch_that_is_free() -> None:
    candidates = table([MIB] * 10)
    candidates[3] = replace(candidates[3], free=False)
    assert blocks(optimize(candidates)) == [(4, 9)]
    assert optimize(candidates, final=True) == ()


def test_final_optimize_takes_a_single_part_too() -> None:
    assert blocks(optimize(table([MIB], [MIB] * 3), final=True)) == [(0, 0), (0, 2)]


@pytest.mark.parametrize(
    "size",
    [lambda _: 100_000, lambda block: 1 << block % 37, lambda block: MIB * (block & -block), lambda _: 50 * GIB],
    ids=["equal", "saw", "ruler", "large"],
)
def test_cost_is_linear_in_the_parts(size: object) -> None:
    """Ten times the parts, not much more than ten times the time."""
    assert callable(size)

    def cost_s(parts: int) -> float:
        candidates = table([size(block + 1) for block in range(parts)])
        begins = []
        for _ in range(3):
            begin = time.process_time()
            select_merges(candidates)
            begins.append(time.process_time() - begin)
        return min(begins)

    assert cost_s(10_000) <= 30 * cost_s(1_000) + 0.01
