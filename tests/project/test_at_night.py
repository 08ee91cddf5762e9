"""What is left to the night, and what to `make test`, is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping

import pytest

from tests.after_the_gate import AFTER_THE_GATE
from tests.at_night import AT_NIGHT, is_among
from tests.project.source import ROOT


@pytest.mark.parametrize(
    ("listed", "marks"),
    [
        pytest.param(AT_NIGHT, "nightly", id="night"),
        pytest.param(AFTER_THE_GATE, "slow and not nightly", id="after the gate", marks=pytest.mark.slow),
    ],
)
def test_every_test_that_waits_is_found_where_it_waits(listed: Mapping[str, Collection[str]], marks: str) -> None:
    files = sorted({ROOT / test.partition("::")[0] for test in listed})
    asked = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "-m", marks]
    ran = subprocess.run([*asked, *map(str, files)], cwd=ROOT, check=True, capture_output=True, text=True)
    found = {line for line in ran.stdout.splitlines() if is_among(line, listed)}
    assert {test.partition("[")[0] for test in found} == set(listed)
    whole = {test for test, parameters in listed.items() if not parameters}
    wanted = {f"{test}[{each}]" for test, parameters in listed.items() for each in parameters}
    assert {test for test in found if test.partition("[")[0] not in whole} == wanted
