"""Follows the start page as a new user does: `python -m tests.cli.first_hour`.

The product is built as a wheel.  In a new folder, with an empty home, two shells then get the commands of `docs/start.md`, each
as it is printed: the first shell all of them up to the one that serves, the second one the rest.  After the query a Chromium
opens the address that `replitree up` has printed, clicks on the table, and reads from the chart how many rows it shows.

Needs pip, a registry and a Chromium (Debian: ``apt-get install chromium``; ``REPLITREE_CHROMIUM`` names another).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from playwright.sync_api import expect, sync_playwright

from tests.pages import STAYS, blocks
from tests.project.source import ROOT

PAGE = "start.md"
TABLE = "events"
CHART_AFTER = "replitree sql "
"""The page says after this command that the address is opened."""

COMMAND_S_MAX = 900.0
READY_S_MAX = 300.0
STOP_S_MAX = 60.0
CHROMIUM = os.environ.get("REPLITREE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

_FOREIGN = re.compile(r"REPLITREE_|SPARK_|PYTHON|VIRTUAL_ENV|JAVA_|PYTEST_|COV_")
"""Variables of the environment of a developer that a new user does not have."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the page, or the opening of the address."""

    command: str
    seconds: float


@dataclass(slots=True)
class Report:
    """What was typed, how long each took, and what the chart showed."""

    steps: list[Step] = field(default_factory=list)
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))
    chart: int = 0
    chart_rows: int = 0
    """The step with which the chart was there, and the rows that it showed."""

    def as_json(self) -> dict[str, Any]:
        """Return the line for `docs/results/first_hour.jsonl`."""
        until = self.steps[: self.chart]
        return {
            "commands_to_chart": len(until),
            "seconds_to_chart": round(sum(step.seconds for step in until), 1),
            "rows_in_chart": self.chart_rows,
            "load": self.load,
            "commands": len(self.steps),
            "seconds": round(sum(step.seconds for step in self.steps), 1),
            "steps": [[step.command, round(step.seconds, 1)] for step in self.steps],
        }


def commands() -> list[str]:
    """Return the commands of the start page in their order; a block of Python is one command."""
    found: list[str] = []
    for language, text in blocks(PAGE):
        if language == "python":
            found.append(f"python - <<'END'\n{text}END")
        else:
            found += text.replace("\\\n", " ").splitlines()
    return found


class Terminal:
    """A shell that is typed into, and that shows what its commands print."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._shown: list[str] = []
        self._is_new = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in _of(self._shell.stdout):
            with self._is_new:
                self._shown.append(line)
                self._is_new.notify_all()

    def type(self, command: str) -> None:
        """Type a command, and wait for nothing."""
        _of(self._shell.stdin).write(f"{command}\n")
        _of(self._shell.stdin).flush()

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        """Wait until a line of the screen has a pattern; `TimeoutError` shows the screen."""
        with self._is_new:
            found = self._is_new.wait_for(lambda: self._find(pattern), seconds)
        if not found:
            raise TimeoutError(f"no line has {pattern!r} after {seconds} s:\n{''.join(self._shown)}")
        return found

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next(filter(None, (re.search(pattern, line) for line in self._shown)), None)

    def run(self, command: str, number: int) -> str:
        """Type a command and wait for its end; a command that fails is an error with what it printed."""
        before = len(self._shown)
        self.type(command)
        self.type(f"echo :ended:{number}:$?")
        status = self.wait_for(rf"^:ended:{number}:(\d+)$", COMMAND_S_MAX)[1]
        said = "".join(self._shown[before:-1])
        if status != "0":
            raise AssertionError(f"{command}\nended with {status}:\n{said}")
        return said

    def close(self) -> None:
        """Press Ctrl-C, as the page says, and close the terminal."""
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGINT)
        _of(self._shell.stdin).close()
        try:
            self._shell.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            raise


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def build_wheel(folder: Path) -> None:
    """Build the wheel of the product."""
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps"]
    constraints = ("--build-constraint", str(ROOT / "constraints.txt"))
    subprocess.run([*pip, *constraints, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=COMMAND_S_MAX)


def environment_of(home: Path, wheels: Path) -> dict[str, str]:
    """Return the environment of a new user: pip finds the wheels of this checkout beside those of its registry."""
    kept = {name: value for name, value in os.environ.items() if not _FOREIGN.match(name)}
    own = [folder for folder in kept["PATH"].split(os.pathsep) if not folder.startswith(sys.prefix)]
    path = os.pathsep.join([f"{sys.base_prefix}/bin", *own])
    links = f"{kept.get('PIP_FIND_LINKS', '')} {wheels}".strip()
    return {**kept, "PATH": path, "HOME": str(home), "PIP_FIND_LINKS": links, "XDG_CACHE_HOME": str(home / ".cache")}


def rows_in_chart(address: str) -> int:
    """Open the page, click on the table, and return how many rows the rectangles of the chart *Parts* stand for."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(READY_S_MAX * 1000)
        tab.goto(address)
        tab.locator(".card", has_text=TABLE).click()
        expect(tab.locator("svg.map rect:has(title)").first).to_be_visible(timeout=READY_S_MAX * 1000)
        expect(tab.locator(".u-wrap").last).to_be_visible(timeout=READY_S_MAX * 1000)
        told = tab.locator("svg.map rect title").all_text_contents()
        browser.close()
    return sum(
        int(found[1].replace(",", "")) for text in told for found in [re.search(r": ([\d,]+) rows?\b", text)] if found
    )


@contextmanager
def two_terminals(folder: Path, environment: dict[str, str]) -> Iterator[tuple[Terminal, Terminal]]:
    """Give two terminals in a new folder; the server in the first one is stopped at the end."""
    first, second = Terminal(folder, environment), Terminal(folder, environment)
    try:
        yield first, second
    finally:
        second.close()
        first.close()


def follow(place: Path) -> Report:
    """Follow the page from the wheel to its last command.

    Parameters
    ----------
    place
        An empty folder; everything is made below it.
    """
    wheels, home, folder = place / "wheels", place / "home", place / "new-folder"
    for each in (wheels, home, folder):
        each.mkdir()
    build_wheel(wheels)
    report = Report()
    with two_terminals(folder, environment_of(home, wheels)) as (first, second):
        terminal, address = first, ""
        for number, command in enumerate(commands()):
            began = time.monotonic()
            if command.startswith(STAYS):
                first.type(command)
                terminal, address = second, first.wait_for(r"^page +(\S+)", READY_S_MAX)[1]
            else:
                terminal.run(command, number)
            report.steps.append(Step(command, time.monotonic() - began))
            if command.startswith(CHART_AFTER):
                began = time.monotonic()
                report.chart_rows = rows_in_chart(address)
                report.steps.append(Step("the browser opens the page and the table", time.monotonic() - began))
                report.chart = len(report.steps)
    return report


def main() -> int:
    """Follow the page and print the report as one line of JSON."""
    parser = argparse.ArgumentParser(description="Follow docs/start.md from the wheel to a chart.")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="an empty folder (default: a temporary one)")
    place = parser.parse_args().dir
    if CHROMIUM is None:
        print("no Chromium is installed; on Debian: apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="replitree-first-hour-") as temporary:
        print(json.dumps(follow(place or Path(temporary)).as_json()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
