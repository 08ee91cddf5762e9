"""A member is made anew from the others: nothing is lost, whatever happens, and it may be begun again after any step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from replitree.errors import BadInput, CommandUnknown, StoreError
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core.channels import in_one_group
from replitree.tablet.group import openings, replacing
from replitree.tablet.group.admission import Answer, AskStanding, Remember, Standing
from replitree.tablet.group.effects import Blobs, Fence, NotKnown, Procedure, Put, Range, Stored
from replitree.tablet.group.ids import BlobId, Channel, Cookie, Generation, GroupId, Step, TabletId
from replitree.tablet.group.member import Contents, Done, Raise, Scan, Write
from replitree.tablet.group.openings import AskEach, Opening
from replitree.tablet.group.replacing import NameIt
from replitree.tablet.members import replacing as blob_replacing
from replitree.tablet.members.asking import Asking, ask
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.folders import OpenGroup, make_group, members_of, open_group, put_group, read_group
from replitree.tablet.members.frames import OVERHEAD_BYTES, frame_of
from replitree.tablet.members.inspection import inspect, look_at
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.places import MemberPlace
from replitree.tablet.members.replacing import replace_member
from replitree_verify.patches.patch import find_patch
from tests.storage.blob_providers import do
from tests.storage.blob_service_provider import TOKEN, Services
from tests.tablet.machine import State, Words
from tests.tablet.runtime.group import QUIET
from tests.waiting import wait_for

TABLET = TabletId(1)
GROUP = GroupId("tablets")
Crash = Callable[..., object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A group of three directories with some commits, a snapshot, and more commits."""
    make_group(tmp_path / "g")
    group = open_group(tmp_path / "g")
    with lead(group) as tablet:
        for word in (b"a", b"b"):
            tablet.execute(word)
        assert tablet.snapshot()
        tablet.execute(b"c")
    group.close()
    return tmp_path / "g"


def lead(group: OpenGroup, settings: Settings = QUIET) -> Tablet[State]:
    """Lead the tablet of a group."""
    return open_tablet(group.groups, Words(), in_one_group(TABLET, group.group), settings=settings)


def state_without(folder: Path, number: int) -> State:
    """Read the tablet while one member is away."""
    place = Path(read_group(folder).members[number].folder)
    path = folder / place
    path.rename(path.with_name("away"))
    group = open_group(folder)
    try:
        with lead(group) as tablet:
            return tablet.read()
    finally:
        group.close()
        path.with_name("away").rename(path)


def blob_id(step: int, generation: int = 9) -> BlobId:
    """Name a blob of the log of another tablet."""
    return BlobId(TabletId(7), Channel(0), Generation(generation), Step(step), Cookie(0))


def test_member_whose_disk_is_new_has_what_the_others_have(folder: Path) -> None:
    shutil.rmtree(folder / "2")
    old = read_group(folder)
    done = replace_member(folder, 2)
    made = read_group(folder)
    assert [each.folder for each in made.members] == ["0", "1", "2"]
    assert [new != was for new, was in zip(made.incarnations, old.incarnations, strict=True)] == [False, False, True]
    assert done.blobs > 0
    assert BlobDirectory(folder / "2").rules() == BlobDirectory(folder / "0").rules()
    report = inspect(look_at(folder))
    assert (report.verdict, report.members) == ("sound", (None, None, None))
    for number in (0, 1):
        assert state_without(folder, number) == ("a", "b", "c")


def test_member_goes_to_a_store_or_to_another_host(folder: Path, tmp_path: Path) -> None:
    services = Services()
    make_blob_directory(tmp_path / "served", "tablets", 1, "served")
    served = BlobDirectory(tmp_path / "served")
    (tmp_path / "token").write_text(TOKEN)
    try:
        replace_member(folder, 2, MemberPlace(store=f"file://{tmp_path}/objects"))
        address = services.start(served)
        replace_member(folder, 1, MemberPlace(service=address, token_file=str(tmp_path / "token")))
        assert (read_group(folder).format, inspect(look_at(folder)).verdict) == (2, "sound")
        assert state_without(folder, 0) == ("a", "b", "c")
    finally:
        services.close()


