"""The page in a real browser: a Chromium that is installed, driven by Playwright.  Without one these tests are skipped.

On Debian ``apt-get install chromium`` brings one; ``REPLITREE_CHROMIUM`` names another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from playwright.sync_api import Page as Tab

from replitree.client.connection import Connection
from replitree.errors import CoordinationUnavailable
from replitree.machines.apis import APIS
from replitree.machines.service import Service
from replitree.tablet import open as open_tablet
from replitree.tablet.members.folders import make_group, open_group
from replitree.ui.extras import Extras
from replitree_verify.registry import explore
from tests.project.source import ROOT
from tests.replica.inprocess import TOKEN, InProcessCluster, rows
from tests.tablet.machine import Words
from tests.ui.pages import KEY, Page, page_of

CHROMIUM = os.environ.get("REPLITREE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
ANSWER_MS = 60_000
VIEWS = {
    "#/": "Overview",
    "#/table/t": "t",
    "#/history/t": "History of t",
    "#/storage": "Storage",
    "#/shards": "Shards and moves",
    "#/tablets": "Tablets and coordination",
    "#/trace": "Trace of the checker",
}

DROP = """(text) => {
  const data = new DataTransfer();
  data.items.add(new File([text], 'dropped.txt', { type: 'text/plain' }));
  document.querySelector('main').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
}"""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed; on Debian: apt-get install chromium"),
]


@pytest.fixture(autouse=True)
def _is_asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page does not rest between two looks, however long they take on a loaded machine."""
    for name, value in (("LOOK_S", 0.5), ("REST", 0.0), ("DOCTOR_S", 0.5), ("DOCTOR_REST", 0.0)):
        monkeypatch.setattr(f"replitree.ui.observer.{name}", value)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that containers rarely give; the page is ours.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def filled(cluster: InProcessCluster) -> InProcessCluster:
    with cluster.connect() as connection:
        table = connection.table("t")
        for number in range(8):
            table.insert(rows(10 * number))
        table.optimize()
        table.delete("k = 3")
    cluster.wait_alike()
    return cluster


@pytest.fixture
def page(cluster: InProcessCluster, tmp_path: Path) -> Iterator[Page]:
    """The page with a tablet's group, a candidate, and a trace of the checker."""
    group, trace = tmp_path / "group", tmp_path / "trace.json"
    make_group(group)
    opened = open_group(group)
    with open_tablet(opened, Words()) as tablet:
        tablet.execute(b"a")
    opened.close()
    trace.write_bytes(msgspec.json.encode(explore("read_linearizable", "read-without-sync"), enc_hook=str))
    candidate = Service(APIS["register"])
    try:
        with (
            cluster.connect() as connection,
            page_of(connection, Extras((candidate.url, str(group)), trace)) as served,
        ):
            yield served
    finally:
        candidate.close()


class Watched:
    """A tab, what went wrong in it, and which servers it asked."""

    def __init__(self, context: BrowserContext, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.tab: Tab = context.new_page()
        self.tab.set_default_timeout(ANSWER_MS)
        self.tab.on(
            "console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None
        )
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on("request", self._asked)
        self.tab.goto(f"http://127.0.0.1:{page.port}/?key={KEY.replace(' ', '+')}")
        expect(self.tab.locator(".card")).to_have_count(1, timeout=ANSWER_MS)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"http://127.0.0.1:{self.page.port}/", "blob:", "data:")):
            self.problems.append(f"it asked {request.url}")

    def show(self, view: str) -> None:
        self.tab.goto(f"http://127.0.0.1:{self.page.port}/{view}")
        expect(self.tab.locator("h1")).to_have_text(VIEWS[view], timeout=ANSWER_MS)
        if "table/" in view:
            expect(self.tab.locator("svg.map")).to_be_visible(timeout=ANSWER_MS)
            expect(self.tab.locator(".u-wrap")).to_have_count(2, timeout=ANSWER_MS)
        if "history" in view:
            expect(self.tab.locator("tbody tr").first).to_be_visible(timeout=ANSWER_MS)
        if "tablets" in view:
            expect(self.tab.locator("svg.line")).to_be_visible(timeout=ANSWER_MS)
        if "trace" in view:
            expect(self.tab.locator("svg.trace")).to_be_visible(timeout=ANSWER_MS)
        if "storage" in view:
            expect(self.tab.locator("svg.tiers")).to_be_visible(timeout=ANSWER_MS)
        if view == "#/":
            expect(self.tab.locator(".well, .findings").first).to_be_visible(timeout=ANSWER_MS)


