"""The benchmark of merges: it measures a real merge in a process of its own, and cleans up."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import ReplitreeError
from replitree_bench import run as runner
from replitree_bench.selector import year
from replitree_bench.table import merges


def test_a_merge_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    said: list[str] = []
    ballast = bytearray(256 << 20)  # what this process has must not count
    ballast[::4096] = b"x" * len(ballast[::4096])
    measured = merges.measure_kernel(1, folder=tmp_path, part_rows=1000, say=said.append)
    assert set(measured) == {"rows_per_s", "peak_mb"}
    assert measured["rows_per_s"] > 1000
    assert 20 < measured["peak_mb"] < len(ballast) >> 20
    assert said == ["writing the parts to merge", "round 1 of 1"]
    assert list(tmp_path.iterdir()) == []


def test_a_failed_merge_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "make_parts", lambda *_: None)
    with pytest.raises(ReplitreeError, match="a merge failed"):
        merges.measure_kernel(1, folder=tmp_path, say=lambda _: None)


def test_the_report_has_both_the_merge_and_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "measure_kernel", lambda *_, **__: {"rows_per_s": 3e6, "peak_mb": 300.0})
    simulated = {"ours": {"write_amplification": 4.0}, "peer": {"write_amplification": 5.0}}
    monkeypatch.setattr(year, "measure_amplification", lambda: simulated)
    report = runner.run_merges(rounds=1, say=lambda _: None)
    assert report.ours == {"rows_per_s": 3e6, "peak_mb": 300.0, "write_amplification": 4.0}
    assert report.ratio == {"write_amplification": 0.8}
