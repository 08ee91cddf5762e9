"""Where the group of the rounds lies, and what is done to it: three directories, or a real S3 server behind a proxy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from replitree.errors import ReplitreeError
from replitree.tablet.members.folders import make_group
from replitree.tablet.members.places import MemberPlace
from tests.machines.rounds.candidates import Candidate, ask
from tests.machines.rounds.disks import KINDS, MemberDisk, mount, unmount
from tests.shared.s3_proxy import CALM, Ill, Mix, S3Proxy
from tests.storage.objects.seaweed import KEYS, Seaweed
from tests.waiting import wait_for


class Ground(Protocol):
    """A group, and faults of it, one at a time."""

    group: Path
    """The folder of its file."""

    environment: Mapping[str, str]
    """What candidates need to know."""

    @property
    def kinds(self) -> frozenset[str]:
        """What can be done to it here."""

    def hurt(self, draw: random.Random) -> tuple[str, str]:
        """Do something to it, each kind as often as any other; return the kind, and what was done, for people."""

    def heal(self, leader: Candidate) -> None:
        """Wait until who leads has mended what can be, and undo the rest."""

    def can_go_on_without(self) -> bool:
        """Whether a process that stands still at this moment keeps nobody from going on."""

    def close(self) -> None:
        """End what was started."""


class Turns:
    """Each kind as often as any other one, in a drawn order."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def next(self, kinds: Iterable[str], draw: random.Random) -> str:
        """Return one of the kinds that can be had now: one that was had least often."""
        possible = sorted(kinds)
        fewest = min(self._counts[kind] for kind in possible)
        kind = draw.choice([kind for kind in possible if self._counts[kind] == fewest])
        self._counts[kind] += 1
        return kind


class Directories:
    """Three directories, of which one is missing, an old copy, rotten or full.

    Parameters
    ----------
    folder
        For all of it.
    """

    def __init__(self, folder: Path) -> None:
        self.group = folder / "group"
        self.environment: Mapping[str, str] = {}
        self._small = folder / "small"
        self._is_mounted = mount(self._small)
        places = [folder / "0", folder / "1", self._small / "2"]
        make_group(self.group, members=places)
        self._disks = [MemberDisk(place, folder / f"spare-{place.name}") for place in places]
        self._hurt: tuple[MemberDisk, str] | None = None
        self._turns = Turns()

    @property
    def kinds(self) -> frozenset[str]:
        """All, or all but `full` for whoever may not mount."""
        return frozenset(kind for kind in KINDS if kind != "full" or self._is_mounted)

    def hurt(self, draw: random.Random) -> tuple[str, str]:
        """Let one of them fail."""
        able = {kind: [disk for disk in self._disks if disk.can_be(kind)] for kind in self.kinds}
        kind = self._turns.next([kind for kind, disks in able.items() if disks], draw)
        disk = draw.choice(able[kind])
        self._hurt = disk, kind
        return kind, disk.hurt(kind, draw)

    def heal(self, leader: Candidate) -> None:
        """Bring back what was there before."""
        assert self._hurt is not None
        disk, kind = self._hurt
        if kind != "full":  # one that is full has what it missed when there is room again
            wait_for(lambda: leader.status().get("is_mended"), "the new leader restores what members miss")
        if kind == "rot":
            wait_for(lambda: _snapshot(leader), "a snapshot lets the member forget what rotted")
        disk.heal()
        for each in self._disks:
            each.keep_copy()

    def can_go_on_without(self) -> bool:
        """Whether nobody holds a directory: who stands still in the middle of a request holds it until the kernel lets go."""
        return all(disk.is_free for disk in self._disks)

    def close(self) -> None:
        """Remove the small file system."""
        if self._is_mounted:
            unmount(self._small)


class OnS3:
    """SeaweedFS, and a proxy before it that loses answers and requests, or delivers them late.

    Parameters
    ----------
    folder
        For all of it.
    seed
        What the proxy draws comes from this.
    """

    MIXES: Mapping[str, Mix] = {
        "lost answers": Mix(((Ill.LOSE_ANSWER, 0.04), (Ill.CUT_ANSWER, 0.02), (Ill.ERROR_AFTER, 0.02))),
        "late requests": Mix(((Ill.LATE, 0.03), (Ill.LOSE_ANSWER, 0.02))),
        "a busy store": Mix(((Ill.SLOW_DOWN, 0.05), (Ill.DELAY, 0.2)), delay_s=0.1),
        "everything": Mix.even(0.01, delay_s=0.1),
    }

    def __init__(self, folder: Path, seed: int) -> None:
        self.environment: Mapping[str, str] = KEYS
        self.group = folder / "group"
        (folder / "s3").mkdir()
        self._server = Seaweed(folder / "s3")
        self._server.start()
        self._proxy = S3Proxy(self._server.port, seed)
        place = MemberPlace(store=self._server.url("rounds", self._proxy.endpoint))
        make_group(self.group, members=[place])
        self._turns = Turns()

    @property
    def kinds(self) -> frozenset[str]:
        """All."""
        return frozenset(self.MIXES)

    def hurt(self, draw: random.Random) -> tuple[str, str]:
        """Let requests suffer from now on."""
        kind = self._turns.next(self.MIXES, draw)
        self._proxy.mix = self.MIXES[kind]
        return kind, kind

    def heal(self, leader: Candidate) -> None:
        """Let all requests pass; wait for those that are late."""
        self._proxy.mix = CALM
        wait_for(lambda: not self._proxy.late, "late requests arrive")
        wait_for(lambda: leader.status().get("is_mended") is not None, "the new leader answers")

    def can_go_on_without(self) -> bool:
        """Return True: a store knows of no locks."""
        return True

    def close(self) -> None:
        """End the proxy and the server."""
        self._proxy.close()
        self._server.kill()


GROUNDS: Mapping[str, Callable[[Path, int], Ground]] = {
    "directories": lambda folder, _: Directories(folder),
    "s3": OnS3,
}


def _snapshot(leader: Candidate) -> bool:
    try:
        return bool(ask(leader.url, "POST", "/snapshot", patience_s=30.0)[1]["is_made"])
    except ReplitreeError:
        return False