def test_a_cluster_that_does_not_answer_is_told_and_comes_back(
    browser: Browser, page: Page, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CoordinationUnavailable("no server answers")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "status", fail)
        context = browser.new_context()
        tab, errors = context.new_page(), list[str]()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"http://127.0.0.1:{page.port}/?key={KEY.replace(' ', '+')}")
        expect(tab.locator("#problem")).to_contain_text("no server answers", timeout=ANSWER_MS)
    expect(tab.locator(".card")).to_have_count(1, timeout=ANSWER_MS)
    expect(tab.locator("#problem")).to_be_hidden()
    assert errors == []
    context.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)])
def test_every_view_is_accessible_and_asks_nobody_else(
    browser: Browser, page: Page, filled: InProcessCluster, theme: Any, width: int
) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 800})
    watched = Watched(context, page)
    for view in VIEWS:
        watched.show(view)
        wide = watched.tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{view} is {wide} pixels wide"
        watched.tab.evaluate(AXE)
        found = watched.tab.evaluate(
            "axe.run().then((found) => found.violations.map((each) => "
            "[each.id, each.help, each.nodes.slice(0, 3).map((node) => node.html)]))"
        )
        assert found == [], view
    assert watched.problems == []
    context.close()


def test_the_time_machine_shows_what_the_table_was(browser: Browser, page: Page, filled: InProcessCluster) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context, page)
    watched.show("#/table/t")
    slider, position = watched.tab.locator("[data-part=slider]"), watched.tab.locator("[data-part=position]")
    expect(position).to_contain_text("(newest)")
    with filled.connect() as connection:
        table = connection.table("t")
        tail = table.status().log_tail
        for index in (5, tail - 1, tail):
            # By the keyboard alone.
            slider.focus()
            watched.tab.keyboard.press("Home")
            expect(position).to_contain_text("Position 0 of")
            for _ in range(index):
                watched.tab.keyboard.press("ArrowRight")
            with table.snapshot(as_of=index) as snapshot:
                names = {each.part.removeprefix("all_") for each in snapshot.parts}
            expect(position).to_contain_text(f"Position {index} of {tail}")
            expect(position).to_contain_text(f"{len(names)} part")
            titles = watched.tab.locator("svg.map g[data-partition] title").all_text_contents()
            assert {title.split(":")[0].split()[-1].removeprefix("all_") for title in titles} == names
        # A new insert appears by itself.
        table.insert(rows(9000))
    expect(position).to_contain_text(f"Position {tail + 1} of {tail + 1} (newest)", timeout=ANSWER_MS)
    assert watched.problems == []
    context.close()


def test_every_control_is_reached_by_keyboard(browser: Browser, page: Page, filled: InProcessCluster) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context, page)
    watched.show("#/table/t")
    watched.tab.locator(".brand").focus()
    reached = set()
    for _ in range(40):
        watched.tab.keyboard.press("Tab")
        reached.add(
            watched.tab.evaluate(
                "(document.activeElement.dataset.step ?? document.activeElement.dataset.part)"
                " ?? document.activeElement.id"
            )
        )
    assert {"first", "back", "play", "on", "last", "speed", "slider", "only", "by", "save", "theme", "jump"} <= reached
    watched.tab.locator("[data-step=first]").press("Enter")
    watched.tab.locator("[data-part=speed]").select_option("1000")
    watched.tab.locator("[data-step=play]").press("Enter")
    expect(watched.tab.locator("[data-part=position]")).to_contain_text("(newest)", timeout=ANSWER_MS)
    assert watched.problems == []
    context.close()


