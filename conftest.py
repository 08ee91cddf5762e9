"""Doctests are collected from the files that have some; pytest would import and search 1,300 others in each worker.

It imports every package before the modules in it: it would make a package a second time that comes with one of its modules, and
the modules would be attributes of the first one only.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Keep files of tests, and for `--doctest-modules` packages and the files with a prompt."""
    found = yield
    is_package = file_path.name == "__init__.py"
    return [each for each in found if type(each) is pytest.Module or is_package or b">>> " in file_path.read_bytes()]
