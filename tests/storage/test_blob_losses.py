"""Giving up what a group of directories has lost: who must answer, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replitree.errors import BadInput, TabletDamaged, Unavailable
from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.core.election import open_generation
from replitree.tablet.core.snapshots import DATA
from replitree.tablet.group.ids import LOG, BlobId, Generation, Step, TabletId, log_entry
from replitree.tablet.members import losses as blob_losses
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.members.frames import MAGIC, OVERHEAD_BYTES, Frame, frame_of, scan
from replitree.tablet.members.losses import Losses, longest_wait_s
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET
from tests.waiting import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group whose members have four entries of a tablet each."""
    make_group(tmp_path)
    group = open_group(tmp_path)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        for word in (b"a", b"b", b"c", b"d"):
            tablet.execute(word)
    group.close()
    return tmp_path


def damage(folder: Path, member: int, step: int) -> None:
    """Let a member's copy of an entry rot."""
    flip(folder, member, log_entry(TabletId(1), Generation(1), Step(step)), OVERHEAD_BYTES)


def damage_if_there(folder: Path, member: int, step: int) -> None:
    """Let a member's copy of an entry rot, if it has one."""
    blob = log_entry(TabletId(1), Generation(1), Step(step))
    if any(frame.blob == blob for frame in frames_of(folder, member)):
        damage(folder, member, step)


def flip(folder: Path, member: int, blob: BlobId, offset: int) -> None:
    """Change a bit of a member's copy of a blob, so many bytes after the begin of its frame."""
    name = frame_of(blob, b"")[:24]
    (path,) = [each for each in (folder / str(member)).glob("blobs/*/*/*.seg") if name in each.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.find(name) + offset] ^= 1
    path.write_bytes(data)


def frames_of(folder: Path, member: int) -> list[Frame]:
    """Return the frames of all segments of a member."""
    return [
        frame for path in (folder / str(member)).glob("blobs/*/*/*.seg") for frame in scan(path.read_bytes()).frames
    ]


def words_of(folder: Path) -> tuple[str, ...]:
    """Lead the tablet and return what it has."""
    group = open_group(folder)
    try:
        with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
            return tablet.read()
    finally:
        group.close()


def test_member_that_falls_silent_is_not_taken_for_one_that_has_nothing(folder: Path) -> None:
    for member in (0, 1):
        damage(folder, member, 3)
    losses = Losses(folder, 1)
    (folder / "2").rename(folder / "away")  # it has the last copy, and was there when the group was opened
    with pytest.raises(Unavailable, match="bring back what is silent, or name it with --without"):
        losses.look()
    losses.close()
    named = Losses(folder, 1, (2,))
    assert named.look().unreadable == ("entry 1:3 was confirmed and is not there",)
    named.close()
    (folder / "away").rename(folder / "2")
    whole = Losses(folder, 1)
    with pytest.raises(BadInput, match="no loss to accept"):
        whole.look()
    whole.close()


def test_group_that_is_not_there_is_not_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="bring it back") as refused:
        Losses(tmp_path / "elsewhere", 1)
    assert "tablet make" not in str(refused.value)


def test_tablet_that_is_not_there_has_lost_nothing(folder: Path) -> None:
    losses = Losses(folder, 7)
    with pytest.raises(BadInput, match="tablet 7 has no entries in this group"):
        losses.look()
    losses.close()


def test_zero_entry_of_the_first_generation_is_not_missed(folder: Path) -> None:
    for member in range(3):
        damage(folder, member, 0)
    losses = Losses(folder, 1)
    with pytest.raises(BadInput, match="no loss to accept"):
        losses.look()
    losses.close()
    assert words_of(folder) == ("a", "b", "c", "d")


def test_lost_zero_entry_and_lost_state_take_what_rests_on_them(folder: Path) -> None:
    group = open_group(folder)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        assert tablet.snapshot()
    group.close()
    assert words_of(folder) == ("a", "b", "c", "d")
    zero = log_entry(TabletId(1), Generation(3), Step(0))
    for member in range(3):
        flip(folder, member, zero, OVERHEAD_BYTES)
    losses = Losses(folder, 1)
    found = losses.look()
    assert (str(found.kept), found.unreadable) == ("2:1", (f"log entry {zero} is damaged",))
    assert losses.accept(found, "ann", "rot").kept == found.kept
    losses.close()
    assert words_of(folder) == ("a", "b", "c", "d")
    state = next(frame.blob for frame in frames_of(folder, 0) if frame.blob.channel == DATA)
    for member in range(3):
        flip(folder, member, state, OVERHEAD_BYTES)
    with pytest.raises(TabletDamaged, match="lacks"):
        words_of(folder)
    losses = Losses(folder, 1)
    found = losses.look()
    assert found.unreadable == (f"blob {state} of the snapshot 2:1, and with it everything before, can't be read",)
    record = losses.accept(found, "ann", "rot again")
    losses.close()
    assert (str(record.kept), str(record.given_up[0])) == ("0:0", "2:1")
    assert words_of(folder) == ()


