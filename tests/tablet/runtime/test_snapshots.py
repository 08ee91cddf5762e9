"""Snapshots of a running tablet: made while commands go on, collected after, and enough to begin with."""

from __future__ import annotations

from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.pace import Limits
from replitree.tablet.group.ids import BlobId, Channel, Generation, GroupId
from tests.tablet.building import GROUP, TABLET, entry_id
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET, Group
from tests.waiting import wait_for


def blobs(group: Group, channel: int, member: int = 0) -> list[BlobId]:
    """Names of what a member has of a channel."""
    return [blob for blob in group.members[member].held.names if blob.channel == Channel(channel)]


def test_snapshot_takes_the_place_of_the_log_before_it() -> None:
    group = Group()
    with group.open() as tablet:
        for word in (b"a", b"b"):
            tablet.execute(word)
        assert tablet.snapshot()
        assert entry_id(1, 1) not in blobs(group, 0)
        tablet.execute(b"c")
        assert tablet.status().snapshot == (1, 3)
    with group.open() as second:
        assert second.read() == ("a", "b", "c")
        assert second.status().commands == 3


def test_snapshot_of_a_tablet_without_commands_is_one_of_its_begin() -> None:
    group = Group()
    with group.open() as tablet:
        assert tablet.snapshot()
    with group.open() as second:
        assert second.read() == ()


def test_next_snapshot_lets_the_one_before_go() -> None:
    group = Group()
    with group.open() as tablet:
        for number in range(4):
            tablet.execute(b"a")
            assert tablet.snapshot()
            assert len(blobs(group, 1)) == 2, f"snapshot {number} has a piece and the commands since"
    with group.open() as second:
        second.execute(b"b")
        assert second.snapshot()
        assert second.read() == ("a", "a", "a", "a", "b")
    assert all(len(blobs(group, 1, member)) == 2 for member in range(3))


def test_commands_on_their_way_are_in_the_snapshot() -> None:
    group = Group()
    with group.open(Settings(look_s=3600.0, limits=Limits(flights=2, batch_commands=1))) as tablet:
        tablet.execute(b"a")
        futures = [tablet.submit(b"b") for _ in range(20)]
        assert tablet.snapshot()
        assert [future.result(10) for future in futures] == [str(number).encode() for number in range(2, 22)]
        tablet.execute(b"c")
    with group.open() as second:
        assert second.read() == ("a", *("b",) * 20, "c")


def test_member_that_was_away_hears_what_is_kept_and_what_is_gone() -> None:
    group = Group()
    with group.open() as tablet:
        tablet.execute(b"a")
        group.members[2].trouble = "it is away"
        tablet.snapshot()
        group.members[2].trouble = None
        tablet.execute(b"b")
        assert tablet.snapshot()
        assert tablet.snapshot()
    held = [set(blobs(group, 1, member)) for member in range(3)]
    assert held[0] == held[1]
    assert held[2] <= held[0]
    group.members[2].trouble = "it is away"
    with group.open() as second:
        assert second.read() == ("a", "b")


def test_blobs_that_a_member_was_told_to_keep_go_although_the_leader_that_knew_is_gone() -> None:
    group = Group()
    with group.open() as tablet:
        tablet.execute(b"a")
        assert tablet.snapshot()
        group.members[2].trouble = "it is away"
        for word in (b"b", b"c"):
            tablet.execute(word)
            assert tablet.snapshot()
        assert len(blobs(group, 1)) == 2, "members that are there do not wait for the one that is away"
    group.members[2].trouble = None
    with group.open() as second:
        wait_for(lambda: second.status().is_mended)
        second.execute(b"d")
        assert second.snapshot()
        assert second.read() == ("a", "b", "c", "d")
    assert [len(blobs(group, 1, member)) for member in range(3)] == [2, 2, 2]


def test_group_that_a_channel_has_left_is_collected_although_a_member_was_away() -> None:
    group, other = Group(), GroupId("h")
    groups = group.beside(other)
    history = ((Generation(1), GROUP), (Generation(2), other))
    with open_tablet(groups, Words(), Channels(TABLET, (history, history)), settings=QUIET) as first:
        first.execute(b"a")
        assert first.snapshot()
    group.members[2].trouble = "it is away"
    with open_tablet(groups, Words(), Channels(TABLET, (history, history)), settings=QUIET) as second:
        second.execute(b"b")
        assert second.snapshot()
        group.members[2].trouble = None
        assert [len(group.members[number].held.names) for number in range(3)] == [0, 0, 4]
        assert second.snapshot()
        assert [group.members[number].held.names for number in range(3)] == [(), (), ()]
        assert second.read() == ("a", "b")


def test_snapshot_is_made_when_the_log_is_long() -> None:
    group = Group()
    with group.open(Settings(look_s=0.02, snapshot_entries=5)) as tablet:
        for _ in range(6):
            tablet.execute(b"a")
        wait_for(lambda: tablet.status().snapshot > (0, 0))
        assert tablet.read() == ("a",) * 6
