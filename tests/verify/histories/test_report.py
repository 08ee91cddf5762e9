"""A verdict as people, programs and browsers see it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import parse
from replitree_verify.histories.report import as_dict, lines, story
from replitree_verify.histories.rules import RULES
from replitree_verify.histories.timeline import draw, page
from tests.verify.histories.known import KNOWN, A, Known, insert, read

SVG = "{http://www.w3.org/2000/svg}"


def test_a_verdict_says_what_broke_what_and_what_was_kept() -> None:
    verdict = check(parse(KNOWN["an acknowledged insert is not seen"].operations))
    text = "\n".join(lines(verdict))
    assert "L1  stale_read" in text
    assert "x: insert A  [history, line 2]" in text
    assert "y: linearizable read, of insert A: none  [history, line 3]" in text
    assert "broken: what linearizable promises; kept: eventual, sequential" in text
    assert text.endswith("wrong")
    found = json.loads(json.dumps(as_dict(verdict)))
    assert (found["verdict"], found["fine"], found["counts"]) == ("wrong", False, {"L1": 1})
    assert found["levels_kept"] == ["eventual", "sequential"]
    assert [each["kind"] for each in found["anomalies"][0]["operations"]] == ["insert", "read"]


def test_a_read_that_showed_rows_of_other_inserts_only_is_not_called_empty() -> None:
    others = insert("z", 0, 5, ((100, 103),))
    verdict = check(parse([others, insert("x", 6, 10, A), read("y", 20, 30, ((100, 103),))]))
    assert "y: linearizable read, of insert A: none" in "\n".join(lines(verdict))


def test_a_fine_history_is_said_to_be() -> None:
    verdict = check(parse([insert("x", 0, 10, A), read("y", 20, 30, A)]))
    assert lines(verdict)[-1] == "fine"
    assert as_dict(verdict)["levels_kept"] == ["eventual", "sequential", "linearizable"]
    assert "<svg" not in page(verdict, "h")


@pytest.mark.parametrize("known", KNOWN.values(), ids=KNOWN)
def test_every_anomaly_can_be_drawn(known: Known) -> None:
    (anomaly, *_) = check(parse(known.operations)).anomalies
    picture = ET.fromstring(draw(anomaly))
    bars = [each for each in picture.iter(f"{SVG}rect") if each.get("rx")]
    assert len(bars) == len(anomaly.operations)
    width = float(picture.attrib["width"])
    assert all(
        float(bar.attrib["x"]) >= 0 and float(bar.attrib["x"]) + float(bar.attrib["width"]) <= width for bar in bars
    )
    texts = {each.text for each in picture.iter(f"{SVG}text")}
    assert {operation.client for operation in anomaly.operations} <= texts


def test_bars_of_one_client_do_not_lie_on_each_other() -> None:
    (anomaly,) = check(parse(KNOWN["a client goes back"].operations)).anomalies
    bars = [each.attrib for each in ET.fromstring(draw(anomaly)).iter(f"{SVG}rect") if each.get("rx")]
    (one, two) = (bar for bar in bars if bar["y"] == bars[-1]["y"])
    assert float(one["x"]) + float(one["width"]) <= float(two["x"])


def test_a_page_needs_nothing_else_and_quotes_what_it_shows() -> None:
    client = "<script>"
    verdict = check(parse([insert(client, 0, 10, A), read("y", 20, 30, ())]))
    text = page(verdict, "a <b>")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "src=" not in text
    assert "href=" not in text
    assert "stale_read" in text


def test_a_page_explains_its_colours_and_reads_well_in_a_narrow_window() -> None:
    text = page(check(parse(KNOWN["a client goes back"].operations)), "h")
    assert 'name="viewport"' in text
    assert "<figure><svg" in text
    assert 'class="insert"' in text
    used = set(re.findall(r'<rect[^>]* fill="(#[0-9a-f]{6})"', text))
    assert used
    assert all(f"background:{colour}}}" in text for colour in used), "each colour of a bar is explained"


def test_names_of_clients_have_room_and_no_more() -> None:
    def width(client: str) -> float:
        (anomaly,) = check(parse([insert(client, 0, 10, A), read("y", 20, 30, ())])).anomalies
        return float(ET.fromstring(draw(anomaly)).attrib["width"])

    assert width("x") < width("a-client") < width("a-client-of-another-host:4711") == width("b" * 50)


def test_every_rule_has_a_name_and_a_level() -> None:
    assert all(rule.number == number and rule.anomaly and rule.says for number, rule in RULES.items())


@pytest.mark.parametrize(("length", "words"), [
    (9_000, "9000 ns"), (20_000, "20 µs"), (20_000_000, "20 ms"), (90_000_000, "90 ms"), (20_000_000_000, "20 s"),
])  # fmt: skip
def test_times_are_told_in_a_unit_that_reads_well(length: int, words: str) -> None:
    (anomaly,) = check(parse([insert("x", 0, 1, A), read("y", 2, length, ())])).anomalies
    assert f"to {words}  y" in "\n".join(story(anomaly))
