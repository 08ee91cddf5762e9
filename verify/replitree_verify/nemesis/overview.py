"""The report of a judged run: the verdict, and above it when what was hurt and what clients heard meanwhile, as a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from replitree.wire.history_format import Operation, Outcome
from replitree_verify.histories.judge import Verdict
from replitree_verify.histories.timeline import page

WIDTH, LEFT, LANE, CHART = 1040, 150, 14, 120
COLOURS: dict[Outcome, str] = {"ok": "#448361", "unknown": "#c98a1b", "failed": "#c4342d"}
"""Of what clients heard, from the bottom to the top."""

SECOND_NS = 1_000_000_000


class Struck(NamedTuple):
    """A fault that has struck: its kind, what it was in a few words, and from when to when, in ns of the operations' clock."""

    kind: str
    text: str
    begin: int
    end: int


def write_report(
    file: Path, title: str, verdict: Verdict, operations: Sequence[Operation], strikes: Sequence[Struck]
) -> None:
    """Write a page with the verdict on a run, and what happened in it.

    Parameters
    ----------
    file, title
        Where to, and its headline.
    verdict, operations
        What was found, of what.
    strikes
        Faults that have struck meanwhile.
    """
    text = page(verdict, title)
    file.write_text(
        text.replace("</h1>", f"</h1>\n<figure>{draw_run(operations, strikes)}</figure>", 1), encoding="utf-8"
    )


def draw_run(operations: Sequence[Operation], strikes: Sequence[Struck]) -> str:
    """Return a drawing: a lane for each kind of fault, and operations a second by what was heard."""
    moments = [each.call for each in operations] + [moment for strike in strikes for moment in strike[2:]]
    begin = min(moments, default=0)
    seconds = (max(moments, default=begin) - begin) / SECOND_NS + 1
    scale = (WIDTH - LEFT - 10) / seconds
    kinds = sorted({strike.kind for strike in strikes})
    body = [_text(LEFT - 8, LANE * (row + 1) - 3, kind, "end") for row, kind in enumerate(kinds)]
    for strike in strikes:
        x = LEFT + (strike.begin - begin) / SECOND_NS * scale
        width = max(2.0, (strike.end - strike.begin) / SECOND_NS * scale)
        y = LANE * kinds.index(strike.kind) + 2
        body.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE - 4}" fill="#555">'
            f"<title>{escape(strike.text)}</title></rect>"
        )
    top = LANE * len(kinds) + 10
    body += _chart(operations, begin, scale, top)
    height = top + CHART + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' font-family="sans-serif" font-size="10">{"".join(body)}</svg>'
    )


def _chart(operations: Sequence[Operation], begin: int, scale: float, top: float) -> list[str]:
    """Return bars of operations a second."""
    heard = Counter(((each.call - begin) // SECOND_NS, each.outcome) for each in operations)
    seconds = sorted({second for second, _ in heard})
    most = max((sum(heard[second, outcome] for outcome in COLOURS) for second in seconds), default=1)
    body = [
        _text(LEFT - 8, top + 10, f"{most} operations/s", "end"),
        *(
            _text(LEFT - 8, top + CHART - 14 * row, outcome, "end", colour)
            for row, (outcome, colour) in enumerate(COLOURS.items())
        ),
    ]
    for second in seconds:
        y = top + CHART
        for outcome, colour in COLOURS.items():
            height = heard[second, outcome] / most * CHART
            y -= height
            body.append(
                f'<rect x="{LEFT + second * scale:.1f}" y="{y:.1f}" width="{max(1.0, scale - 0.5):.1f}"'
                f' height="{height:.1f}" fill="{colour}"/>'
            )
        if second % 10 == 0:
            body.append(_text(LEFT + second * scale, top + CHART + 14, f"{second} s", "start"))
    return body


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
