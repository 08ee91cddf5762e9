"""Line charts as SVG, written by hand: axes, a few grid lines, lines with names.  Enough for a document, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 34, 34
COLOURS = ("#0b6e99", "#d9730d", "#6c757d", "#448361")


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart.

    Attributes
    ----------
    title, x_name
        What it shows, and what the x axis counts.
    x_max
        Value of x at the last point of every line; the first is at 0.
    lines
        Names and values, at equal distances.
    """

    title: str
    x_name: str
    x_max: float
    lines: Sequence[tuple[str, Sequence[float]]]


def draw(charts: Sequence[Chart]) -> str:
    """Return an SVG document with the charts below each other."""
    body = "\n".join(
        f'<g transform="translate(0 {number * HEIGHT})">\n{_drawn(chart)}\n</g>' for number, chart in enumerate(charts)
    )
    height = HEIGHT * len(charts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def _drawn(chart: Chart) -> str:
    top = _round_up(max(max(values) for _, values in chart.lines))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    found = [_text(LEFT, TOP - 14, chart.title, "start"), _text((LEFT + right) / 2, HEIGHT - 4, chart.x_name, "middle")]
    for quarter in range(5):
        y = bottom - (bottom - TOP) * quarter / 4
        found.append(f'<path d="M{LEFT} {y:g}H{right}" stroke="#ddd"/>')
        found.append(_text(LEFT - 6, y + 4, f"{top * quarter / 4:g}", "end"))
    scale = (right - LEFT) / chart.x_max
    found += [_text(LEFT + scale * tick, bottom + 16, f"{tick}", "middle") for tick in _ticks(chart.x_max)]
    for number, (name, values) in enumerate(chart.lines):
        colour = COLOURS[number % len(COLOURS)]
        step = (right - LEFT) / max(1, len(values) - 1)
        points = " ".join(
            f"{LEFT + step * i:.1f},{bottom - (bottom - TOP) * v / top:.1f}" for i, v in enumerate(values)
        )
        found.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        found.append(_text(right + 8, TOP + 12 + 18 * number, name, "start", colour))
    return "\n".join(found)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _ticks(x_max: float) -> range:
    """Return whole numbers that read well, about a quarter of the axis apart.

    >>> list(_ticks(365)), list(_ticks(600)), list(_ticks(3))
    ([0, 90, 180, 270, 360], [0, 100, 200, 300, 400, 500, 600], [0, 1, 2, 3])
    """
    quarter = max(1, int(x_max / 4))
    unit = 10 ** (len(str(quarter)) - 1)
    return range(0, int(x_max) + 1, quarter // unit * unit)


def _round_up(value: float) -> float:
    """Return the next number whose quarters read well."""
    unit = 1.0
    while unit * 100 < value:
        unit *= 10
    steps = [4, 8, 12, 16, 20, 40, 60, 80, 100]
    return next(step * unit for step in steps if step * unit >= value)
