"""Who gets the page: the key once, then the cookie, from this machine, and nothing for another site."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from replitree.ui.door import HEADERS
from tests.replica.inprocess import TOKEN, InProcessCluster
from tests.ui.pages import KEY, Page

PATHS = (
    "/",
    "/static/app.js",
    "/api/overview",
    "/api/log?table=t",
    "/api/events",
    "/api/tablets",
    "/api/trace",
    "/nothing",
    "/static/../../door.py",
)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_a_cookie(page: Page, path: str) -> None:
    for cookie in ("", f"replitree-page-{page.port}=guess", "other=1"):
        page.cookie = cookie
        answer = page.ask(path)
        assert answer.status == 403
        assert b"replitree ui" in answer.body
        assert "set-cookie" not in answer.headers


def test_the_key_works_once(page: Page) -> None:
    assert page.ask("/?key=wrong").status == 403
    assert page.enter().ask("/").status == 200
    again = page.ask("/?key=" + KEY.replace(" ", "+"))
    assert again.status == 403
    assert b"used before" in again.body
    assert page.ask("/").status == 200, "the cookie goes on"


def test_the_cookie_is_kept_from_scripts_and_other_sites(page: Page) -> None:
    answer = page.ask("/?key=" + KEY.replace(" ", "+"))
    attributes = {each.strip().lower() for each in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert KEY not in answer.headers["set-cookie"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", ""])
def test_another_host_is_refused_even_with_the_key(page: Page, host: str) -> None:
    assert page.ask("/?key=" + KEY.replace(" ", "+"), Host=host).status == 421
    page.enter()
    assert page.ask("/api/overview", Host=host).status == 421


def test_a_tunnel_may_have_another_port(page: Page) -> None:
    assert page.enter().ask("/api/overview", Host="localhost:9000").status == 200


@pytest.mark.parametrize(
    ("site", "status"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)]
)
def test_requests_of_other_origins_are_refused(page: Page, site: str, status: int) -> None:
    assert page.enter().ask("/api/overview", **{"Sec-Fetch-Site": site}).status == status


def test_every_answer_has_the_headers(page: Page) -> None:
    refused = page.ask("/")
    page.enter()
    found = [page.ask(path) for path in ("/", "/static/page.css", "/api/overview", "/nothing", "/api/log?table=no")]
    for answer in (refused, *found):
        assert {name.lower(): value for name, value in HEADERS.items()}.items() <= answer.headers.items()
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_what_changes_something_is_refused(page: Page) -> None:
    page.enter()
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert page.ask("/api/overview", method=method).status == 405


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/log", 400, "table="),
        ("/api/log?table=no", 404, "does not exist"),
        ("/api/log?table=a/b", 400, "a/b"),
        ("/api/log?table=t&after=-1", 400, "whole number"),
        ("/api/log?table=t&after=" + "9" * 5000, 400, "whole number"),
        ("/api/log?table=t&after=%D9%A1", 400, "whole number"),
        ("/api/history?table=t&limit=0", 400, "limit"),
        ("/api/history?table=t&limit=9999999", 400, "limit"),
        ("/api/shards?table=t", 404, "t"),
        ("/api/parts?table=%00", 400, "name"),
    ],
)
def test_bad_input_is_a_sentence(page: Page, path: str, status: int, word: str) -> None:
    answer = page.enter().ask(path)
    assert answer.status == status
    assert word in answer.json["error"]


def test_only_files_of_the_page_are_served(page: Page) -> None:
    page.enter()
    for path in (
        "../door.py",
        "%2e%2e/door.py",
        "..%2fdoor.py",
        "vendor/../app.js",
        "vendor/uplot.LICENSE",
        "/etc/passwd",
        "",
    ):
        assert page.ask(f"/static/{path}").status == 404


def test_the_token_is_in_no_answer(page: Page, cluster: InProcessCluster) -> None:
    page.enter()
    with page.events() as events:
        told = str(next(events))
    for path in (
        "/",
        "/api/overview",
        "/api/looks",
        "/api/log?table=t",
        "/api/parts?table=t",
        "/api/history?table=t",
        "/api/waits?table=t",
        "/api/aside?table=t",
        "/api/tablets",
        "/api/trace",
    ):
        answer = page.ask(path)
        assert answer.status == 200
        assert TOKEN not in answer.body.decode() + str(answer.headers) + told


def test_noise_is_answered_or_dropped_and_the_page_goes_on(page: Page, tmp_path: Path) -> None:
    page.enter()
    for noise in (
        b"\0" * 100,
        b"GET / HTTP/9\r\n\r\n",
        b"GET /?key=%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01" * 9,
    ):
        with socket.create_connection(("127.0.0.1", page.port), timeout=30) as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1 << 16)
            assert b" 500 " not in answer.split(b"\r\n")[0]
    assert page.ask("/api/overview").status == 200
