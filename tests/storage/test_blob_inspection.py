"""What `inspect` and `verify` say of a group of directories: sound, damaged, or not known."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.cli.output import EXIT_UNFINISHED
from replitree.errors import BadInput, StoreError
from replitree.storage.objects import ObjectInfo, ObjectStore
from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.group.ids import TabletId
from replitree.tablet.members.asking import SILENT
from replitree.tablet.members.directory import LOCK
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.members.inspection import GroupReport, inspect, look_at
from replitree.tablet.members.places import MemberPlace
from tests.tablet.machine import Words
from tests.waiting import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group whose tablet was led twice."""
    make_group(tmp_path)
    for _ in range(2):
        lead(tmp_path)
    return tmp_path


def lead(folder: Path, commands: int = 3) -> None:
    """Lead the tablet for a few commands."""
    group = open_group(folder)
    channels = in_one_group(TabletId(1), group.group)
    with open_tablet(group.groups, Words(), channels, settings=Settings(look_s=3600.0)) as tablet:
        for _ in range(commands):
            tablet.execute(b"a")
        wait_for(lambda: tablet.status().is_mended)
    group.groups.close()


def report(folder: Path) -> GroupReport:
    """Look at a group."""
    return inspect(look_at(folder))


def damage(folder: Path, member: int, from_end: int = 20) -> None:
    """Change a byte of the newest log segment of a member: the payload of its last frame, or further to the front."""
    path = max((folder / str(member)).glob("blobs/*/00/*.seg"))
    data = bytearray(path.read_bytes())
    data[-from_end] ^= 0x5A
    path.write_bytes(bytes(data))


def test_group_that_is_whole_is_sound(folder: Path) -> None:
    found = report(folder)
    assert found.verdict == "sound"
    (tablet,) = found.tablets
    assert tablet.fences == (1, 1, 1)
    first, second = tablet.generations
    assert (first.generation, first.entries, first.last, first.confirmed) == (1, 3, 3, 2)
    assert second.zero == {"snapshot": "0:0", "predecessor": "1:3", "tail_accepted": [], "tail_declined": []}
    assert first.decisions == ()
    assert second.decisions == ((3, "would be accepted"),)


def test_looking_changes_nothing(folder: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    report(folder)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_member_that_hangs_is_unknown_and_the_others_are_looked_at(folder: Path) -> None:
    with (folder / "1" / LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a process that stands still in the middle of a request
        found = report(folder)
    assert found.verdict == "unknown"
    assert found.members == (None, SILENT.reason, None)
    (tablet,) = found.tablets
    assert tablet.fences == (1, None, 1)
    assert tablet.wrong == ()
    assert tablet.generations[0].entries == 3


def test_one_damaged_copy_is_found(folder: Path) -> None:
    damage(folder, 1)
    found = report(folder)
    assert found.verdict == "damaged"
    assert found.tablets[0].wrong == ("member 1: blob 1/0/2:3/0 does not match its checksum",)


def test_confirmed_entry_that_every_member_has_lost_is_found(folder: Path) -> None:
    lead(folder, 0)
    for path in folder.glob("*/blobs/*/00/00000001-*.seg"):
        path.unlink()
    found = report(folder)
    assert found.verdict == "damaged"
    assert "entry 1:1 was confirmed and is not there" in found.tablets[0].wrong


def test_damage_that_hides_what_it_was_is_found(folder: Path) -> None:
    size = max((folder / "2").glob("blobs/*/00/*.seg")).stat().st_size
    damage(folder, 2, from_end=size - 5)
    found = report(folder)
    assert found.verdict == "damaged"
    assert "is data that can't be told" in found.tablets[0].wrong[0]


def test_member_that_is_away_leaves_it_unknown(folder: Path) -> None:
    (folder / "0").rename(folder / "away")
    found = report(folder)
    assert found.verdict == "unknown"
    assert found.tablets[0].wrong == ()
    assert len(found.tablets[0].generations) == 2


def test_log_is_unknown_when_too_few_members_are_there(folder: Path) -> None:
    for member in (0, 1):
        (folder / str(member)).rename(folder / f"away{member}")
    found = report(folder)
    assert found.verdict == "unknown"
    assert any(each.startswith("the log:") for each in found.tablets[0].unknown)


def test_one_member_can_be_looked_at_alone(folder: Path) -> None:
    assert report(folder / "1").verdict == "sound"
    for path in (folder / "1").glob("blobs/*/00/00000001-*.seg"):
        path.unlink()
    found = report(folder / "1")
    assert found.verdict == "unknown"
    assert any("others may have it" in each for each in found.tablets[0].unknown)


def test_what_a_snapshot_replaced_is_not_damage_any_more(folder: Path) -> None:
    size = max((folder / "2").glob("blobs/*/00/*.seg")).stat().st_size
    damage(folder, 2, from_end=size - 5)
    group = open_group(folder)
    channels = in_one_group(TabletId(1), group.group)
    with open_tablet(group.groups, Words(), channels, settings=Settings(look_s=3600.0)) as tablet:
        assert tablet.snapshot()
    group.groups.close()
    assert report(folder).verdict == "sound"


def test_store_that_can_not_be_listed_leaves_it_unknown_which_tablets_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_group(tmp_path, members=[MemberPlace(store=f"file://{tmp_path}/objects")])
    lead(tmp_path)
    assert report(tmp_path).verdict == "sound"

    def fail(*_: object) -> Iterator[ObjectInfo]:
        raise StoreError("listing is not allowed")

    monkeypatch.setattr(ObjectStore, "list", fail)
    found = report(tmp_path)
    assert (found.verdict, found.members, found.tablets) == ("unknown", (None,), ())
    assert found.unknown == (
        "member 0 does not say which tablets it has, so some may not have been looked at: listing is not allowed",
    )
    for command in ("inspect", "verify"):
        assert main(["tablet", command, str(tmp_path)]) == EXIT_UNFINISHED
        assert "UNKNOWN  member 0 does not say which tablets it has" in capsys.readouterr().out


def test_member_that_can_not_be_listed_is_unknown_although_the_others_can(folder: Path) -> None:
    (folder / "1" / "blobs").rename(folder / "1" / "aside")
    found = report(folder)
    assert found.verdict == "unknown"
    assert len(found.tablets) == 1


def test_folder_that_is_no_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no blob group"):
        look_at(tmp_path)
