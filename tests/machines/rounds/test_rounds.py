"""A few rounds of take-over with every kind of fault; and the reckoning finds what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines.rounds.grounds import GROUNDS
from tests.machines.rounds.harness import run
from tests.machines.rounds.load import Acknowledged, broken
from tests.storage.objects.seaweed import KEYS

ROUNDS = 4
"""As many as there are kinds of fault; each comes as often as any other."""


@pytest.mark.system
@pytest.mark.parametrize("store", sorted(GROUNDS))
def test_killed_leaders_under_load_while_the_group_suffers_lose_nothing(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    report = run(tmp_path / "run", rounds=ROUNDS, seed=1, say=lambda _: None, store=store)
    assert report.rounds == ROUNDS
    assert report.faults.keys() == set(report.kinds)
    assert "stopped" in report.take_overs_s
    assert {"killed", "leased"} & report.take_overs_s.keys()
    assert report.acknowledged > 40
    assert report.reads > 0
    assert report.searched > 0


def acknowledged(
    number: int, version: int, generation: int, call_s: float = 0.0, answer_s: float = 1.0
) -> Acknowledged:
    """A change that a client heard to be done."""
    return Acknowledged(number, version, generation, call_s, answer_s)


@pytest.mark.parametrize(
    ("changes", "final", "what"),
    [
        ([acknowledged(7, 1, 1), acknowledged(8, 2, 2)], [7, 8], None),
        ([acknowledged(7, 1, 1)], [], "is lost"),
        ([acknowledged(7, 1, 1)], [8, 7], "is lost"),
        ([acknowledged(7, 1, 1)], [7, 7], "twice"),
        ([acknowledged(7, 1, 2), acknowledged(8, 2, 1)], [7, 8], "of a later generation"),
        ([acknowledged(7, 1, 1, 2.0, 3.0), acknowledged(8, 2, 2, 0.0, 1.0)], [7, 8], "a later one had acknowledged"),
    ],
)
def test_what_can_not_be_is_found(changes: list[Acknowledged], final: list[int], what: str | None) -> None:
    found = broken(changes, final)
    assert (found is None) if what is None else (found is not None and what in found)
