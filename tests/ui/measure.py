"""Measure the page: ``python -m tests.ui.measure --parts 100000 --entries 10000 [--dir FOLDER] [--record FILE]``.

It fills a table of a cluster with one replica, insert by insert and without merges, opens it in a Chromium, and prints

* when the browser has painted first, and when the whole picture is there, after a fresh load;
* how long a step of the time machine takes, from the key to the end of the second next frame, near the end and across the whole
  log; and how long the page's thread was busy with it, in CPU time, on which other work of the machine has less influence;
* what the replica costs while one browser looks: its CPU time with the table open and without a page, in turn; and, since its
  own upkeep comes in bursts that are larger than that, the CPU time of one look and of one of the doctor's, and how often the
  page looks.

With ``--dir`` the cluster stays there, and is measured again without being filled.  ``--record`` adds a line of JSON to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, sync_playwright
from playwright.sync_api import Page as Tab

from replitree.client.cluster import LocalCluster
from replitree.client.connection import connect
from replitree.client.table import Table
from replitree.ui.observer import DOCTOR_REST, DOCTOR_REST_S_MAX, DOCTOR_S
from tests.project.source import ROOT
from tests.ui.pages import KEY, Page, page_of
from tests.ui.test_page_system import CHROMIUM

TABLE = "t"
CALM_S, CALM_PERCENT, CALM_LOOKS_MAX = 10.0, 3.0, 20
"""A replica is calm when it takes less of a core over so many seconds; so many looks are waited for that."""

BATCHES = 9
"""Batches of requests whose CPU time is taken; an odd number, for a median."""

STEPS = 20
"""Steps of the time machine that are timed."""

STEP = """(position) => new Promise((done) => {
  const slider = document.querySelector('[data-part=slider]');
  const began = performance.now();
  slider.value = position ?? Number(slider.value) - 1;
  slider.dispatchEvent(new Event('input'));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def fill(table: Table, parts: int, entries: int) -> None:
    """Insert until the table has so many parts by so many entries, spread over a hundred partitions."""
    table.pause_merges()
    each = parts // entries
    for number in range(entries):
        first = number * each
        rows = {"p": [(first + i) % 100 for i in range(each)], "k": list(range(first, first + each))}
        table.insert(rows, token=f"fill-{number}")
        if number % 500 == 0:
            print(f"{number:,} of {entries:,} entries", flush=True)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(tab: Tab, pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes from now on, in per cent."""
    before, began = cpu_s(pid), time.monotonic()
    tab.wait_for_timeout(1000 * seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def open_table(tab: Tab, page: Page) -> None:
    """Show the table, and return when its parts are drawn."""
    tab.goto("about:blank")
    tab.goto(f"http://127.0.0.1:{page.port}/#/table/{TABLE}")
    tab.locator("svg.map").wait_for(timeout=300_000)


def busy_s(session: CDPSession) -> float:
    """Return the CPU time of all tasks of the page's thread until now, in seconds."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def steps(tab: Tab, session: CDPSession, positions: list[int | None]) -> dict[str, float]:
    """Go to each position, None being one entry back; return how long that took, in milliseconds."""
    took, busy = list[float](), list[float]()
    for position in positions:
        before = busy_s(session)
        took.append(float(tab.evaluate(STEP, position)))
        busy.append(1000 * (busy_s(session) - before))
    found = {"median_ms": statistics.median(took), "worst_ms": max(took)}
    found |= {"busy_median_ms": statistics.median(busy), "busy_worst_ms": max(busy)}
    return {name: round(value, 1) for name, value in found.items()}


def measure(page: Page, pid: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return the figures."""
    found: dict[str, Any] = {"first_paint_ms": [], "parts_drawn_ms": []}
    with sync_playwright() as playwright:
        tab = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(f"http://127.0.0.1:{page.port}/?key={KEY.replace(' ', '+')}")
        tab.locator(".card").wait_for(timeout=300_000)
        for _ in range(3):
            began = time.monotonic()
            open_table(tab, page)
            found["parts_drawn_ms"].append(round(1000 * (time.monotonic() - began)))
            found["first_paint_ms"].append(round(tab.evaluate(PAINT)))
        tail = int(tab.locator("[data-part=slider]").get_attribute("max") or 0)
        found["one_entry_back"] = steps(tab, session, [None] * STEPS)
        found["anywhere"] = steps(tab, session, [tail * (7 * at % STEPS) // STEPS for at in range(STEPS)])
        # A replica that has just started looks at all its parts first, and so does its first status for the page.
        for _ in range(CALM_LOOKS_MAX):
            if share(tab, pid, CALM_S) < CALM_PERCENT:
                break
        shares: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(rounds):
            tab.goto("about:blank")
            # What was asked for a moment ago is answered.
            tab.wait_for_timeout(5000)
            shares["without"].append(share(tab, pid, seconds))
            open_table(tab, page)
            tab.wait_for_timeout(5000)
            shares["with"].append(share(tab, pid, seconds))
        looks = tab.evaluate(
            "fetch('/api/looks').then((found) => found.json()).then((all) => all.map((each) => each.at))"
        )
    found["replica_percent_of_core"] = {name: [round(each, 2) for each in values] for name, values in shares.items()}
    # The first look reads the manifests of all parts, and the second one comes after the longest rest.
    found["look_every_s"] = round(statistics.median(after - before for before, after in pairwise(looks[1:])), 1)
    return found


def asked_ms(pid: int, ask: Callable[[], object], batch: int) -> tuple[float, float]:
    """Return the CPU time that a process takes for one request, and how long one takes, in milliseconds: medians of batches."""
    busy, took = list[float](), list[float]()
    for _ in range(BATCHES):
        before, began = cpu_s(pid), time.monotonic()
        for _ in range(batch):
            ask()
        busy.append(1000 * (cpu_s(pid) - before) / batch)
        took.append(1000 * (time.monotonic() - began) / batch)
    return statistics.median(busy), statistics.median(took)


def commit() -> str:
    """Return the commit that is measured."""
    git = ("git", "rev-parse", "--short", "HEAD")
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Fill, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.ui.measure", description=__doc__)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--watch", type=float, default=60.0, help="seconds over which the replica's CPU time is taken")
    parser.add_argument("--rounds", type=int, default=3, help="how often it is taken with and without the page")
    parser.add_argument("--record", type=Path, default=None, help="a file that gets a line with the figures")
    asked = parser.parse_args()
    keep = {"min_replicated_logs_to_keep": 2 * asked.entries, "max_replicated_logs_to_keep": 4 * asked.entries}
    with (
        tempfile.TemporaryDirectory() as temporary,
        LocalCluster(asked.dir or Path(temporary) / "c", 1, durable=False, settings=keep) as cluster,
    ):
        if TABLE not in cluster.tables():
            settings = {"parts_delay": asked.parts, "parts_max": 2 * asked.parts}
            schema = "p int not null, k bigint not null"
            table = cluster.create_table(TABLE, schema, order_by="k", partition_by="p", settings=settings)
            fill(table, asked.parts, asked.entries)
        cluster.table(TABLE).pause_merges()
        (process,) = cluster.processes
        with connect(cluster.folder) as connection, page_of(connection) as page:
            figures = measure(page, process.pid, asked.watch, asked.rounds)
            look, _ = asked_ms(process.pid, connection.status, 10)
            doctor, doctor_took = asked_ms(process.pid, connection.look_over, 2)
    doctor_every_s = min(DOCTOR_REST_S_MAX, max(DOCTOR_S, DOCTOR_REST * doctor_took / 1000))
    figures |= {
        "look_cpu_ms": round(look, 1),
        "doctor_cpu_ms": round(doctor, 1),
        "doctor_every_s": round(doctor_every_s),
    }
    figures["page_percent_of_core"] = round(look / 10 / figures["look_every_s"] + doctor / 10 / doctor_every_s, 2)
    figures = {
        "command": f"python -m tests.ui.measure --parts {asked.parts} --entries {asked.entries}",
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores, beside other work, load {os.getloadavg()[1]:.0f}",
        "parts": asked.parts,
        "entries": asked.entries,
        **figures,
    }
    print(json.dumps(figures, indent=1))
    if asked.record is not None:
        with asked.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
