"""Generations from a sequencer: outdated ones are passed over, and one that is handed out twice has one leader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from replitree.coordination.embedded import free_ports
from replitree.errors import NotLeader, Unavailable
from replitree.machines.apis import APIS
from replitree.machines.generations import Generations
from replitree.machines.service import Service
from replitree.tablet import open as open_tablet
from replitree.tablet.members.folders import make_group
from tests.machines.rounds.candidates import Candidate, ask, leader_of
from tests.machines.test_service import ask as ask_service
from tests.tablet.machine import Words
from tests.tablet.runtime.group import CHANNELS, QUIET, Group
from tests.waiting import wait_for

SEQUENCE = "/sequences/generations-g-1"


@contextmanager
def sequencer() -> Iterator[Service]:
    """A sequencer on a group in memory."""
    service = Service(APIS["sequencer"])
    with open_tablet(Group().groups, service.api.machine, CHANNELS, settings=QUIET) as tablet:
        service.tablet = tablet
        yield service
        service.tablet = None
    service.close()


def test_every_generation_is_new_and_outdated_ones_are_passed_over() -> None:
    with sequencer() as service:
        generations = Generations([service.url], "g", 1)
        assert [generations.take(0), generations.take(0)] == [1, 2]
        assert generations.take(40) > 40
        assert ask_service(service, "GET", SEQUENCE)[1]["last"] < 50, "no more are used up than needed"


def test_the_one_that_leads_is_found_and_without_one_nobody_stands() -> None:
    idle = Service(APIS["sequencer"])
    (closed,) = free_ports(1)
    with sequencer() as service:
        assert Generations([f"http://127.0.0.1:{closed}", idle.url, service.url], "g", 1).take(0) == 1
        with pytest.raises(Unavailable, match="serve sequencer"):
            Generations([f"http://127.0.0.1:{closed}", idle.url], "g", 1).take(0)
    idle.close()


def test_generation_that_is_handed_out_twice_has_one_leader() -> None:
    """Scenario 51: a sequencer that was set back gives 5 again."""
    group = Group()
    with open_tablet(group.groups, Words(), CHANNELS, settings=QUIET, assigned=5) as first:
        first.execute(b"before")
        with pytest.raises(NotLeader):
            open_tablet(group.again(), Words(), CHANNELS, settings=QUIET, assigned=5)
        first.execute(b"after")
    with open_tablet(group.again(), Words(), CHANNELS, settings=QUIET, assigned=6) as second:
        assert (first.generation, second.generation) == (5, 6)
        assert second.read() == ("before", "after")


@pytest.mark.system
def test_candidates_take_their_generations_from_a_sequencer_also_from_one_that_was_set_back(tmp_path: Path) -> None:
    ports = free_ports(4)
    with ExitStack() as processes:

        def started(machine: str, place: str, port: int, peers: list[int], *options: str) -> Candidate:
            candidate = Candidate(machine, tmp_path / place, port, peers, tmp_path / f"{port}.log", options)
            candidate.start()
            processes.callback(candidate.kill)
            return candidate

        for place in ("first", "second", "register"):
            make_group(tmp_path / place)
        counter = started("sequencer", "first", ports[0], [])
        leader_of([counter])
        ask(counter.url, "POST", "/sequences/generations-tablets-1", {"count": 20})
        options = ("--generations", counter.url)
        pair = [
            started("register", "register", own, [other], *options)
            for own, other in ((ports[1], ports[2]), (ports[2], ports[1]))
        ]
        leader = leader_of(pair)
        assert leader.status()["generation"] > 20
        before = leader.status()["generation"]
        counter.kill()
        leader.kill()
        (standby,) = [each for each in pair if each is not leader]
        wait_for(lambda: "no sequencer" in (standby.status().get("reason") or ""), "nobody stands without a sequencer")
        set_back = started("sequencer", "second", ports[0], [])
        wait_for(lambda: standby.status().get("role") == "leader", "the standby leads")
        assert set_back.url == counter.url
        assert standby.status()["generation"] > before
