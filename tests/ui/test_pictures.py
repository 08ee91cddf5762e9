"""Pictures are pure functions; golden files show what they draw.  `make golden` rewrites them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.conftest import Golden
from tests.protocol.feed_oracle import drawn
from tests.ui.engine import evaluate
from tests.ui.test_fold import entries_of

REPLICAS = [
    {"name": "r1", "state": "active", "mark": "good", "log_pointer": 40, "index": 40, "queue": 0},
    {"name": "r2", "state": "active", "mark": "good", "log_pointer": 34, "index": 25, "queue": 9},
    {"name": "<r3>", "state": "down", "mark": "lost", "log_pointer": 10, "index": None, "queue": 2},
]
LINE = "numberLine({entries, from: 0, to: 40, replicas, opened: [38], position: 30}, 640)"
MAP = """(() => { const machine = new TimeMachine({index: 0}); machine.append(entries); machine.seek(30);
return treemap(machine.parts, {d3, width: 640, height: 300, by: 'rows'}); })()"""
LOOK = {"r1": ["active", 0, 0], "r2": ["active", 3, 3]}
LOOKS = [
    {
        "at": 100.0 + 2 * number,
        "tables": {"t": {"replicas": LOOK | ({"r2": ["<down>", None, 0]} if number > 5 else {})}},
    }
    for number in range(10)
]
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "number_line": (LINE, {"entries": entries_of(drawn(5, 40)), "replicas": REPLICAS}),
    "treemap": (MAP, {"entries": entries_of(drawn(5, 40))}),
    "strips": ("stateStrips(looks, 't', 640)", {"looks": LOOKS}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_as_in_its_golden_file(name: str, golden: Golden) -> None:
    expression, values = PICTURES[name]
    golden(f"golden/{name}.svg", evaluate(expression, **values).replace("><", ">\n<") + "\n")


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_xml_without_styles_and_scripts(name: str) -> None:
    expression, values = PICTURES[name]
    text = evaluate(expression, **values)
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert not re.search(r"style=|<script|\son\w+=|<style", text)


def test_names_of_others_are_escaped_in_tables() -> None:
    html = evaluate("table('<c>', ['<h>'], [['<img src=x>'], ['\"']])")
    assert "<img" not in html
    assert "&lt;img src=x&gt;" in html
    assert "&lt;c&gt;" in html


def test_at_most_so_many_rectangles_are_drawn_of_a_hundred_thousand_parts() -> None:
    count = """(() => { const parts = new PartSet(Array.from({length: 100000}, (_, at) =>
      new Part(`p${at % many}`, at, at, at % 4, 0, 10, 100)));
      const svg = treemap(parts, {d3, width: 1200, height: 380});
      return [svg.split('<title>').length - 1, parts.length]; })()"""
    for many in (1, 12, 5000, 100_000):
        rectangles, parts = evaluate(count, many=many)
        assert 0 < rectangles <= 2000
        assert parts == 100_000
