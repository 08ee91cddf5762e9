"""The benchmark of SQL: its queries, what it compares, and what it reports."""

from __future__ import annotations

import re

from replitree_bench.table.sql import KEYS, WARM_UPS, Times, comparable, queries


def test_there_are_22_queries_on_the_eight_tables() -> None:
    found = queries()
    assert list(found) == [f"q{number:02}" for number in range(1, 23)]
    words = {word for text in found.values() for word in re.findall(r"\w+", text)}
    assert set(KEYS) <= words


def test_floats_are_compared_to_nine_digits_and_all_else_exactly() -> None:
    assert comparable(0.1 + 0.2) == comparable(0.3)
    assert comparable(1.00000002) != comparable(1.00000001)
    assert [comparable(value) for value in (None, 7, "x")] == [None, 7, "x"]


def test_medians_leave_the_warm_ups_out() -> None:
    times = Times()
    for plan_s, whole_s in [(9.0, 90.0)] * WARM_UPS + [(1.0, 10.0), (2.0, 20.0), (3.0, 60.0)]:
        times.add("q01", plan_s, whole_s)
    times.add("q02", 9.0, 90.0)
    times.add("q02", 0.5, 5.0)
    measured = times.measured()
    assert "frames_s" not in measured
    assert (measured["plan_s"], measured["total_s"], measured["plan_worst_ms"]) == (2.5, 25.0, 2000.0)
    assert (measured["q01_s"], measured["q02_s"]) == (20.0, 5.0)


def test_the_query_whose_planning_takes_longest_beside_the_peers_counts() -> None:
    ours, plain = Times(), Times()
    for name, mine, theirs in [("q01", 0.5, 0.25), ("q02", 2.0, 1.9375)]:
        for _ in range(WARM_UPS + 1):
            ours.add(name, mine, 10.0)
            plain.add(name, theirs, 10.0)
    assert ours.plan_more_worst_ms(plain) == 250.0
    assert plain.plan_more_worst_ms(ours) == -62.5
