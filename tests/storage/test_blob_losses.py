"""Giving up what a group of directories has lost: who must answer, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import BadInput, Unavailable
from replitree.storage.blob_folders import make_group, open_group
from replitree.storage.blob_frames import OVERHEAD_BYTES, frame_of
from replitree.storage.blob_losses import Losses
from replitree.tablet import open as open_tablet
from replitree.tablet.channels import in_one_group
from replitree.tablet.ids import Generation, Step, TabletId, log_entry
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET


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
    name = frame_of(log_entry(TabletId(1), Generation(1), Step(step)), b"")[:24]
    (path,) = [each for each in (folder / str(member)).glob("blobs/*/00/*.seg") if name in each.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.find(name) + OVERHEAD_BYTES] ^= 1
    path.write_bytes(data)


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
