"""Nothing is too long to be read at once.  Docstrings do not count: explaining is free."""

from __future__ import annotations

import statistics

from tests.project.source import ROOT, SOURCE, function_lines, functions, modules

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_MEDIAN = 12
FUNCTION_LINES_MOST = 35
"""Nine of ten functions are no longer than this."""

EVERYTHING = modules(SOURCE, ROOT / "tests", ROOT / "tools", ROOT / "bench")


def test_files_are_short() -> None:
    assert {module.place: lines for module in EVERYTHING if (lines := module.lines) > FILE_LINES_MAX} == {}


def test_functions_are_short() -> None:
    everything = ((module, node) for module in EVERYTHING for node in functions(module.tree))
    long = [f"{module.place}:{node.lineno}" for module, node in everything if function_lines(node) > FUNCTION_LINES_MAX]
    assert long == []


def test_most_functions_are_short() -> None:
    lines = sorted(function_lines(node) for module in modules(SOURCE) for node in functions(module.tree))
    assert statistics.median(lines) <= FUNCTION_LINES_MEDIAN
    assert lines[int(len(lines) * 0.9)] <= FUNCTION_LINES_MOST
