"""Anomalies as time lines: a page of its own, with drawings in it and nothing to fetch.

Clients are rows, time goes to the right, an operation is a bar from its call to its answer.  Distances are not to scale: every
moment at which something begins or ends has a place of its own, so that an order can be seen where milliseconds would lie on
each other.
"""

from __future__ import annotations

from html import escape
from itertools import pairwise

from replitree.wire.history_format import Operation
from replitree_verify.histories.judge import Anomaly, Verdict
from replitree_verify.histories.report import label, letters, lines, scale, word

TOP, LANE, MOMENT_MIN, CHARACTER = 16, 46, 70, 7.0
CLIENT_CHARACTERS = 20
"""So much of a client's name is shown: its end."""

INSERT, READ, BAD, TEXT, GRID = "#0b6e99", "#448361", "#c4342d", "#333", "#ddd"

STYLE = (
    "body{font:15px/1.5 sans-serif;color:#222;max-width:70em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}svg{display:block;border:1px solid #ddd}"
    "figure{margin:1em 0;overflow-x:auto}pre{background:#f5f5f5;padding:1em;overflow-x:auto}"
    f".wrong{{color:{BAD}}}.fine{{color:{READ}}}.undecided{{color:#9a6700}}"
    ".insert,.read,.pale,.accused{padding:0 .4em;border-radius:4px;color:white;white-space:nowrap}"
    f".insert{{background:{INSERT}}}.read{{background:{READ}}}.pale{{color:{TEXT};background:#a5d0e2}}"
    f".accused{{color:{TEXT};border:2.5px solid {BAD}}}"
)

KEY = (
    '<p>A row is a client, and time goes to the right, not to scale: <span class="insert">an insert</span> or '
    '<span class="read">a read</span>, from its call to its answer; <span class="pale">pale</span> when it failed or its '
    'outcome is unknown, up to the right edge when no answer came; <span class="accused">framed</span> is what the others '
    "contradict. A, B, … are the rows of one insert each, @ is a position of the log; times count from the first call.</p>"
)


def page(verdict: Verdict, title: str) -> str:
    """Return a verdict as an HTML document.

    Parameters
    ----------
    verdict
        What was found.
    title
        Names the history.
    """
    summary = "\n".join(lines(verdict))
    sections = [
        f"<h2>{escape(each.name)} ({each.rule})</h2>\n<p>{escape(f'{each.text[:1].upper()}{each.text[1:]}.')}</p>\n"
        f"<figure>{draw(each)}</figure>\n<p><small>{escape('; '.join(each.places))}</small></p>"
        for each in verdict.anomalies
    ]
    drawn = "\n".join([KEY, *sections] if sections else ())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n"
        f'<h1>{escape(title)}: <span class="{word(verdict)}">{word(verdict)}</span></h1>\n'
        f"<pre>{escape(summary)}</pre>\n{drawn}\n</body></html>\n"
    )


def draw(anomaly: Anomaly) -> str:
    """Return the time line of an anomaly as an SVG document."""
    operations, names = anomaly.operations, letters(anomaly)
    clients = list(dict.fromkeys(operation.client for operation in operations))
    texts = [label(anomaly, operation.call, operation.client, names) for operation in operations]
    shown = [
        client if len(client) <= CLIENT_CHARACTERS else f"…{client[1 - CLIENT_CHARACTERS :]}" for client in clients
    ]
    left = CHARACTER * max(map(len, shown)) + 20
    places, width = _moments(operations, texts, left)
    bottom = TOP + LANE * len(clients)
    body = [
        f'<path d="M{left:g} {y + LANE:g}H{width:g}" stroke="{GRID}"/>{_text(left - 10, y + LANE / 2 + 4, name, "end")}'
        for y, name in zip(range(TOP, bottom, LANE), shown, strict=True)
    ]
    first, (divisor, unit) = min(operation.call for operation in operations), scale(anomaly)
    for moment, x in places.items():
        body.append(f'<path d="M{x:g} {TOP}V{bottom}" stroke="{GRID}" stroke-dasharray="2 3"/>')
        body.append(_text(x, bottom + 16, f"{(moment - first) / divisor:g}", "middle", size=10))
    body.append(_text(left - 10, bottom + 16, unit, "end", size=10))
    for operation, text in zip(operations, texts, strict=True):
        # Without an answer a bar reaches the right edge.
        end = places[operation.answer] if operation.answer is not None else width - 8
        # Operations stand in the order of their calls: the last is the one that the others contradict.
        accused = operation is operations[-1]
        y = TOP + LANE * clients.index(operation.client) + 10
        start = places[operation.call]
        width_of_bar, middle, is_ok = max(4.0, end - start), y + (LANE - 20) / 2 + 4, operation.outcome == "ok"
        colour = INSERT if operation.kind == "insert" else READ
        edge = f' stroke="{BAD}" stroke-width="2.5"' if accused else ""
        dashes = "" if is_ok else ' fill-opacity="0.55"'
        body.append(
            f'<rect x="{start:g}" y="{y:g}" width="{width_of_bar:g}" height="{LANE - 20}" rx="4"'
            f' fill="{colour}"{dashes}{edge}/>'
            + _text(start + width_of_bar / 2, middle, text, "middle", colour="white" if is_ok else TEXT)
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {bottom + 26}" width="{width:g}"'
        f' font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>"
    )


def _moments(operations: tuple[Operation, ...], texts: list[str], left: float) -> tuple[dict[int, float], float]:
    """Give each moment a place, so that every bar has room for its text; return also the width of all."""
    ends = {operation.answer for operation in operations if operation.answer is not None}
    moments = sorted({operation.call for operation in operations} | ends)
    # Every moment has a place of its own: to scale, operations of a few milliseconds would lie on each other.
    places = {moments[0]: left + 20}
    for before, moment in pairwise(moments):
        x = places[before] + MOMENT_MIN
        for operation, text in zip(operations, texts, strict=True):
            if operation.answer == moment:
                x = max(x, places[operation.call] + CHARACTER * len(text) + 16)
        places[moment] = x
    width = max(places.values()) + 40
    for operation, text in zip(operations, texts, strict=True):
        if operation.answer is None:
            width = max(width, places[operation.call] + CHARACTER * len(text) + 40)
    return places, width


def _text(x: float, y: float, text: str, anchor: str, colour: str = TEXT, size: int = 12) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'
