"""How often a leader that starts again waits for an object store: requests that are on their way at once are one round trip.

The server lets requests pass in rounds: it holds each until all of its round have come.  So whatever waits for an answer
without need never comes, and whatever is asked for beside is noticed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from replitree.errors import NotLeader
from replitree.tablet import open as open_tablet
from replitree.tablet.members import store_state as blob_store_state
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.members.places import MemberPlace
from tests.storage.objects import s3_server
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET

HELD_S = 60.0
LOG = "0000000000000001/00"
"""Of tablet 1."""


def kind_of(request: str) -> str:
    """Return what a request is: a method, and the state, the log, a listing of it, or another blob."""
    method, _, path = request.partition(" ")
    place, _, query = path.partition("?")
    if "list-type" in query:
        return "LIST"
    name = "state" if place.endswith("/state") else "log" if f"/blobs/{LOG}/" in place else "blob"
    return f"{method} {name}"


class Rounds:
    """Holds each request until all of its round have come; what comes after the last round, until the restart is over.

    Parameters
    ----------
    plan
        The requests of each round.

    Attributes
    ----------
    strays
        Requests that came in a round that they are none of, or waited in vain for the others of theirs.
    """

    def __init__(self, plan: Sequence[Sequence[str]]) -> None:
        self.strays: list[str] = []
        self.round = 0
        self._is_over = False
        self._left = [Counter(each) for each in plan]
        self._turn = threading.Condition()

    def __call__(self, request: str) -> None:
        """Return when all of this round have come."""
        kind = kind_of(request)
        with self._turn:
            mine = self.round
            if mine == len(self._left):
                if not self._turn.wait_for(lambda: self._is_over, HELD_S):
                    self._give_up(f"{request} after the last round")
                return
            if not self._left[mine][kind]:
                self._give_up(f"{request} in round {mine + 1}")
                return
            self._left[mine][kind] -= 1
            if not self._left[mine].total():
                self.round += 1
                self._turn.notify_all()
            elif not self._turn.wait_for(lambda: self.round != mine, HELD_S):
                self._give_up(f"{request} waited for {dict(+self._left[mine])} in round {mine + 1}")

    def _give_up(self, why: str) -> None:
        self.strays.append(why)
        self.end()

    def end(self) -> None:
        """Hold nothing any more."""
        with self._turn:
            self._is_over, self.round = True, len(self._left)
            self._turn.notify_all()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_server, "PAGE_OBJECTS", 1000)
    monkeypatch.setattr(blob_store_state, "SEEN_S", HELD_S)
    with S3Server() as server:
        yield server


@pytest.fixture
def folder(server: S3Server, tmp_path: Path) -> Path:
    """Make a group of one place on the server, in which a tablet was led once."""
    make_group(tmp_path / "group", members=[MemberPlace(store=server.url())])
    lead(tmp_path / "group", [b"a", b"b"])
    return tmp_path / "group"


def lead(folder: Path, words: Sequence[bytes] = (), *, snapshot: bool = False) -> tuple[str, ...]:
    """Open the group and lead the tablet, commit, and return the state."""
    group = open_group(folder)
    try:
        with open_tablet(group, Words(), settings=QUIET) as tablet:
            for word in words:
                tablet.execute(word)
            assert not snapshot or tablet.snapshot()
            return tablet.read()
    finally:
        group.close()


def objects_in(server: S3Server, channel: int) -> int:
    """Return how many blobs of a channel of tablet 1 there are."""
    return sum(f"/blobs/0000000000000001/{channel:02x}/" in key for key in server.state.objects)


def restart_of(server: S3Server) -> Rounds:
    """Return the rounds of a restart without a tail: the state; fence; log; zero entry and snapshot; the state."""
    log, snapshot = ["GET log"] * objects_in(server, 0), ["GET blob"] * objects_in(server, 1)
    return Rounds([["GET state"], ["PUT state", "LIST"], ["LIST", *log], ["PUT log", *snapshot], ["GET state"]])


@pytest.mark.parametrize("snapshot", [False, True])
def test_restart_without_a_tail_takes_five_round_trips(server: S3Server, folder: Path, snapshot: bool) -> None:
    lead(folder, snapshot=snapshot)
    lead(folder)  # what was a tail is confirmed now
    server.state.arrives = rounds = restart_of(server)
    group = open_group(folder)
    with open_tablet(group, Words(), settings=QUIET) as tablet:
        assert rounds.round == 5
        rounds.end()
        assert rounds.strays == []
        assert tablet.read() == ("a", "b")
        assert tablet.generation == 4
    group.close()


def test_round_trip_too_many_is_noticed(server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_store_state, "SEEN_S", -1.0)  # so the fence is asked for
    server.state.arrives = rounds = restart_of(server)
    lead(folder)
    assert rounds.strays[0].endswith("/state in round 2")


def test_candidate_that_saw_the_fence_before_another_one_raised_it_is_not_elected(folder: Path) -> None:
    first, second = open_group(folder), open_group(folder)
    with open_tablet(first, Words(), settings=QUIET) as tablet:
        with pytest.raises(NotLeader):
            open_tablet(second, Words(), settings=QUIET)
        assert tablet.read() == ("a", "b")
        with open_tablet(second, Words(), settings=QUIET) as later:  # it has seen the fence by now
            assert later.generation == tablet.generation + 1
            assert later.read() == ("a", "b")
    for group in (first, second):
        group.close()
