"""Doctests are collected from the files that have some; pytest would import and search 1,400 others in each worker."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Keep a file of tests, and of `--doctest-modules` the files with a prompt."""
    found = yield
    return [each for each in found if type(each) is pytest.Module or b">>> " in file_path.read_bytes()]