def test_a_trace_is_gone_through_by_keyboard_and_ends_in_the_violation(
    browser: Browser, page: Page, filled: InProcessCluster
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watched = Watched(context, page)
    watched.show("#/trace")
    step, chosen = watched.tab.locator("[data-part=step]"), watched.tab.locator("svg.trace .chosen")
    expect(step).to_contain_text("Step 1 of 10")
    watched.tab.locator("[data-part=slider]").focus()
    watched.tab.keyboard.press("ArrowRight")
    expect(step).to_contain_text("Step 2 of 10, r1 in ins 1")
    expect(step).to_contain_text("applied as log-0")
    watched.tab.locator("[data-step=last]").press("Enter")
    expect(step).to_contain_text("should at 1 or above")
    watched.tab.locator("svg.trace [data-at='3'] rect").click()
    expect(chosen).to_have_attribute("data-at", "3")
    assert watched.problems == []
    context.close()


def test_a_file_that_is_chosen_here_is_shown_and_one_that_is_no_trace_says_so(
    browser: Browser, page: Page, filled: InProcessCluster
) -> None:
    context = browser.new_context()
    watched = Watched(context, page)
    watched.show("#/trace")
    files = watched.tab.locator("input[type=file]")
    golden = next((ROOT / "tests" / "verify" / "golden").glob("counterexample_look*.txt"))
    files.set_input_files(golden)
    expect(watched.tab.locator("[data-part=verdict]")).to_contain_text("I2")
    files.set_input_files({"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no trace <b>"})
    expect(watched.tab.locator("[data-part=note]")).to_contain_text("this file has no trace")
    expect(watched.tab.locator("svg.trace")).to_be_hidden()
    # Dropped anywhere in the view.
    watched.tab.evaluate(DROP, golden.read_text())
    expect(watched.tab.locator("svg.trace")).to_be_visible()
    assert watched.problems == []
    context.close()


def test_theme_is_switched_and_remembered(browser: Browser, page: Page, filled: InProcessCluster) -> None:
    context = browser.new_context(color_scheme="light")
    watched = Watched(context, page)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = watched.tab.evaluate(paper)
    watched.tab.locator("#theme").click()
    dark = watched.tab.evaluate(paper)
    watched.tab.reload()
    assert light != dark == watched.tab.evaluate(paper)
    context.close()


def test_a_script_finds_no_cookie_and_no_token(browser: Browser, page: Page, filled: InProcessCluster) -> None:
    context = browser.new_context()
    watched = Watched(context, page)
    assert watched.tab.evaluate("document.cookie") == ""
    assert KEY.replace(" ", "+") not in watched.tab.url
    assert TOKEN not in watched.tab.content()
    # An address that was used before shows nothing in another browser.
    other = browser.new_context().new_page()
    other.goto(f"http://127.0.0.1:{page.port}/?key={KEY.replace(' ', '+')}")
    expect(other.locator("body")).to_contain_text("used before")
    context.close()


def test_a_saved_view_is_one_file_without_scripts(
    browser: Browser, page: Page, filled: InProcessCluster, tmp_path: Path
) -> None:
    context = browser.new_context(accept_downloads=True)
    watched = Watched(context, page)
    watched.show("#/table/t")
    with watched.tab.expect_download() as download:
        watched.tab.locator("#save").click()
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    assert "<script" not in saved.read_text(encoding="utf-8")
    alone = browser.new_context(offline=True)
    tab = alone.new_page()
    tab.goto(saved.as_uri())
    expect(tab.locator("svg.map")).to_be_visible()
    expect(tab.locator("svg.line")).to_be_visible()
    assert tab.evaluate("getComputedStyle(document.querySelector('svg.map .frame')).fill") != "rgb(0, 0, 0)"
    alone.close()
    context.close()
