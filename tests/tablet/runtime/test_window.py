"""What is on its way is limited: whatever is more waits, and a snapshot does, too."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core import commit
from replitree.tablet.core.pace import Limits
from tests.tablet.building import entry_id
from tests.tablet.machine import State, Words
from tests.tablet.runtime.group import CHANNELS, QUIET, Delayed, Group
from tests.waiting import wait_for

ONE_EACH = Settings(look_s=3600.0, limits=Limits(flights=2, batch_commands=1))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def slow(group: Group) -> Delayed:
    """The group, whose puts can be held."""
    return Delayed(group.groups)


@pytest.fixture(params=["STEPS_MAX", "BYTES_MAX"])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry may be on its way."""
    monkeypatch.setattr(commit, request.param, 1)


@pytest.fixture
def tablet(slow: Delayed) -> Iterator[Tablet[State]]:
    with open_tablet(slow, Words(), CHANNELS, settings=QUIET) as opened:
        yield opened


def test_entries_behind_one_that_takes_long_wait_when_the_window_is_full(
    group: Group, slow: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "STEPS_MAX", 3)
    with open_tablet(slow, Words(), CHANNELS, settings=ONE_EACH) as tablet:
        with slow.holding(lambda blob: blob == entry_id(1, 1)):
            futures = [tablet.submit(b"a") for _ in range(10)]
            wait_for(lambda: group.members[0].held.index(entry_id(1, 3)) is not None)
            assert not any(future.done() for future in futures)
            assert tablet.status().step == 3
        assert [future.result(10) for future in futures] == [str(number).encode() for number in range(1, 11)]


def test_command_of_a_caller_that_could_store_it_waits_for_room(
    slow: Delayed, tablet: Tablet[State], window: None
) -> None:
    with ThreadPoolExecutor(2) as pool:
        with slow.holding(lambda blob: blob == entry_id(1, 1)):
            snapshot = pool.submit(tablet.snapshot)
            wait_for(lambda: tablet.status().step == 1)
            answer = pool.submit(tablet.execute, b"a", 60.0)
            assert not answer.done()
        assert answer.result(60) == b"1"
        assert snapshot.result(60)


def test_snapshot_waits_for_room(slow: Delayed, tablet: Tablet[State], window: None) -> None:
    with ThreadPoolExecutor(1) as pool:
        with slow.holding(lambda blob: blob == entry_id(1, 1)):
            answer = tablet.submit(b"a")
            wait_for(lambda: tablet.status().step == 1)
            snapshot = pool.submit(tablet.snapshot)
            assert not snapshot.done()
        assert snapshot.result(60)
        assert answer.result(60) == b"1"
    assert tablet.is_leading


def test_snapshot_that_waits_for_room_hears_that_its_leader_has_ended(
    slow: Delayed, tablet: Tablet[State], group: Group, window: None
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with slow.holding(lambda blob: blob == entry_id(1, 1)):
            tablet.submit(b"a")
            wait_for(lambda: tablet.status().step == 1)
            snapshot = pool.submit(tablet.snapshot)
            group.members[0].trouble = group.members[1].trouble = "it is broken"
        error = snapshot.exception(60)
    assert "it is broken" in str(error)
