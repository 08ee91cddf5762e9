"""A blob group in memory whose members can be made to wait, and a clock that tests move."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from replitree.storage.blob_group import BlobGroups, MemberThread
from replitree.storage.blob_member import MemoryMember
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.channels import in_one_group
from replitree.tablet.member import Reply, Request, Write
from replitree.tablet.quorum import Quorum
from tests.tablet.building import GROUP, TABLET
from tests.tablet.machine import State, Words

CHANNELS = in_one_group(TABLET, GROUP)
QUIET = Settings(look_s=3600.0)
"""Nothing happens by itself."""


class Gated(MemoryMember):
    """A member that does not write while its gate is closed."""

    def __init__(self, incarnation: str) -> None:
        super().__init__(incarnation)
        self.gate = threading.Event()
        self.gate.set()
        self.writes = 0

    @override
    def answer(self, request: Request) -> Reply:
        """Do what is asked, when the gate is open."""
        if isinstance(request, Write):
            self.gate.wait()
            self.writes += 1
        return super().answer(request)


class Group:
    """Three members; `groups` is what a tablet is given."""

    def __init__(self) -> None:
        self.members = [Gated(str(number)) for number in range(3)]
        self.groups = self.again()

    def again(self) -> BlobGroups:
        """Return the group as another process has it."""
        return BlobGroups({GROUP: (Quorum(GROUP, 3, 2), [MemberThread(member) for member in self.members])})

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let nothing be written meanwhile."""
        for member in self.members:
            member.gate.clear()
        try:
            yield
        finally:
            for member in self.members:
                member.gate.set()

    def open(self, settings: Settings = QUIET) -> Tablet[State]:
        """Lead the tablet."""
        return open_tablet(self.groups, Words(), CHANNELS, settings=settings)


class ManualClock:
    """A clock that stands still, and counts how often it was looked at."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000
        self.looks = 0

    def __call__(self) -> int:
        """Return the time."""
        self.looks += 1
        return self.now_ns

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.now_ns += round(seconds * 1e9)
