"""One candidate for a tablet in a group of directories: it stands by, leads, serves, and stands by again."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import replitree.tablet
from replitree.errors import NotLeader, ReplitreeError
from replitree.machines.apis import Api
from replitree.machines.generations import Generations
from replitree.machines.service import Service
from replitree.machines.standing_by import LOOK_S, PeerCandidate, ask, delay_s
from replitree.tablet.members.folders import open_group
from replitree.tablet.runtime.settings import Settings

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CandidatePlace:
    """Which tablet a candidate stands for.

    Attributes
    ----------
    folder
        Of the group's file.
    tablet
        Which tablet of the group.
    peers
        Addresses of the other candidates.
    generations
        Addresses of a sequencer that hands out generations; none: candidates choose theirs.
    """

    folder: Path
    tablet: int = 1
    peers: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()


class CandidateProcess:
    """Stands by and leads until it is stopped.

    Parameters
    ----------
    api
        The machine.
    place
        Which tablet.
    settings
        How it runs while it leads.
    service
        Where clients ask.
    say
        Takes a line for people.
    """

    def __init__(self, api: Api, place: CandidatePlace, settings: Settings, service: Service, say: Say) -> None:
        self._api = api
        self._place = place
        self._settings = settings
        self._service = service
        self._say = say
        self._peers: Sequence[PeerCandidate] = [PeerCandidate(url) for url in place.peers]
        self._floor = 0
        self.stop = threading.Event()

    def run(self) -> None:
        """Stand by and lead, in turn."""
        idle_since: float | None = None
        while not self.stop.is_set():
            self._peers = [ask(peer) for peer in self._peers]
            draw = random.random()  # noqa: S311 - a chance, not a secret
            own = PeerCandidate(self._service.url, seed=self._service.seed)
            delay = delay_s(own, self._peers, self._service.failures, draw)
            if delay is None:
                idle_since = None
                self._service.leader_found()
            else:
                idle_since = time.monotonic() if idle_since is None else idle_since
                if time.monotonic() - idle_since >= delay:
                    self._service.is_standing = True
                    try:
                        self._lead_group()
                    except NotLeader as error:
                        # A sequencer may be behind the tablet: the next candidate asks for more than this.
                        self._floor = max(self._floor, error.generation or 0)
                        self._not_elected(error)
                    except ReplitreeError as error:
                        self._not_elected(error)
                    finally:
                        self._service.is_standing = False
                    idle_since = None
                    continue
            self.stop.wait(LOOK_S)

    def _not_elected(self, error: ReplitreeError) -> None:
        self._service.not_elected(error)
        self._say(f"not elected: {error}")
        self.stop.wait(LOOK_S)

    def _lead_group(self) -> None:
        group = open_group(self._place.folder)
        for number, obstacle in enumerate(group.obstacles):
            if obstacle is not None:
                self._say(f"member {number} does not take part: {obstacle}")
        # Asked when a client wants to know: members come and go.
        self._service.away = lambda: group.away
        place, assigned = self._place, None
        try:
            if place.generations:
                assigned = Generations(place.generations, group.group, place.tablet).take(self._floor)
            tablet = replitree.tablet.open(
                group,
                self._api.machine,
                tablet=place.tablet,
                settings=self._settings,
                floor=self._floor,
                assigned=assigned,
            )
            self._service.leader_found()
            self._say(f"leads generation {tablet.generation}")
            self._service.tablet = tablet
            try:
                while tablet.is_leading and not self.stop.is_set():
                    self.stop.wait(LOOK_S)
            finally:
                self._say(f"leads no more: {tablet.status().reason or 'it was stopped'}")
                self._service.tablet = None
                self._service.draw()
                tablet.close(timeout_s=5.0)
        finally:
            group.close()


def run(api: Api, place: CandidatePlace, settings: Settings, port: int, say: Say) -> int:
    """Serve until SIGTERM or SIGINT; report the address, the leader, and why this process does not lead."""
    service = Service(api, port)
    candidate = CandidateProcess(api, place, settings, service, say)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: candidate.stop.set())
    say(f"listens at {service.url}")
    try:
        candidate.run()
    finally:
        service.close()
    return 0