def test_old_member_is_not_counted_on_any_more_wherever_it_is(folder: Path, tmp_path: Path) -> None:
    file = read_group(folder)
    for number, place in enumerate(file.members):
        file = file.with_member(number, MemberPlace(str(folder / place.folder), place.incarnation))
    (tmp_path / "elsewhere").mkdir()
    put_group(tmp_path / "elsewhere", file)  # of a host that does not hear of it
    group = open_group(tmp_path / "elsewhere")
    assert do(group.groups, Put(GROUP, blob_id(1), b"x")) == Stored()
    replace_member(folder, 2, tmp_path / "new")
    assert isinstance(do(group.groups, Put(GROUP, blob_id(2), b"x")), NotKnown)
    assert "member 2 took part" in (group.forgot or "")
    group.close()
    again = open_group(tmp_path / "elsewhere")
    assert [obstacle is None for obstacle in again.obstacles] == [True, True, False]
    assert do(again.groups, Put(GROUP, blob_id(3), b"x")) == Stored()
    again.close()


def test_leader_whose_member_is_lost_while_it_leads_ends_when_it_is_made_anew(folder: Path) -> None:
    group = open_group(folder)
    with lead(group) as tablet:
        shutil.rmtree(folder / "2")
        tablet.execute(b"d")
        replace_member(folder, 2)
        with pytest.raises(CommandUnknown):
            tablet.execute(b"e")
        assert "member 2 took part" in (group.forgot or "")
    group.close()
    assert state_without(folder, 0)[:4] == ("a", "b", "c", "d")


def test_leader_of_the_others_goes_on_while_a_lost_member_is_made_anew_and_uses_the_new_one(folder: Path) -> None:
    shutil.rmtree(folder / "2")
    group = open_group(folder)
    with lead(group, Settings(look_s=0.02)) as tablet:
        tablet.execute(b"d")
        replace_member(folder, 2)
        tablet.execute(b"e")
        wait_for(lambda: group.readmit() or not any(group.obstacles), "the new member is let in")
        tablet.mend()
        tablet.execute(b"f")
        wait_for(lambda: group.away == () and tablet.status().is_mended)
    group.close()
    assert inspect(look_at(folder)).verdict == "sound"
    assert state_without(folder, 0) == ("a", "b", "c", "d", "e", "f")


def test_new_member_refuses_what_the_lost_one_refused(folder: Path) -> None:
    for number in (1, 2):  # a fence that is confirmed
        fence = Raise(TabletId(7), Fence(Generation(5), "c1"))
        assert BlobDirectory(folder / str(number)).answer(fence) == Done()
    shutil.rmtree(folder / "2")
    replace_member(folder, 2)
    group = open_group(folder)
    assert not isinstance(do(group.groups, Put(GROUP, blob_id(1, 5), b"x")), Stored)
    group.close()


def test_of_two_who_fenced_one_generation_nobody_wins_by_it(folder: Path) -> None:
    tablet, one, other = TabletId(7), Fence(Generation(5), "c1"), Fence(Generation(5), "c2")
    for number, fence in ((0, one), (2, one), (1, other)):
        assert BlobDirectory(folder / str(number)).answer(Raise(tablet, fence)) == Done()
    shutil.rmtree(folder / "2")
    replace_member(folder, 2)
    for fence in (one, other):
        assert BlobDirectory(folder / "2").answer(Raise(tablet, fence)) != Done()


# --- what must not be lost ------------------------------------------------------------------------------------------------


def test_blob_that_the_lost_member_had_and_one_other_is_copied(folder: Path) -> None:
    for number in (1, 2):
        assert BlobDirectory(folder / str(number)).answer(Write(((blob_id(1), b"x"),))) == Done()
    shutil.rmtree(folder / "2")
    replace_member(folder, 2)
    (folder / "1").rename(folder / "away")
    group = open_group(folder)
    assert do(group.groups, Range(GROUP, blob_id(0), blob_id(9))) == Blobs(((blob_id(1), b"x"),))
    group.close()


def test_nothing_is_replaced_while_another_member_is_away(folder: Path) -> None:
    shutil.rmtree(folder / "2")
    (folder / "1").rename(folder / "away")
    before = read_group(folder)
    with pytest.raises(StoreError, match="2 other members must answer and 1 do"):
        replace_member(folder, 2)
    assert read_group(folder) == before
    (folder / "away").rename(folder / "1")
    replace_member(folder, 2)


