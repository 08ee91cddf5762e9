"""A leader with a lease answers reads by itself, and its successor waits for it."""

from __future__ import annotations

import threading
import time

import pytest

from replitree.errors import NotLeader
from replitree.tablet import Settings
from replitree.tablet.runtime.settings import boot_ns
from tests.tablet.building import TABLET
from tests.tablet.runtime.group import Group, ManualClock
from tests.waiting import wait_for


def settings(clock: ManualClock, lease_s: float = 10.0) -> Settings:
    """A leader with a lease, by this clock."""
    return Settings(look_s=3600.0, lease_s=lease_s, clock=clock)


def test_leader_with_a_lease_asks_nobody() -> None:
    group, clock = Group(), ManualClock()
    with group.open(settings(clock)) as tablet:
        tablet.execute(b"a")
        for member in group.members:
            member.trouble = "it is away"
        assert tablet.read() == ("a",)
        for member in group.members:
            member.trouble = None


def test_read_after_the_lease_sends_an_entry_that_renews_it() -> None:
    group, clock = Group(), ManualClock()
    with group.open(settings(clock)) as tablet:
        tablet.execute(b"a")
        clock.advance(10.0)
        assert tablet.read() == ("a",)
        assert tablet.status().step == 2
        assert tablet.read() == ("a",)
        assert tablet.status().step == 2


def test_lease_of_an_entry_that_was_on_its_way_too_long_is_no_lease() -> None:
    group, clock = Group(), ManualClock()
    with group.open(settings(clock)) as tablet:
        with group.closed():
            future = tablet.submit(b"a")
            wait_for(lambda: tablet.status().step == 1)
            clock.advance(10.0)
        future.result(10)
        writes = group.members[0].writes
        assert tablet.read() == ("a",)
        wait_for(lambda: group.members[0].writes > writes)


def test_successor_waits_for_twice_the_lease() -> None:
    group, clock = Group(), ManualClock()
    first = group.open(settings(clock))
    first.execute(b"a")
    opened: list[int] = []
    other = Settings(look_s=3600.0, clock=clock)

    def take_over() -> None:
        with group.open(other):
            opened.append(clock())

    thread = threading.Thread(target=take_over)
    thread.start()
    wait_for(lambda: (fence := group.members[0].held.fence(TABLET)) is not None and fence.generation == 1)
    assert first.read() == ("a",)
    assert not opened
    looks = clock.looks
    wait_for(lambda: clock.looks >= looks + 2)  # it knows when its fence held, and waits since
    assert not opened
    clock.advance(20.0)
    thread.join(30)
    assert opened
    with pytest.raises(NotLeader):
        first.read()
    first.close()


def test_lease_that_was_given_up_is_not_waited_for() -> None:
    group, clock = Group(), ManualClock()
    with group.open(settings(clock)) as first:
        first.execute(b"a")
    with group.open(settings(clock)) as second:
        assert second.read() == ("a",)


def test_clock_of_leases_is_not_behind_the_one_that_stands_while_suspended() -> None:
    assert boot_ns() >= time.clock_gettime_ns(time.CLOCK_MONOTONIC) - 1_000_000
