"""The page as a process: `replitree ui`, and the one that `replitree up` starts when a browser first asks."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from replitree.tablet.members.folders import make_group
from tests.cli.started import COMMAND, STOP_S_MAX, start_up, stop

pytestmark = pytest.mark.system

START_S_MAX = 60.0


def ask(address: str, path: str, cookie: str = "") -> tuple[int, str, bytes]:
    """Ask a page; return the status, the cookie that was set, and the body."""
    where = urlsplit(address)
    assert where.hostname == "127.0.0.1"
    connection = http.client.HTTPConnection("127.0.0.1", where.port or 0, timeout=START_S_MAX)
    try:
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Set-Cookie", "").partition(";")[0], answer.read()
    finally:
        connection.close()


def enter(address: str) -> str:
    """Use the key in an address; return the cookie."""
    where = urlsplit(address)
    status, cookie, _ = ask(address, f"{where.path}?{where.query}")
    assert status == 200
    return cookie


def test_up_starts_the_page_when_a_browser_first_asks(tmp_path: Path) -> None:
    cluster = start_up(tmp_path / "data", "--replicas", "1")
    page, log = cluster.ready["page"], tmp_path / "data" / "page.log"
    try:
        cluster.run("table", "create", "seen", "--schema", "id bigint not null")
        assert not log.exists(), "no browser has asked: there is no process"
        assert ask(page, "/")[0] == 403
        assert log.exists()
        cookie = enter(page)
        status, _, body = ask(page, "/api/log?table=seen", cookie)
        assert (status, json.loads(body)["tail"]) == (200, 0)
        assert ask(page, f"/?{urlsplit(page).query}")[0] == 403, "the key works once"
        assert log.read_text() == "", "the key is in no log"

        trace = tmp_path / "trace.json"
        trace.write_text('{"trace": []}')
        (tmp_path / "group").mkdir()
        make_group(tmp_path / "group")
        extras = ("--tablet", str(tmp_path / "group"), "--trace", str(trace))
        process = subprocess.Popen(
            [*COMMAND, "ui", "--dir", str(cluster.folder), "--json", *extras], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        another = json.loads(process.stdout.readline())["address"]
        assert ask(another, "/api/overview", cookie)[0] == 403, "each page has cookies of its own"
        cookie_there = enter(another)
        assert ask(another, "/api/overview", cookie_there)[0] == 200
        assert json.loads(ask(another, "/api/trace", cookie_there)[2])["name"] == "trace.json"
        (group,) = json.loads(ask(another, "/api/tablets", cookie_there)[2])["groups"]
        assert group["report"]["members"] == [None, None, None]
        port = str(urlsplit(another).port)
        assert "choose another --port" in cluster.run("ui", "--port", port, status=2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_S_MAX)
        assert process.returncode == 0
    finally:
        stop(cluster)
    with pytest.raises(ConnectionRefusedError):
        ask(page, "/", cookie)
