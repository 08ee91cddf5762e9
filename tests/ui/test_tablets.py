"""Tablets on the page: what candidates say, and what lies in a group; looking changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from typing_extensions import override

from replitree.machines.apis import APIS
from replitree.machines.service import Service
from replitree.tablet import open as open_tablet
from replitree.tablet.members.folders import make_group, open_group
from replitree.ui.tablets import CandidateStatus, Tablets, ask_candidate, read_status
from tests.tablet.machine import Words
from tests.ui.engine import evaluate
from tests.waiting import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group whose tablet was led twice."""
    make_group(tmp_path)
    for _ in range(2):
        group = open_group(tmp_path)
        with open_tablet(group, Words()) as tablet:
            for _ in range(3):
                tablet.execute(b"a")
        group.close()
    return tmp_path


@pytest.fixture
def service() -> Iterator[Service]:
    served = Service(APIS["register"])
    yield served
    served.close()


def group_of(tablets: Tablets) -> dict[str, Any]:
    (found,) = tablets.look()["groups"]
    plain = msgspec.to_builtins(found)
    assert isinstance(plain, dict)
    return plain


def test_generations_and_members_of_a_group_are_seen(folder: Path) -> None:
    found = group_of(Tablets((str(folder),)))
    assert (found["problem"], found["write"], len(found["members"])) == ("", 2, 3)
    report = found["report"]
    assert (report["verdict"], list(report["members"])) == ("sound", [None, None, None])
    (tablet,) = report["tablets"]
    assert [each["generation"] for each in tablet["generations"]] == [1, 2]
    root = ET.fromstring(evaluate("generationLines(generations, 600)", generations=tablet["generations"]))
    assert "generation 2 has" in (root.get("aria-label") or "")


def test_a_leader_goes_on_while_its_group_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.ui.tablets.REST", 0.0)
    monkeypatch.setattr("replitree.ui.tablets.GROUP_S", 0.0)
    tablets, group = Tablets((str(folder),)), open_group(folder)
    with open_tablet(group, Words()) as tablet:
        for number in range(3):
            tablet.execute(b"b")
            fences = group_of(tablets)["report"]["tablets"][0]["fences"]
            assert max(fence or 0 for fence in fences) <= tablet.generation, f"look {number} has fenced"
        assert tablet.is_leading
    group.close()


def test_a_group_is_read_again_only_after_a_rest(folder: Path) -> None:
    tablets = Tablets((str(folder),))
    first = tablets.look()["groups"][0]
    assert tablets.look()["groups"][0] is first


def test_a_folder_without_a_group_says_so(tmp_path: Path) -> None:
    found = group_of(Tablets((str(tmp_path),)))
    assert found["report"] is None
    assert "there is no blob group" in found["problem"]


def test_a_candidate_tells_its_role(service: Service, folder: Path) -> None:
    assert ask_candidate(service.url).role == "standby"
    group = open_group(folder)
    with open_tablet(group, Words()) as tablet:
        service.tablet = tablet
        wait_for(lambda: tablet.status().is_mended, "it is mended")
        found = ask_candidate(service.url)
        assert (found.problem, found.role, found.generation) == ("", "leader", tablet.generation)
        service.tablet = None
    group.close()


def test_a_port_without_a_process_is_told(service: Service) -> None:
    service.close()
    assert ask_candidate(service.url) == CandidateStatus(service.url, problem="no process listens there")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"away":"2"}', b"<html>", b'{"generation":"x"}', b"\xff", b"[" * 5000])
def test_what_is_no_candidates_answer_is_a_problem(body: bytes) -> None:
    found = read_status("http://h:1", 200, body)
    assert found.problem.startswith("it does not answer as a candidate does")
    assert "404" in read_status("http://h:1", 404, b"{}").problem


def test_a_candidate_can_not_say_that_it_is_another_one() -> None:
    assert read_status("http://h:1", 200, b'{"url":"http://other:2","problem":"x","role":"leader"}').url == "http://h:1"


def test_a_process_that_sends_without_end_is_read_to_a_limit() -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(1000):
                    self.wfile.write(b"[" * 10_000)
            except OSError:
                return

        @override
        def log_message(self, format: str, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Endless)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        found = ask_candidate(f"http://127.0.0.1:{server.server_address[1]}")
        assert found.problem.startswith("it does not answer")
        assert len(json.dumps(found.problem)) < 1000
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
