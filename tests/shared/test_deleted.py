"""Objects that are deleted from a store come back from copies of replicas; `tests.shared.deleted` runs it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shared.deleted import run


@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("store", "rounds"), [("folder", 8), ("seaweed", 3)])
def test_deleted_objects_come_back_from_copies_and_no_read_fails(tmp_path: Path, store: str, rounds: int) -> None:
    report = run(tmp_path, rounds=rounds, store=store)
    assert report.rounds == rounds
    assert report.objects_deleted > rounds
    assert report.reads >= 4 * rounds


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.timeout(3600)
def test_fifty_rounds_lose_nothing(tmp_path: Path) -> None:
    report = run(tmp_path, rounds=50)
    assert all(report.places.values())
    assert all(report.triggers.values())
