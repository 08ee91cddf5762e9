"""Growth on paper: the numbers are found again, and the page shows what the last report has measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree_bench.kit.report import Measured
from replitree_bench.shards.growth import WHAT, Growth, fit, growth_of, kinds_of, last_report, page

DOCS = Path(__file__).parents[2] / "docs"
KINDS = [(touched, existing) for existing in (4, 16, 64) for touched in (1, 4, 16, 64) if touched <= existing]


def test_the_numbers_of_a_cost_that_is_such_a_sum_are_found() -> None:
    growth = Growth(7.0, 10.5, 0.25)
    found = fit({kind: growth.at(*kind) for kind in KINDS})
    assert (found.base, found.touched, found.existing) == pytest.approx((7.0, 10.5, 0.25))


def test_what_was_measured_and_what_follows_from_it_are_kept_together() -> None:
    measured: Measured = {
        f"growth_{touched}_in_{existing}_{what}": Growth(2.0, 5.0, 0.0).at(touched, existing)
        for touched, existing in KINDS
        for what in WHAT
    }
    found = growth_of(measured | {"growth_1_in_4_ms": 3.0})
    assert set(found) == {f"growth_{name}_{what}" for name in ("base", "touched", "existing") for what in WHAT}
    assert found["growth_touched_cost"] == pytest.approx(5.0)
    lines = list(page(measured))
    assert "| 16 of 64 shards | 82.0 | 82.0 | 82.0 | 82.0 |" in lines
    assert "| 64 | 7.0 | 322.0 | 7.0 | 322.0 |" in lines


def test_the_page_shows_the_last_report() -> None:
    measured = last_report(DOCS / "results" / "sharded.jsonl")
    shown = (DOCS / "joint-insert-growth.md").read_text().splitlines()
    assert [line for line in page(measured) if line and line not in shown] == []
    # It grows by the shards that it touches, not by those that exist.
    for what in WHAT:
        growth = fit(kinds_of(measured, what))
        assert growth.touched > 10 * abs(growth.existing)
