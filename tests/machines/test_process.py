"""A candidate in a group whose log can't be read: it says so to whoever asks, and leads when that is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.machines.apis import APIS
from replitree.machines.process import CandidatePlace, CandidateProcess
from replitree.machines.service import Service
from replitree.tablet.members.folders import make_group
from tests.tablet.runtime.group import QUIET
from tests.waiting import wait_for


@pytest.fixture
def service() -> Iterator[Service]:
    served = Service(APIS["register"])
    yield served
    served.close()


@pytest.fixture
def candidate(tmp_path: Path, service: Service) -> Iterator[CandidateProcess]:
    make_group(tmp_path)
    found = CandidateProcess(service.api, CandidatePlace(tmp_path), QUIET, service, lambda _: None)
    for member in ("0", "1"):
        (tmp_path / member).rename(tmp_path / f"away{member}")
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    yield found
    found.stop.set()
    thread.join(30)


def test_candidate_says_why_it_is_not_elected_until_it_is(
    tmp_path: Path, service: Service, candidate: CandidateProcess
) -> None:
    wait_for(lambda: service.status().get("failures"))
    said = service.status()
    assert (said["error"], "away" in said["reason"]) == ("StoreError", False)
    for member in ("0", "1"):
        (tmp_path / f"away{member}").rename(tmp_path / member)
    wait_for(lambda: service.status()["role"] == "leader")
    assert (service.failures, service.failure) == (0, None)
