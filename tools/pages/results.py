"""Pages of results: tables of what the files of `docs/results` have, and where the peer is ahead."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tools.pages.markdown import table

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

PAGES = {
    "sql": "Results: SQL on one machine",
    "cluster": "Results: a Spark cluster that shares no disk with the replicas",
    "streams": "Results: streams",
    "sharded": "Results: sharded tables",
    "tls": "Results: TLS beside clear text",
}
"""Title of each page of benchmarks, by the file that it shows."""

NAMES = (*PAGES, "first-hour", "where-we-lose", "checker", "kills")
"""All pages."""

COMMANDS = {
    "sql": "replitree bench sql --scale {scale} --rounds {rounds}",
    "sql-format": "replitree bench sql --format --scale {scale} --rounds {rounds}",
    "sql-cluster": "replitree bench sql --cluster --scale {scale} --rounds {rounds}",
    "write-cluster": "replitree bench write --cluster --scale {scale} --rounds {rounds}",
    "merge-into": "replitree bench merge-into",
    "streams": "replitree bench streams --rounds {rounds}",
    "torn": "replitree bench sharded --peer clickhouse",
    "joins": "replitree bench joins --rounds {rounds}",
    "moves": "replitree bench moves",
    "growth": "replitree bench growth --rounds {rounds}",
    "sharded": "replitree bench sharded --rounds {rounds}",
    "tls": "replitree bench tls --rounds {rounds}",
}
"""The command that prints each report."""

ROWS_OF_SCALE_1 = 6_001_215

MACHINE = "two cores, 24 GiB of memory, Linux, one disk for everything"

MORE = re.compile(r"^(?!.*requests).*_per_s$|^inserts$|^acknowledged$|^reads$")
LESS = re.compile(r"_(?:s|ms|bytes|requests|reads|seen|left)$|requests|^lost$")
"""Figures of which more, and of which less, is better; other figures describe the run."""

LARGEST = 20
"""Models that the page of the checker lists."""


def reports() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Give the file, the line and the report of each benchmark that was recorded."""
    for name in PAGES:
        for number, line in enumerate((RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(), 1):
            yield name, number, json.loads(line)


@cache
def commits(name: str) -> tuple[str, ...]:
    """Return the commit that recorded each line of a file; nothing outside a git checkout."""
    asked = ["git", "blame", "-s", "--abbrev=9", "--", f"{name}.jsonl"]
    try:
        ran = subprocess.run(asked, cwd=RESULTS, capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(line.split()[0].lstrip("^") for line in ran.stdout.splitlines())


def is_worse(key: str, ratio: float) -> bool:
    """Tell whether a ratio of ours to the peer's means that the peer is ahead.

    >>> is_worse("rows_per_s", 0.9), is_worse("p99_ms", 1.2), is_worse("p99_ms", 0.8), is_worse("rows", 2.0)
    (True, True, False, False)
    >>> is_worse("idle_requests_per_s", 0.9)
    False
    """
    return ratio < 1 if MORE.search(key) else ratio > 1 and bool(LESS.search(key))


def pages() -> dict[str, str]:
    """Return all pages by their names."""
    made = {name: _page(name) for name in PAGES}
    return made | {"first-hour": _first_hour(), "where-we-lose": _losses(), "checker": _checker(), "kills": _kills()}


def _about(name: str, number: int, report: dict[str, Any]) -> str:
    """Return the lines above a table: command, commit, machine, peer and notes."""
    known = commits(name)
    # Reports before the key `scale`: TPC-H's largest table has 6,001,215 rows at scale 1.
    scale = report.get("scale", 1 if report["ours"].get("rows", 0) > ROWS_OF_SCALE_1 / 2 else 0.1)
    lines = [
        f"* Command: `{COMMANDS[report['name']].format(scale=scale, rounds=report['rounds'])}`",
        f"* Recorded in commit: `{known[number - 1]}`"
        if len(known) >= number
        else "* Recorded in commit: not known here",
        f"* Machine: {MACHINE}",
        f"* Beside: {report['peer_name']}" if report["peer_name"] else "* Beside: nothing",
        *(f"* Note on {key}: {text}" for key, text in report["notes"].items()),
    ]
    return "\n".join(lines)


def _page(name: str) -> str:
    intro = (
        f"Generated from `docs/results/{name}.jsonl`. A figure is the median of the rounds. A ratio is ours divided by the "
        "peer's; a ratio in bold says that the peer is ahead."
    )
    pieces = [f"# {PAGES[name]}", intro]
    for file, number, report in reports():
        if file == name:
            pieces += [f"## {report['name']}, report {number}", _about(name, number, report), _figures(report)]
    return "\n\n".join(pieces) + "\n"


def _figures(report: dict[str, Any]) -> str:
    if not report["peer"]:
        return table(["figure", "ours"], ([key, _number(value)] for key, value in report["ours"].items()))
    rows = []
    for key, value in report["ours"].items():
        ratio = report["ratio"].get(key)
        shown = "" if ratio is None else f"**{ratio}**" if is_worse(key, ratio) else str(ratio)
        rows.append([key, _number(value), _number(report["peer"].get(key)), shown])
    return table(["figure", "ours", "peer", "ratio"], rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def _losses() -> str:
    """Return the page of all figures in which the peer is ahead."""
    rows = [
        [
            f"[{report['name']}, report {number}]({name}.md)",
            key,
            _number(report["ours"][key]),
            _number(report["peer"][key]),
            str(ratio),
        ]
        for name, number, report in reports()
        for key, ratio in report["ratio"].items()
        if is_worse(key, ratio)
    ]
    text = (
        "# Results: where we lose\n\nThe goals that are missed, and every recorded figure in which the peer is "
        "ahead. How figures are made: [benchmarks](../benchmarks.md)."
    )
    missed = (
        [each["what"], each["ours"], each["beside"], f"`{each['command']}`", f"[{each['page']}](../{each['page']})"]
        for each in lines("missed")
    )
    pieces = (
        *(text, "## Goals that are missed, and figures that were measured by hand"),
        "Generated from `docs/results/missed.jsonl`; a test compares it with the goals in bold of the pages.",
        *(
            table(["what", "ours", "goal, or the peer", "command", "page"], missed),
            "## Figures in which the peer is ahead",
        ),
        "Generated from the reports in `docs/results`.",
        table(["report", "figure", "ours", "peer", "ratio"], rows),
    )
    return "\n\n".join(pieces) + "\n"


def lines(name: str) -> list[dict[str, Any]]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def _checker() -> str:
    """Return the page of the checker's record."""
    models, left_out = lines("models"), lines("left_out")
    explored = [each for each in models if not each["violation"]]
    rows = [
        ["models explored to their end without a violation", f"{len(explored):,}"],
        ["models that found a violation", f"{len(models) - len(explored):,}"],
        ["states", f"{sum(each['states'] for each in models):,}"],
        ["transitions", f"{sum(each['transitions'] for each in models):,}"],
        ["CPU hours", f"{sum(each['cpu_seconds'] for each in models) / 3600:.1f}"],
    ]
    largest = sorted(models, key=lambda each: -each["states"])[:LARGEST]
    effects = {how: sum(each["how"] == how for each in left_out) for how in sorted({each["how"] for each in left_out})}
    intro = (
        "Generated from `docs/results/models.jsonl` and `left_out.jsonl`, which `make record` writes. A model runs the code "
        "that ships; what a model is, [verification.md](../verification.md) says."
    )
    what = (
        f"For each of {len(left_out)} effects of a procedure, a run without it: whether a model notices that the effect is "
        "missing, and how. [verification-left-out.md](../verification-left-out.md) has them one by one."
    )
    numbers = (
        [
            *(f"`{each['model']}`", f"{each['states']:,}", f"{each['transitions']:,}"),
            *(f"{each['cpu_seconds']:,.0f}", f"`{each['commit']}`"),
        ]
        for each in largest
    )
    pieces = (
        *("# Results: the checker", intro, table(["record", "value"], rows), "## The largest models"),
        table(["model", "states", "transitions", "CPU s", "commit"], numbers),
        *("## Effects left out", what),
        table(["how", "effects"], ([f"`{how}`", str(number)] for how, number in effects.items())),
    )
    return "\n\n".join(pieces) + "\n"


def _first_hour() -> str:
    """Return the page of what the start page takes, in every run that was recorded; the commands are those of the last."""
    runs = lines("first_hour")
    last = runs[-1]
    known = commits("first_hour")
    facts = [
        "* Command: `python -m tests.cli.first_hour`",
        f"* Recorded in commit: `{known[-1]}`" if known else "* Recorded in commit: not known here",
        f"* Machine: {MACHINE}; load when each run began: {_each(runs, 'load')}; other work went on beside it",
    ]
    goals = [
        ["commands until rows are in a chart", "12", f"{last['commands_to_chart']}"],
        ["seconds until rows are in a chart", "300", _each(runs, "seconds_to_chart")],
        ["rows in the chart", "3", f"{last['rows_in_chart']}"],
        ["commands of the page", "", f"{last['commands']}"],
        ["seconds of the page", "", _each(runs, "seconds")],
    ]
    # A program is one command; its first line stands for it.
    steps = ([f"`{command.splitlines()[0]}`", f"{seconds:.1f}"] for command, seconds in last["steps"])
    intro = (
        "Generated from `docs/results/first_hour.jsonl`. A program builds the wheel and follows [start](../start.md) as a new "
        "user: a new folder, an empty home, two shells that get each command as it is printed, and a browser that "
        "opens the printed address and reads the rows from the chart. Packages come from a registry; nothing is cached."
    )
    pieces = (
        *("# Results: the first hour", intro, "\n".join(facts), table(["figure", "goal", "measured"], goals)),
        *("## Each command", table(["command", "s"], steps)),
    )
    return "\n\n".join(pieces) + "\n"


def _each(runs: list[dict[str, Any]], key: str) -> str:
    return ", ".join(f"{run[key]:,.0f}" for run in runs)


def _kills() -> str:
    """Return the page of reads at cuts while processes are killed."""
    intro = (
        "Generated from `docs/results/kills.jsonl`. `torn`, `twice` and `back` count reads that showed a part of an insert, a "
        "row twice, or an older state than the read before."
    )
    pieces = ["# Results: reads while processes are killed", intro]
    for each in lines("kills"):
        rows = [[key, f"{value:,}" if isinstance(value, int) else str(value)] for key, value in each.items()]
        pieces.append(table(["figure", "value"], rows))
    return "\n\n".join(pieces) + "\n"
