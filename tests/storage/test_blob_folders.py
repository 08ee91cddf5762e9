"""A group of directories and its file: made, opened, a member away and back."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from replitree.errors import BadInput, StoreError, UnsupportedFormat
from replitree.tablet import Settings
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.group.effects import Procedure, ReadFence
from replitree.tablet.group.ids import Generation, GroupId, Step, TabletId, log_entry
from replitree.tablet.group.member import Contents, Scan
from replitree.tablet.members.directory import LOCK, BlobDirectory, make_blob_directory
from replitree.tablet.members.folders import NAME, OpenGroup, make_group, open_group, read_group
from replitree.tablet.members.inspection import inspect, look_at
from replitree.tablet.members.places import MemberPlace
from tests.storage.blob_service_provider import TOKEN, Services
from tests.tablet.machine import Words
from tests.tablet.runtime.group import QUIET
from tests.waiting import wait_for


def test_group_is_made_and_opened(tmp_path: Path) -> None:
    made = make_group(tmp_path / "g", "mine")
    assert (made.quorum.members, made.quorum.write) == (3, 2)
    assert read_group(tmp_path / "g") == made
    opened = open_group(tmp_path / "g")
    assert (opened.group, opened.obstacles) == ("mine", (None, None, None))
    opened.groups.close()


def test_members_may_lie_anywhere(tmp_path: Path) -> None:
    places = [tmp_path / f"disk{number}" / "blobs" for number in range(3)]
    for place in places:
        place.parent.mkdir()
    made = make_group(tmp_path / "g", members=places)
    assert [each.folder for each in made.members] == [str(place) for place in places]
    opened = open_group(tmp_path / "g")
    assert opened.obstacles == (None, None, None)
    opened.groups.close()


def test_group_is_not_made_twice(tmp_path: Path) -> None:
    make_group(tmp_path / "g")
    with pytest.raises(BadInput, match="already"):
        make_group(tmp_path / "g")


def test_member_that_is_away_is_let_in_when_it_is_back(tmp_path: Path) -> None:
    make_group(tmp_path)
    (tmp_path / "1").rename(tmp_path / "away")
    opened = open_group(tmp_path)
    assert [obstacle is None for obstacle in opened.obstacles] == [True, False, True]
    assert not opened.readmit()
    (tmp_path / "away").rename(tmp_path / "1")
    assert opened.readmit()
    assert opened.obstacles == (None, None, None)
    assert not opened.readmit()
    opened.groups.close()


def test_group_with_too_few_members_is_not_opened(tmp_path: Path) -> None:
    make_group(tmp_path)
    for number in (0, 1):
        (tmp_path / str(number)).rename(tmp_path / f"away{number}")
    with pytest.raises(StoreError, match="2 of 3 members are needed"):
        open_group(tmp_path)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (None, BadInput, "make a group with"),
        ("{", BadInput, "can't be read"),
        ('{"format": 3, "group": "g", "write": 1, "members": []}', UnsupportedFormat, "upgrade"),
    ],
)
def test_file_that_is_none_is_refused(tmp_path: Path, text: str | None, error: type[Exception], match: str) -> None:
    if text is not None:
        (tmp_path / NAME).write_text(text)
    with pytest.raises(error, match=match):
        read_group(tmp_path)


def test_group_of_a_directory_a_store_and_a_service_is_opened_and_looked_at(tmp_path: Path) -> None:
    services = Services()
    members: list[BlobDirectory] = []

    def serve(number: int) -> str:
        make_blob_directory(tmp_path / "served", "mixed", number, "s")
        members.append(BlobDirectory(tmp_path / "served"))
        return services.start(members[0])

    (tmp_path / "token").write_text(f"{TOKEN}\n")
    try:
        places = [MemberPlace(store=f"file://{tmp_path}/objects"), MemberPlace(service=serve(2), token_file="../token")]
        made = make_group(tmp_path / "g", "mixed", [tmp_path / "g" / "0", *places])
        assert (made.format, made.quorum.write, made.members[2].incarnation) == (2, 2, "s")
        opened = open_group(tmp_path / "g")
        with open_tablet(opened.groups, Words(), in_one_group(TabletId(1), opened.group), settings=QUIET) as tablet:
            assert tablet.execute(b"a") == b"1"
            wait_for(lambda: tablet.status().is_mended)
        opened.close()
        report = inspect(look_at(tmp_path / "g"))
        assert (report.verdict, [each.tablet for each in report.tablets]) == ("sound", [1])
        (tmp_path / "objects").rename(tmp_path / "away")
        opened = open_group(tmp_path / "g")
        assert [obstacle is None for obstacle in opened.obstacles] == [True, False, True]
        opened.close()
    finally:
        services.close()


def test_service_that_does_not_answer_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    place = MemberPlace(service="127.0.0.1:1", token_file=str(tmp_path / "token"))
    with pytest.raises(StoreError, match="start it with `replitree blobd --make mine --number 0`"):
        make_group(tmp_path / "g", "mine", [place])


def test_directory_that_vanishes_and_returns_under_a_leader_is_said_to_be_away_and_gets_what_it_missed(
    tmp_path: Path,
) -> None:
    make_group(tmp_path / "g")
    opened = open_group(tmp_path / "g")
    settings = Settings(look_s=0.02)
    with open_tablet(opened.groups, Words(), in_one_group(TabletId(1), opened.group), settings=settings) as tablet:
        tablet.execute(b"a")
        (tmp_path / "g" / "2").rename(tmp_path / "aside")
        tablet.execute(b"b")
        wait_for(lambda: opened.away == (2,))
        assert not opened.readmit()
        (tmp_path / "aside").rename(tmp_path / "g" / "2")
        wait_for(lambda: opened.away == () and tablet.status().is_mended)
        assert _steps(tmp_path / "g" / "2") == [0, 1, 2]
    opened.close()


def _steps(folder: Path) -> list[int]:
    first, last = (log_entry(TabletId(1), Generation(1), Step(each)) for each in (0, 9))
    reply = BlobDirectory(folder).answer(Scan(first, last))
    assert isinstance(reply, Contents)
    return [blob.step for blob, _ in reply.blobs]


def test_member_that_does_not_answer_for_long_is_away(tmp_path: Path) -> None:
    make_group(tmp_path / "g")
    opened = OpenGroup(tmp_path / "g", read_group(tmp_path / "g"), patience_s=0.05)
    with (tmp_path / "g" / "1" / LOCK).open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        opened.groups.run(_fence_of_nobody(opened.group))
        wait_for(lambda: opened.away == (1,))
    wait_for(lambda: opened.away == ())
    opened.close()


def _fence_of_nobody(group: GroupId) -> Procedure[object]:
    return (yield ReadFence(group, TabletId(1)))


@pytest.mark.parametrize("write", [-1, 0, 1, 4])
def test_a_group_file_whose_quorum_is_no_majority_is_refused(tmp_path: Path, write: int) -> None:
    make_group(tmp_path, count=3)
    path = tmp_path / NAME
    text = path.read_text()
    assert text.count('"write": 2') == 1
    path.write_text(text.replace('"write": 2', f'"write": {write}'))
    with pytest.raises(BadInput, match="majority"):
        read_group(tmp_path)
