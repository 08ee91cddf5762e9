"""Nothing is too long to be read at once.  Docstrings do not count: explaining is free."""

from __future__ import annotations

import statistics

from tests.project.source import ROOT, SOURCES, Shape, modules

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_MEDIAN = 12
FUNCTION_LINES_MOST = 35
"""Nine of ten functions are no longer than this."""


def test_files_and_functions_are_short() -> None:
    everything = modules(*SOURCES, ROOT / "tests", ROOT / "tools")
    shapes = {module.place: module.shape for module in everything}
    assert {place: shape.lines for place, shape in shapes.items() if shape.lines > FILE_LINES_MAX} == {}
    functions = [(place, *each) for place, shape in shapes.items() for each in shape.functions]
    assert [each for each in functions if each[-1] > FUNCTION_LINES_MAX] == []
    assert_most_are_short([shapes[module.place] for module in modules(*SOURCES)])


def assert_most_are_short(shapes: list[Shape]) -> None:
    lines = sorted(lines for shape in shapes for _, lines in shape.functions)
    assert statistics.median(lines) <= FUNCTION_LINES_MEDIAN
    assert lines[int(len(lines) * 0.9)] <= FUNCTION_LINES_MOST