def test_nothing_is_replaced_while_only_the_lost_member_may_have_a_whole_copy(folder: Path) -> None:
    for number in (1, 2):
        assert BlobDirectory(folder / str(number)).answer(Write(((blob_id(1), b"x"),))) == Done()
    rot(folder / "1", blob_id(1))
    (folder / "2").rename(folder / "aside")
    before = read_group(folder)
    with pytest.raises(StoreError, match="may have had it"):
        replace_member(folder, 2)
    assert read_group(folder) == before
    shutil.rmtree(folder / "2")
    (folder / "aside").rename(folder / "2")


def test_old_member_that_is_fine_is_read_too(folder: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        assert BlobDirectory(folder / str(number)).answer(Write(((blob_id(1), b"x"),))) == Done()
    rot(folder / "1", blob_id(1))
    replace_member(folder, 2, tmp_path / "new")
    (folder / "0").rename(folder / "away")
    group = open_group(folder)
    assert do(group.groups, Range(GROUP, blob_id(0), blob_id(9))) == Blobs(((blob_id(1), b"x"),))
    group.close()


def rot(folder: Path, blob: BlobId) -> None:
    """Change a byte of a blob in a directory."""
    for path in folder.glob("blobs/*/*/*.seg"):
        data = bytearray(path.read_bytes())
        if (position := data.find(frame_of(blob, b"")[:24])) >= 0:
            data[position + OVERHEAD_BYTES - 8] ^= 1
            path.write_bytes(data)


# --- crashes, and what is refused -----------------------------------------------------------------------------------------


class Died(Exception):
    """The process died here."""


STEPS = 22
"""How many effects it takes to make a member anew in this group: more, and the test does not see them all."""


@pytest.mark.parametrize(
    "step", [pytest.param(each, marks=[] if each % 8 == 0 else [pytest.mark.slow]) for each in range(STEPS)]
)
def test_whoever_dies_at_a_step_may_begin_again(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    assert led(folder, b"d") == ("a", "b", "c", "d")  # now the entries of the first generation are fenced
    shutil.rmtree(folder / "2")
    with monkeypatch.context() as patched:
        performed = dying(patched, step)
        with pytest.raises(Died):
            replace_member(folder, 2)
    assert led(folder, b"e") == ("a", "b", "c", "d", "e")
    is_named = any(isinstance(each, NameIt) for each in performed[:-1])
    assert (inspect(look_at(folder)).members == (None, None, None)) == is_named
    if not is_named:
        replace_member(folder, 2)
    assert inspect(look_at(folder)).verdict == "sound"
    assert state_without(folder, 0) == ("a", "b", "c", "d", "e")


def test_every_step_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    led(folder, b"d")
    shutil.rmtree(folder / "2")
    performed = dying(monkeypatch, STEPS + 1)
    replace_member(folder, 2)
    assert len(performed) == STEPS
    assert isinstance(performed[-1], NameIt)


def dying(monkeypatch: pytest.MonkeyPatch, step: int) -> list[object]:
    """Let whoever makes a member anew die instead of performing its effect of this number; return the effects that come."""
    whole: Crash = blob_replacing._perform  # noqa: SLF001
    come: list[object] = []

    def perform(*arguments: object) -> object:
        come.append(arguments[-1])
        if len(come) == step + 1:
            raise Died
        return whole(*arguments)

    monkeypatch.setattr(blob_replacing, "_perform", perform)
    return come


def led(folder: Path, word: bytes) -> State:
    """Lead the tablet, execute a command, and read the state."""
    group = open_group(folder)
    try:
        with lead(group) as tablet:
            tablet.execute(word)
            return tablet.read()
    finally:
        group.close()


def test_place_of_a_member_that_is_there_is_not_taken(folder: Path) -> None:
    for number in (1, 2):
        with pytest.raises(StoreError, match="move it aside first"):
            replace_member(folder, 2, folder / str(number))
    with pytest.raises(BadInput, match="members 0 to 2"):
        replace_member(folder, 3)
    with pytest.raises(BadInput, match="no group"):
        replace_member(folder / "nowhere", 0)


def test_service_of_a_member_that_the_group_has_is_no_new_place(folder: Path, tmp_path: Path) -> None:
    services = Services()
    (tmp_path / "token").write_text(TOKEN)
    try:
        place = MemberPlace(service=services.start(BlobDirectory(folder / "2")), token_file=str(tmp_path / "token"))
        with pytest.raises(StoreError, match="with a new directory first"):
            replace_member(folder, 2, place)
    finally:
        services.close()


def test_two_do_not_replace_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder / "2")
    whole: Crash = blob_replacing._perform  # noqa: SLF001

    def replaced_by_another(*arguments: object) -> object:
        if isinstance(arguments[-1], NameIt):
            with pytest.raises(BadInput, match="wait for that"):
                replace_member(folder, 2)
        return whole(*arguments)

    monkeypatch.setattr(blob_replacing, "_perform", replaced_by_another)
    replace_member(folder, 2)


def test_without_telling_the_others_the_old_member_still_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = open_group(folder)

    def nobody_told(_: object) -> Procedure[object]:
        (standing, *_others) = yield AskEach((AskStanding(), None, None, None))
        assert isinstance(standing, Standing)
        return replacing._CopySources(standing.session, standing.seen, (0, 1))  # noqa: SLF001

    monkeypatch.setattr(replacing, "_tell_others", nobody_told)
    replace_member(folder, 2, tmp_path / "new")
    (folder / "0").rename(folder / "away")
    assert do(group.groups, Put(GROUP, blob_id(1), b"x")) == Stored()
    group.close()
    (folder / "away").rename(folder / "0")
    (folder / "1").rename(folder / "away")
    again = open_group(folder)
    assert do(again.groups, Range(GROUP, blob_id(0), blob_id(9))) == Blobs(())  # it was called stored
    again.close()


# --- while others use the group, or open it -------------------------------------------------------------------------------


def test_leader_that_looks_while_the_others_are_told_does_not_count_on_the_old_member(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(put_while_replaced(folder, tmp_path / "new", monkeypatch), NotKnown)


def test_leader_that_is_told_once_does(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with find_patch("openings", "told-once").mutated():
        assert put_while_replaced(folder, tmp_path / "new", monkeypatch) == Stored()  # and the new member lacks it


def put_while_replaced(folder: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Store something when the others know of a session, and no more; and something else before the new member is named.

    Return what becomes of the second: one of the others is away then, but the old member is there.
    """
    group = open_group(folder)
    whole: Crash = blob_replacing._perform  # noqa: SLF001
    outcomes: list[object] = []

    def perform(*arguments: object) -> object:
        effect = arguments[-1]
        if isinstance(effect, AskEach) and isinstance(effect.questions[0], Remember):
            assert do(group.groups, Put(GROUP, blob_id(1), b"x")) == Stored()
            wait_for(lambda: all(has(folder / str(each), blob_id(1)) for each in range(3)), "nobody is asked any more")
        if isinstance(effect, NameIt):
            (folder / "1").rename(folder / "away")
            outcomes.append(do(group.groups, Put(GROUP, blob_id(2), b"x")))
            (folder / "away").rename(folder / "1")
        return whole(*arguments)

    def in_order(_: Asking, members: Sequence[BlobMember], effect: AskEach) -> tuple[Answer | None, ...]:
        both = zip(members, effect.questions, strict=True)
        return tuple(None if question is None else ask(member, question) for member, question in both)

    monkeypatch.setattr(blob_replacing, "_perform", perform)
    monkeypatch.setattr(Asking, "each", in_order)  # else it is up to the threads which member is told first
    replace_member(folder, 2, new)
    group.close()
    (outcome,) = outcomes
    return outcome


def has(folder: Path, blob: BlobId) -> bool:
    """Whether a directory has a blob."""
    reply = BlobDirectory(folder).answer(Scan(blob, blob))
    return isinstance(reply, Contents) and len(reply.blobs) == 1


def test_opening_that_began_before_does_not_let_the_old_member_in_again(folder: Path, tmp_path: Path) -> None:
    assert [why is None for why in opened_meanwhile(folder, tmp_path).obstacles] == [True, True, False]


def test_opening_that_admits_a_member_as_it_is_does(folder: Path, tmp_path: Path) -> None:
    with find_patch("openings", "admitted-as-it-is").mutated():
        assert opened_meanwhile(folder, tmp_path).obstacles == (None, None, None)


def opened_meanwhile(folder: Path, tmp_path: Path) -> Opening:
    """Ask how all stand, make a member anew that is away just then, and go on opening the group when it is back."""
    file = read_group(folder)
    members = members_of(folder, file)
    opening = openings.open_group(file.quorum, file.incarnations)
    answers = Asking().each(members, opening.send(None))
    (folder / "2").rename(tmp_path / "aside")
    replace_member(folder, 2, tmp_path / "new")
    (tmp_path / "aside").rename(folder / "2")
    while True:
        try:
            answers = Asking().each(members, opening.send(answers))
        except StopIteration as stop:
            found: Opening = stop.value
            return found
