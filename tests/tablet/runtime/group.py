"""A blob group in memory whose members can be made to wait, and a clock that tests move."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from typing_extensions import override

from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.group.effects import Procedure, Put
from replitree.tablet.group.ids import BlobId, GroupId
from replitree.tablet.group.member import Reply, Request, Write
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members.group import BlobGroups, MemberThread
from replitree.tablet.members.member import MemoryMember
from replitree.tablet.runtime.performing import Groups
from tests.tablet.building import GROUP, TABLET
from tests.tablet.machine import State, Words

T = TypeVar("T")

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

    def beside(self, other: GroupId) -> BlobGroups:
        """Return the group with another one of three members beside it."""
        more = (Quorum(other, 3, 2), [MemberThread(MemoryMember(str(number))) for number in range(3)])
        own = (Quorum(GROUP, 3, 2), [MemberThread(member) for member in self.members])
        return BlobGroups({GROUP: own, other: more})

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

    def open(self, settings: Settings = QUIET, machine: Words | None = None) -> Tablet[State]:
        """Lead the tablet."""
        return open_tablet(self.groups, machine or Words(), CHANNELS, settings=settings)


class Delayed:
    """A group some of whose puts take their time.

    Attributes
    ----------
    waiting
        How many there were that had to wait.
    """

    def __init__(self, groups: Groups) -> None:
        self.waiting = 0
        self._groups = groups
        self._is_held: Callable[[BlobId], bool] = lambda _: False
        self._gate = threading.Event()

    def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure."""
        return self._groups.run(self._held(procedure))

    def missed(self) -> Mapping[tuple[GroupId, int], int]:
        """Return as of the group."""
        return self._groups.missed()

    def _held(self, procedure: Procedure[T]) -> Procedure[T]:
        outcome: Any = None
        try:
            while True:
                effect = procedure.send(outcome)
                if isinstance(effect, Put) and self._is_held(effect.blob):
                    self.waiting += 1
                    self._gate.wait()
                outcome = yield effect
        except StopIteration as stop:
            value: T = stop.value
            return value

    @contextmanager
    def holding(self, is_held: Callable[[BlobId], bool]) -> Iterator[None]:
        """Hold the puts of some blobs meanwhile."""
        self._gate.clear()
        self._is_held = is_held
        try:
            yield
        finally:
            self._is_held = lambda _: False
            self._gate.set()


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