def test_nothing_is_given_up_while_two_members_can_not_tell_what_they_had(folder: Path) -> None:
    third = log_entry(TabletId(1), Generation(1), Step(3))
    for member in (0, 1):
        flip(folder, member, third, len(MAGIC))
    losses = Losses(folder, 1)
    with pytest.raises(Unavailable, match="can't tell any more which blobs it was"):
        losses.look()
    losses.close()
    with pytest.raises(Unavailable, match="can't tell any more"):
        words_of(folder)


class Opened:
    """A clock that goes on by three seconds when it is looked at, and what it says before a zero entry is stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0
        self.at_s: list[int] = []
        monkeypatch.setattr(blob_losses, "open_generation", self._open)

    def __call__(self) -> int:
        """Return nanoseconds."""
        self.now_s += 3
        return self.now_s * 10**9

    def _open(self, *given: Any) -> Any:
        self.at_s.append(self.now_s)
        return open_generation(*given)


@pytest.mark.parametrize(("lease_s", "least_s", "most_s"), [(None, 20, 30), (1.0, 20, 30), (40.0, 80, 90)])
def test_loss_is_accepted_when_twice_the_longest_lease_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease_s: float | None, least_s: int, most_s: int
) -> None:
    monkeypatch.setattr("replitree.tablet.runtime.patience.LOOK_S", 0.001)
    make_group(tmp_path)
    group = open_group(tmp_path)
    settings = Settings(look_s=3600.0, lease_s=10.0)
    with open_tablet(group, Words(), settings=settings) as tablet:
        for word in (b"a", b"b", b"c", b"d"):
            tablet.execute(word)
    group.close()
    for member in range(3):
        damage(tmp_path, member, 3)
    clock = Opened(monkeypatch)
    losses = Losses(tmp_path, 1, clock=clock)
    found = losses.look()
    assert longest_wait_s(found) == 20
    assert str(losses.accept(found, "ann", "rot", lease_s).kept) == "1:2"
    losses.close()
    ((opened_s),) = clock.at_s
    assert least_s <= opened_s <= most_s


def test_lease_that_nobody_can_tell_has_to_be_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for member in range(3):
        for step in range(6):
            damage_if_there(folder, member, step)
    clock = Opened(monkeypatch)
    losses = Losses(folder, 1, clock=clock)
    found = losses.look()
    assert longest_wait_s(found) is None
    with pytest.raises(BadInput, match="say --lease SECONDS"):
        losses.accept(found, "ann", "rot")
    assert clock.at_s == []
    assert str(losses.accept(found, "ann", "rot", lease_s=0.0).kept) == "0:0"
    losses.close()
    assert words_of(folder) == ()


def test_entry_that_one_member_can_not_tell_and_the_others_have_damaged_is_lost_and_no_more(folder: Path) -> None:
    flip(folder, 0, log_entry(TabletId(1), Generation(1), Step(3)), len(MAGIC))
    for member in (1, 2):
        damage(folder, member, 3)
    losses = Losses(folder, 1)
    found = losses.look()
    assert found.unreadable == ("entry 1:3 was confirmed and is not there",)
    assert str(losses.accept(found, "ann", "rot").kept) == "1:2"
    losses.close()
    for _ in range(2):
        assert words_of(folder) == ("a", "b")


def test_what_two_members_were_told_to_delete_is_not_kept_from_one_that_was_away(tmp_path: Path) -> None:
    make_group(tmp_path)
    group = open_group(tmp_path)
    with open_tablet(group.groups, Words(), in_one_group(TabletId(1), group.group), settings=QUIET) as tablet:
        for word in (b"a", b"b", b"c", b"d"):
            tablet.execute(word)
        # An acknowledged entry is on two members; the third one may still be writing it.
        wait_for(lambda: len(frames_of(tmp_path, 2)) == 5, "member 2 has the zero entry and the four words")
        (tmp_path / "2").rename(tmp_path / "away")
        assert tablet.snapshot()
    group.close()
    (tmp_path / "away").rename(tmp_path / "2")
    snapshot = log_entry(TabletId(1), Generation(1), Step(5))
    for member in (0, 1):
        blobs = [frame.blob for frame in frames_of(tmp_path, member)]
        assert next(blob for blob in blobs if blob.channel == LOG and blob.place >= snapshot.place) == snapshot
        for blob in blobs:
            if blob.channel == DATA or blob > snapshot:  # its state, and the entry that says it is confirmed
                flip(tmp_path, member, blob, OVERHEAD_BYTES)
    losses = Losses(tmp_path, 1)
    found = losses.look()
    assert "the snapshot 1:5, and with it everything before, can't be read, and the log is collected up to 1:4" in (
        found.unreadable
    )
    assert str(losses.accept(found, "ann", "rot").kept) == "0:0"
    losses.close()
    assert words_of(tmp_path) == ()
