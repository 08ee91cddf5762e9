"""A slice of `python -m tests.damage.run`: damage of every kind, no wrong row, reads go on, nothing is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.damage.run import BUCKET_KINDS, REPAIRED_KINDS, live
from tests.damage.tally import Tally

DAMAGES = 30
LIVES_MAX = 10


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["data", "manifest", "sums", "aside"], id="disk", marks=pytest.mark.slow),
        pytest.param(["object", "share man.", "manifest", "data"], id="store", marks=pytest.mark.slow),
        pytest.param(BUCKET_KINDS, id="bucket", marks=pytest.mark.slow),
    ],
)
def test_no_reader_shows_a_wrong_row_and_all_damage_is_repaired_or_reported(tmp_path: Path, kinds: list[str]) -> None:
    tally = Tally()
    for life in range(LIVES_MAX):  # a life ends early when the last good copy of an object was damaged
        if tally.damages < DAMAGES:
            folder = tmp_path / str(life)
            folder.mkdir()
            live(folder, random.Random(1 + life), tally, kinds, DAMAGES)
    assert tally.damages >= DAMAGES
    assert tally.stories == [], tally.table()
    own = [each for each in tally.refusals if each.split(",")[0] in REPAIRED_KINDS]
    assert own == [], "another replica has the rows, so these reads go on there"
