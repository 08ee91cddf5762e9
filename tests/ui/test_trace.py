"""Traces of the checker as the page reads and draws them."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from replitree_verify.registry import explore
from replitree_verify.small_models import explore_beside
from tests.project.source import ROOT
from tests.ui.engine import evaluate

READ = "readTrace(text)"
GOLDEN = sorted((ROOT / "tests" / "verify" / "golden").glob("counterexample_*.txt"))


def read(text: str) -> list[dict[str, Any]]:
    found = evaluate(READ, text=text)
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def caught() -> dict[str, Any]:
    """What `replitree verify explore --json` writes of a mutant of the protocol."""
    plain = msgspec.to_builtins(explore("read_linearizable", "read-without-sync"), enc_hook=str)
    assert isinstance(plain, dict)
    return plain


def test_steps_actors_and_the_violation_are_those_of_the_checker(caught: dict[str, Any]) -> None:
    (found,) = read(json.dumps(caught))
    (violation,) = caught["violations"]
    assert found["violations"] == [{**violation, "seed": None}]
    assert len(found["steps"]) == violation["steps"]
    assert found["actors"] == ["r1", "r2"]
    lines = list(caught["trace"])
    numbered = lines[: lines.index("")]
    assert sum(len(step["lines"]) for step in found["steps"]) == len(numbered)
    assert found["end"] == lines[len(numbered) + 1 :]
    commit = next(line for step in found["steps"] for line in step["lines"] if line["verb"] == "commit")
    assert (commit["doing"], commit["outcome"]) == ("ins 1", "applied as log-0")
    assert commit["what"].startswith("check host@1, create blocks/a")
    # A name that is longer than its column.
    assert {line["doing"] for step in found["steps"] if step["actor"] == "r2" for line in step["lines"]} == {"read11"}
    assert [step["kind"] for step in found["steps"] if any("stale" in line["outcome"] for line in step["lines"])] == [
        "fault"
    ]


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_counterexample_for_people_is_read_too(file: Any) -> None:
    text = file.read_text()
    (found,) = read(text)
    assert found["violations"][0]["what"] == text.splitlines()[0]
    assert [step["at"] for step in found["steps"]] == [str(number) for number in range(1, len(found["steps"]) + 1)]
    assert set(found["actors"]) <= {"r1", "r2", "r3", "the"}
    assert found["end"]


def test_sentences_of_a_small_model_have_lanes() -> None:
    result = explore_beside("lease", "begins-when-sent")
    (found,) = read(json.dumps(msgspec.to_builtins(result, enc_hook=str)))
    assert len(found["steps"]) == len(result.trace)
    assert found["actors"] == ["leader", "candidate"]


@pytest.mark.parametrize(
    ("line", "actor"),
    [
        ("candidate 1 (2): member 0 answers Done() to Raise", "candidate 1"),
        ("b Commit -> Refused by Create /c/x", "b"),
        ("reader 0 at a: GetStamped tells 1", "reader 0"),
        ("c3 has opened the place", "c3"),
        ("LIST blobs/0000000000000001/00", "the store"),
    ],
)
def test_who_acts_is_found_in_a_sentence(line: str, actor: str) -> None:
    (found,) = read(json.dumps({"trace": [line]}))
    assert found["actors"] == [actor]


def test_a_published_model_has_an_action_and_who_takes_it() -> None:
    lines = [
        "  1                              log of 0",
        "  2 QuorumInsert r1              log of 1",
        "  3 EndQuorum r2                 log of 2",
    ]
    (found,) = read(json.dumps({"name": "published/quorum", "trace": lines}))
    assert [(step["actor"], step["lines"][0]["verb"]) for step in found["steps"][1:]] == [
        ("r1", "QuorumInsert"),
        ("r2", "EndQuorum"),
    ]


def test_several_results_and_violations_of_seeds_are_read() -> None:
    lines = [
        {"name": "simulation", "violations": [{"invariant": "I3", "what": "I3: twice", "seed": 7}], "trace": []},
        {"name": "lease", "trace": []},
    ]
    found = read("\n".join(map(json.dumps, lines)))
    assert [each["name"] for each in found] == ["simulation", "lease"]
    assert found[0]["violations"][0]["seed"] == 7


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[1, null]", '{"trace": 5}', "nothing\nof a trace", "\0\1"])
def test_what_is_no_trace_is_refused_with_what_to_do(text: str) -> None:
    says = "(() => { try { readTrace(text); return 'read'; } catch (error) { return error.message; } })()"
    assert "write one with `replitree verify explore" in evaluate(says, text=text)


@pytest.mark.parametrize(
    "odd", [{"trace": [None, 5, {"a": 1}]}, {"violations": [None, 7, {}], "trace": ["x"]}, {"trace": ["", "", "a"]}]
)
def test_odd_values_are_shown_and_break_nothing(odd: dict[str, Any]) -> None:
    draw = "(() => { const [found] = readTrace(text); return traceLanes(found, 0, 600); })()"
    assert evaluate(draw, text=json.dumps(odd))


def test_lanes_are_drawn_with_the_step_that_is_chosen_and_names_are_escaped() -> None:
    trace = {
        "violations": [{"invariant": "I1", "what": "I1: <b>"}],
        "trace": ["  1 r1       commit    <img src=x>  -> applied", "  2 r2       dies"],
    }
    root = ET.fromstring(evaluate("traceLanes(readTrace(text)[0], 1, 600)", text=json.dumps(trace)))
    steps = root.findall("g")
    assert [step.get("class") for step in steps] == ["step", "step chosen"]
    assert "<img src=x>" in (steps[0].findtext("title") or "")
    assert "I1: <b>" in (root.get("aria-label") or "")
