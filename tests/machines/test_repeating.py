"""Number 38 of `docs/tablet-failures.md`: a client in doubt repeats its command after a take-over; it has one effect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replitree.machines.apis import APIS
from replitree.machines.service import Service
from replitree.tablet import open as open_tablet
from tests.machines.test_service import ask
from tests.tablet.runtime.group import CHANNELS, QUIET, Group

AWAY = {"stored": (0, 1), "not stored": (0, 1, 2)}
"""The members that are away while the command is sent: what the third one has, the next leader finds."""


@pytest.fixture(params=["register", "sequencer"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    served = Service(APIS[request.param])
    yield served
    served.close()


def leave_in_doubt(service: Service, group: Group, path: str, body: object, away: tuple[int, ...]) -> None:
    """Send a command to a leader that can't tell whether it is stored, and is over."""
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        for number in away:
            group.members[number].trouble = "it is away"
        status, said = ask(service, service.api.method, path, body)
        assert (status, said["error"]) == (504, "CommandUnknown")
    for number in away:
        group.members[number].trouble = None


@pytest.mark.parametrize("service", ["register"], indirect=True)
@pytest.mark.parametrize("became", sorted(AWAY))
def test_38_put_that_is_repeated_has_one_effect(service: Service, became: str) -> None:
    group, body = Group(), {"expected": 0, "value": "mine"}
    leave_in_doubt(service, group, "/values/a", body, AWAY[became])
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        for attempt in range(3):
            status, said = ask(service, "PUT", "/values/a", body)
            is_new = became == "not stored" and not attempt
            assert status == (200 if is_new else 409)
            assert (said["version"], said["value"], said["generation"]) == (1, "mine", 2)


@pytest.mark.parametrize("service", ["sequencer"], indirect=True)
@pytest.mark.parametrize("became", sorted(AWAY))
def test_38_numbers_that_are_asked_for_again_are_new_ones(service: Service, became: str) -> None:
    group = Group()
    leave_in_doubt(service, group, "/sequences/s", {"count": 3}, AWAY[became])
    with open_tablet(group.groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        _, said = ask(service, "POST", "/sequences/s", {"count": 3})
        assert said["first"] == (4 if became == "stored" else 1)
        assert ask(service, "POST", "/sequences/s")[1]["first"] == said["last"] + 1
