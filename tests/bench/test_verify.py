"""What is measured of the packed models, and that TLC counts the same states."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import ReplitreeError
from replitree_bench import verify
from replitree_bench.verify import SMALL, Case, Counted, count_ours, count_theirs, find_tlc, run_verify


@pytest.mark.slow
def test_every_model_is_measured() -> None:
    report = run_verify(peer=False, rounds=1, say=print, cases=SMALL)
    assert set(report.ours) == {f"{case.key}_{what}" for case in SMALL for what in ("generated_per_s", "seconds")}
    assert all(value > 0 for value in report.ours.values())
    assert report.peer == {}


@pytest.mark.slow
def test_a_peer_that_counts_otherwise_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(case: Case, *_: object) -> tuple[Counted, str]:
        ours = count_ours(case)
        return Counted(ours.generated + 1, ours.states, 1.0), "2.15"

    monkeypatch.setattr(verify, "find_tlc", lambda: Path("tla2tools.jar"))
    monkeypatch.setattr(verify, "count_theirs", other)
    with pytest.raises(ReplitreeError, match="one of the two models is wrong"):
        run_verify(peer=True, rounds=1, say=print, cases=SMALL[:1])


@pytest.mark.system
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.key)
def test_tlc_counts_the_same_states(case: Case, tmp_path: Path) -> None:
    theirs, version = count_theirs(case, find_tlc(), 1, tmp_path)
    ours = count_ours(case)
    assert (theirs.generated, theirs.states) == (ours.generated, ours.states)
    assert version
