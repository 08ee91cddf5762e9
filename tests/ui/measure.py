"""Measure the page: ``python -m tests.ui.measure --parts 100000 --entries 10000 [--dir FOLDER] [--watch SECONDS]``.

It fills a table of a cluster with one replica, insert by insert and without merges, opens it in a Chromium, and prints

* what the replica costs while one browser looks: its CPU time over the watched seconds, and without a browser, for comparison;
* when the browser has painted first, and when the whole picture is there, after a fresh load;
* how long a step of the time machine takes, from the key to the end of the next frame, near the end and across the whole log.

With ``--dir`` the cluster stays there, and is measured again without being filled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright

from replitree.client.cluster import LocalCluster
from replitree.client.connection import connect
from replitree.client.table import Table
from tests.ui.pages import KEY, Page, page_of
from tests.ui.test_page_system import CHROMIUM

TABLE = "t"
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


def cost(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes from now on, in per cent."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def open_table(tab: Tab, page: Page) -> None:
    """Show the table, and return when its parts are drawn."""
    tab.goto("about:blank")
    tab.goto(f"http://127.0.0.1:{page.port}/#/table/{TABLE}")
    tab.locator("svg.map").wait_for(timeout=120_000)


def measure(page: Page, pid: int, seconds: float) -> None:
    """Print the figures."""
    print(f"replica without a browser: {cost(pid, seconds):.2f} % of a core over {seconds:.0f} s")
    with sync_playwright() as playwright:
        tab = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
        tab.goto(f"http://127.0.0.1:{page.port}/?key={KEY.replace(' ', '+')}")
        tab.locator(".card").wait_for(timeout=120_000)
        for attempt in ("first", "second", "third"):
            began = time.monotonic()
            open_table(tab, page)
            whole = time.monotonic() - began
            print(
                f"{attempt} load: first paint after {tab.evaluate(PAINT):.0f} ms, parts drawn after {whole * 1000:.0f} ms"
            )
        tab.wait_for_timeout(20_000)
        tail = int(tab.locator("[data-part=slider]").get_attribute("max") or 0)
        for name, positions in (
            ("one entry back", [None] * 20),
            ("anywhere", [tail * (7 * at % 20) // 20 for at in range(20)]),
        ):
            took = [float(tab.evaluate(STEP, position)) for position in positions]
            print(f"{name}: median {statistics.median(took):.0f} ms, worst of {len(took)} {max(took):.0f} ms")
        print(f"replica while a browser looks: {cost(pid, seconds):.2f} % of a core over {seconds:.0f} s")


def main() -> None:
    """Fill, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.ui.measure", description=__doc__)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--watch", type=float, default=60.0, help="seconds over which the replica's CPU time is taken")
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
            measure(page, process.pid, asked.watch)


if __name__ == "__main__":
    main()
