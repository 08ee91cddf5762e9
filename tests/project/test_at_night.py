"""What is left to the night is there."""

from __future__ import annotations

import subprocess
import sys

from tests.at_night import AT_NIGHT, is_at_night
from tests.project.source import ROOT


def test_every_test_that_waits_for_the_night_is_found_by_night() -> None:
    files = sorted({ROOT / test.partition("::")[0] for test in AT_NIGHT})
    asked = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "-m", "nightly"]
    found = subprocess.run([*asked, *map(str, files)], cwd=ROOT, check=True, capture_output=True, text=True)
    by_night = {line for line in found.stdout.splitlines() if is_at_night(line)}
    assert {test.partition("[")[0] for test in by_night} == set(AT_NIGHT)
    whole = {test for test, parameters in AT_NIGHT.items() if not parameters}
    wanted = {f"{test}[{each}]" for test, parameters in AT_NIGHT.items() for each in parameters}
    assert {test for test in by_night if test.partition("[")[0] not in whole} == wanted
