"""What HTTP clients hear: answers of the leader, and which errors are certain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from replitree.errors import TabletDamaged
from replitree.machines.apis import APIS
from replitree.machines.service import BODY_BYTES_MAX, Service
from replitree.tablet import open as open_tablet
from tests.tablet.runtime.group import CHANNELS, QUIET, Group


@pytest.fixture(params=["register", "sequencer"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    served = Service(APIS[request.param])
    yield served
    served.close()


def ask(service: Service, method: str, path: str, body: object = None) -> tuple[int, Mapping[str, Any]]:
    """Ask for something."""
    address = urlsplit(service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_machine_is_served_while_its_tablet_is_led(service: Service) -> None:
    group = Group()
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        assert ask(service, "GET", "/status")[1]["role"] == "leader"
        if service.api is APIS["register"]:
            assert ask(service, "PUT", "/values/a", {"expected": 0, "value": "x"})[0] == 200
            status, said = ask(service, "PUT", "/values/a", {"expected": 0, "value": "y"})
            assert (status, said) == (409, {"version": 1, "value": "x", "generation": 1})
            assert ask(service, "GET", "/values/a")[1]["value"] == "x"
        else:
            assert ask(service, "POST", "/sequences/s", {"count": 3})[1] == {"first": 1, "last": 3, "generation": 1}
            assert ask(service, "POST", "/sequences/s")[1]["first"] == 4
            assert ask(service, "GET", "/sequences/s")[1]["last"] == 4
            assert ask(service, "POST", "/sequences/s", {"count": 0})[0] == 400
        assert ask(service, "POST", "/snapshot") == (200, {"is_made": True})


def test_process_that_does_not_lead_says_so(service: Service) -> None:
    assert ask(service, "GET", "/status")[1]["role"] == "standby"
    status, said = ask(service, "GET", f"/{service.api.path}/a")
    assert (status, said["error"]) == (503, "NotLeader")
    assert ask(service, "POST", "/snapshot")[0] == 503


def test_process_that_was_not_elected_says_why_until_a_leader_is_found(service: Service) -> None:
    assert ask(service, "GET", "/status")[1]["reason"] is None
    for _ in range(2):
        service.not_elected(TabletDamaged("2 confirmed entries can't be found"))
    said = ask(service, "GET", "/status")[1]
    assert (said["role"], said["failures"], said["error"]) == ("standby", 2, "TabletDamaged")
    assert said["reason"] == "2 confirmed entries can't be found"
    status, said = ask(service, "GET", f"/{service.api.path}/a")
    assert (status, said["error"]) == (503, "NotLeader")
    assert "it was not elected: 2 confirmed entries can't be found" in said["message"]
    service.leader_found()
    said = ask(service, "GET", "/status")[1]
    assert (said["failures"], said["error"], said["reason"]) == (0, None, None)


def test_doubt_is_not_certainty(service: Service) -> None:
    group = Group()
    body = {"expected": 0, "value": "x"} if service.api is APIS["register"] else {}
    path = f"/{service.api.path}/a"
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        group.members[0].trouble = group.members[1].trouble = "it is away"
        status, said = ask(service, service.api.method, path, body)
        assert (status, said["error"]) == (504, "CommandUnknown")
        status, said = ask(service, service.api.method, path, body)
        assert (status, said["error"]) == (503, "NotLeader")
        assert ask(service, "GET", "/status")[1]["role"] == "deposed"


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/nothing/a"), ("GET", "/values/a/b")])
def test_request_that_is_none_is_refused(service: Service, method: str, path: str) -> None:
    assert ask(service, method, path)[0] == 400


def test_body_that_is_none_or_too_large_is_refused(service: Service) -> None:
    group = Group()
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        assert ask(service, service.api.method, f"/{service.api.path}/a", {"other": 1})[0] == 400
    address = urlsplit(service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=10)
    connection.putrequest("PUT", "/values/a")
    connection.putheader("Content-Length", str(BODY_BYTES_MAX + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
