"""What `replitree verify list` says of day and night is what pytest does."""

from __future__ import annotations

import re
import subprocess
import sys

from replitree_verify.pins import PINS, is_nightly
from replitree_verify.registry import list_models, list_packed
from replitree_verify.small_models import list_beside
from tests.project.source import ROOT

LISTED = {model["name"]: model["nightly"] for model in (*list_models(), *list_beside(), *list_packed())}


def explored(*options: str) -> set[str]:
    """Return the models that tests explore to their end, of the tests that pytest selects."""
    tests = (ROOT / "tests/verify").rglob("test_*.py")
    files = [file for file in tests if re.search(r"^def test_model_holds\(", file.read_text(), re.MULTILINE)]
    asked = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", *options]
    ran = subprocess.run([*asked, *map(str, files)], cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in re.findall(r"::test_model_holds\[(.+)\]$", ran.stdout, re.MULTILINE) if name in LISTED}


def test_every_model_is_explored_when_the_list_says_it_is() -> None:
    by_day = explored("-m", "not nightly")
    assert by_day == {name for name, is_only_at_night in LISTED.items() if not is_only_at_night}
    assert explored() == set(LISTED)


def test_every_model_is_pinned() -> None:
    assert set(PINS) == {model["name"] for model in (*list_models(), *list_beside())}


def test_a_model_without_a_pin_is_explored_by_no_test() -> None:
    assert is_nightly("one that was begun")


def test_the_model_of_the_readme_is_explored_by_day() -> None:
    shown = re.findall(r"replitree verify explore (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert not any(LISTED[name] for name in shown)
