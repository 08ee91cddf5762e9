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
QUORUMS = [{"index": 38, "quorum": 3, "holders": ["r1", "<r3>"]}]
TIERS = [
    {
        "table": "t",
        "replica": "<r1>",
        "tiers": {"local": 3e6, "cache": 1e6, "old": 5e5, "detached": None, "frozen": 2e6, "store": 9e6},
    },
    {
        "table": "events",
        "replica": "r2",
        "tiers": {"local": None, "cache": 0, "old": 0, "detached": 7e5, "frozen": 0, "store": 9e6},
    },
]
GENERATIONS = [
    {
        "generation": 2,
        "entries": 1,
        "first": 13,
        "last": 13,
        "zero": None,
        "confirmed": 13,
        "snapshots": [13],
        "decisions": [],
    },
    {
        "generation": 3,
        "entries": 6,
        "first": 1,
        "last": 6,
        "zero": {"snapshot": "2:13", "predecessor": "2:13"},
        "confirmed": 4,
        "snapshots": [],
        "decisions": [],
    },
    {
        "generation": 5,
        "entries": 0,
        "first": None,
        "last": None,
        "zero": None,
        "confirmed": 0,
        "snapshots": [],
        "decisions": [],
    },
]
TRACE = """I8: <a read> is behind

  1 r1 ins 1 accept    request 1 (token a)                                   -> epoch 1
    r1 ins 1 stage     r1a-1.0: rows of 1
  2 r1 ins 1 commit    check host@1, create log/log- -> no answer
  3 r2       dies; the next process starts
  4 r2 read11 shows     nothing                                              -> the rows of []

log is empty
"""
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "number_line": (LINE, {"entries": entries_of(drawn(5, 40)), "replicas": REPLICAS}),
    "treemap": (MAP, {"entries": entries_of(drawn(5, 40))}),
    "number_line_quorums": (
        LINE.replace("position: 30", "position: 30, quorums"),
        {"entries": entries_of(drawn(5, 40)), "replicas": REPLICAS, "quorums": QUORUMS},
    ),
    "tiers": ("tierBars(rows, 640)", {"rows": TIERS}),
    "generations": ("generationLines(generations, 640)", {"generations": GENERATIONS}),
    "trace": ("traceLanes(readTrace(text)[0], 1, 640)", {"text": TRACE}),
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


def test_why_parts_wait_is_in_words_and_in_the_picture() -> None:
    found = {
        "waits": [
            {"partition": "a", "parts": 5, "chosen": 0, "fan_in": 4.5},
            {"partition": "b", "parts": 60, "chosen": 60, "fan_in": 50},
        ],
        "fan_in_max": 16,
        "fan_in_min": 3,
        "parts_calm": 12,
        "parts_crowded": 50,
    }
    replica = {"name": "r1", "leader": "r1", "merges_paused": False, "running": [], "open_inserts": []}
    calm = evaluate("waitWords(found, status)", found=found, status={"replicas": [replica]})
    assert "fan-in of 4.5: the leader waits for 16" in calm["a"]
    assert "a merge of 60 parts is worth its cost" in calm["b"]
    busy = {"merges_paused": True, "running": [{"kind": "merge", "result": "b_0_9_1"}], "open_inserts": [7]}
    words = evaluate("waitWords(found, status)", found=found, status={"replicas": [{**replica, **busy}]})
    assert "merges are paused on r1, which leads" in words["a"]
    assert "1 merge of this partition runs" in words["b"]
    assert "parts of 1 insert whose quorum is open are not merged" in words["b"]
    alone = evaluate("waitWords(found, status)", found=found, status={"replicas": [{**replica, "leader": None}]})
    assert "no replica leads" in alone["a"]
    drawn_with = (
        "treemap(new PartSet([new Part('a', 0, 0, 0), new Part('a', 1, 1, 0)]), {d3, width: 300, height: 200, waits})"
    )
    assert "the leader waits for 16" in evaluate(drawn_with, waits=calm)


def test_fewer_rectangles_are_drawn_while_the_position_moves() -> None:
    count = """(() => { const parts = new PartSet(Array.from({length: 1500}, (_, at) => new Part('p', at, at, 0, 0, 10, 100)));
      return [500, 2000].map((most) => treemap(parts, {d3, width: 900, height: 380, most}).split('<title>').length - 1); })()"""
    assert evaluate(count) == [1, 1500]
