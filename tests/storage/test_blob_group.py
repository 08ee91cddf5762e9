"""What a blob group promises, whatever one member of three does: asked of members of every kind alike (`conftest.KINDS`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from replitree.errors import StoreError
from replitree.tablet.group.effects import (
    Blobs,
    Collect,
    Collected,
    Collection,
    Discover,
    Fence,
    FencedUpTo,
    FenceRaised,
    NotKnown,
    Overtaken,
    Put,
    RaiseFence,
    Range,
    ReadBlobs,
    ReadFence,
    Stored,
)
from replitree.tablet.group.ids import BlobId, Channel, Generation
from replitree.tablet.group.member import Contents, Done, Look, Raise, Scan, Write
from replitree.tablet.members.group import BlobGroups
from replitree.tablet.members.opening import AdmittedMember
from tests.storage.blob_providers import (
    GROUP,
    TABLET,
    Provider,
    at,
    blob_id,
    do,
    fence,
    open_group,
)
from tests.waiting import wait_for

Opened = Callable[[], BlobGroups]


@pytest.fixture
def opened(provider: Provider) -> Iterator[Opened]:
    groups: list[BlobGroups] = []

    def open_one() -> BlobGroups:
        groups.append(open_group(provider))
        return groups[-1]

    yield open_one
    for each in groups:
        each.close()


def put(groups: BlobGroups, step: int, generation: int = 1) -> Any:
    """Store a small blob."""
    return do(groups, Put(GROUP, blob_id(generation, step), f"{generation}:{step}".encode()))


def everything(groups: BlobGroups, by: Fence | None = None, *, restore: bool = False) -> Any:
    """Read the whole log."""
    return do(groups, Range(GROUP, blob_id(1, 0), blob_id(9, 0), by, restore))


def names(outcome: object) -> list[BlobId]:
    """What was found."""
    assert isinstance(outcome, Blobs), outcome
    assert all(data == f"{blob.generation}:{blob.step}".encode() for blob, data in outcome.found)
    return [blob for blob, _ in outcome.found]


def write_to(provider: Provider, number: int, step: int, generation: int = 1) -> None:
    """Bring a blob to one member only."""
    blob = blob_id(generation, step)
    provider.member(number).answer(Write(((blob, f"{generation}:{step}".encode()),)))


def test_stored_blobs_are_found(opened: Opened) -> None:
    group = opened()
    assert [put(group, step) for step in (2, 1, 3)] == [Stored()] * 3
    assert names(everything(opened())) == [blob_id(1, step) for step in (1, 2, 3)]
    assert names(do(group, Discover(GROUP, blob_id(1, 0)))) == [blob_id(1, 3)]
    assert names(do(group, ReadBlobs(GROUP, (blob_id(1, 2), blob_id(1, 8))))) == [blob_id(1, 2)]
    assert names(do(group, Discover(GROUP, blob_id(2, 0)))) == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_missing_member_is_survived(provider: Provider, opened: Opened, number: int) -> None:
    group = opened()
    put(group, 1)
    provider.take_away(number)
    assert put(group, 2) == Stored()
    assert names(everything(group, fence(1), restore=True)) == [blob_id(1, 1), blob_id(1, 2)]
    assert do(group, RaiseFence(GROUP, TABLET, fence(1))) == FenceRaised()
    assert isinstance(put(group, 3), Overtaken)
    assert put(group, 1, 2) == Stored()


def test_two_missing_members_are_a_doubt(provider: Provider, opened: Opened) -> None:
    group = opened()
    put(group, 1)
    provider.take_away(0)
    provider.take_away(1)
    for effect in (
        Put(GROUP, blob_id(1, 2), b""),
        RaiseFence(GROUP, TABLET, fence(1)),
        ReadFence(GROUP, TABLET),
        Discover(GROUP, blob_id(1, 0)),
        ReadBlobs(GROUP, (blob_id(1, 1),)),
    ):
        assert isinstance(do(group, effect), NotKnown)
    with pytest.raises(StoreError, match="2 of 3 members are needed"):
        opened()


def test_member_that_returns_late_has_the_blob_that_the_others_miss(provider: Provider, opened: Opened) -> None:
    group = opened()
    write_to(provider, 0, 1)
    provider.take_away(0)
    assert names(everything(group, fence(1), restore=True)) == []
    provider.bring_back(0)
    assert names(everything(group, fence(1))) == [blob_id(1, 1)]


def test_blob_on_one_member_is_restored(provider: Provider, opened: Opened) -> None:
    group = opened()
    write_to(provider, 0, 1)
    assert names(everything(group, fence(1), restore=True)) == [blob_id(1, 1)]
    provider.take_away(0)
    assert names(everything(group)) == [blob_id(1, 1)]


def test_blob_that_can_not_be_restored_ends_the_read_in_doubt(provider: Provider, opened: Opened) -> None:
    group = opened()
    write_to(provider, 0, 1)
    provider.take_away(2)
    provider.fill(1)
    do(group, RaiseFence(GROUP, TABLET, fence(1)))
    assert isinstance(everything(group, fence(1), restore=True), NotKnown)
    provider.make_room(1)
    assert names(everything(group, fence(1), restore=True)) == [blob_id(1, 1)]


def test_damaged_copy_is_unknown(provider: Provider, opened: Opened) -> None:
    group = opened()
    write_to(provider, 0, 1)
    write_to(provider, 1, 1)
    provider.rot(0, blob_id(1, 1))
    assert names(everything(group, fence(1), restore=True)) == [blob_id(1, 1)]
    provider.take_away(1)
    assert names(everything(opened(), fence(2))) == [blob_id(1, 1)]


@pytest.mark.parametrize(("away", "is_known"), [((), True), ((2,), False)])
def test_damaged_copy_and_noes(provider: Provider, opened: Opened, away: tuple[int, ...], is_known: bool) -> None:
    group = opened()
    write_to(provider, 0, 1)
    provider.rot(0, blob_id(1, 1))
    for number in away:
        provider.take_away(number)
    latest = do(group, Discover(GROUP, blob_id(1, 0), fence(1)))
    assert latest == Blobs(()) if is_known else isinstance(latest, NotKnown)
    found = everything(group, fence(1))
    assert found == Blobs((), () if is_known else (blob_id(1, 1),))
    assert isinstance(everything(group, fence(1), restore=True), Blobs if is_known else NotKnown)


def test_discover_walks_below_a_damaged_copy_that_was_never_stored(provider: Provider, opened: Opened) -> None:
    group = opened()
    put(group, 1)
    write_to(provider, 0, 2)
    provider.rot(0, blob_id(1, 2))
    assert names(do(group, Discover(GROUP, blob_id(1, 0), fence(1)))) == [blob_id(1, 1)]


def test_copies_that_differ_are_a_doubt(provider: Provider, opened: Opened) -> None:
    group = opened()
    for number in (0, 1):
        provider.member(number).answer(Write(((blob_id(1, 1), b"%d" % number),)))
    assert isinstance(everything(group, fence(1), restore=True), NotKnown)
    assert everything(group) == Blobs((), (blob_id(1, 1),))


def test_fences_are_counted(opened: Opened) -> None:
    group = opened()
    assert do(group, ReadFence(GROUP, TABLET)) == FencedUpTo(Generation(0))
    assert do(group, RaiseFence(GROUP, TABLET, fence(4, "a"))) == FenceRaised()
    assert do(group, RaiseFence(GROUP, TABLET, fence(4, "a"))) == FenceRaised()
    assert do(group, RaiseFence(GROUP, TABLET, fence(4, "b"))) == Overtaken(Generation(4))
    assert do(group, RaiseFence(GROUP, TABLET, fence(3, "b"))) == Overtaken(Generation(4))
    assert do(group, ReadFence(GROUP, TABLET)) == FencedUpTo(Generation(4), is_set=True)
    assert everything(group, fence(3)) == Overtaken(Generation(4))


def test_collection_reaches_every_member_or_is_a_doubt(provider: Provider, opened: Opened) -> None:
    group = opened()
    put(group, 1)
    put(group, 2)
    collect = Collect(GROUP, Collection(TABLET, Channel(0), (Generation(1), 1), at(1, 1)))
    provider.take_away(1)
    assert isinstance(do(group, collect), NotKnown)
    provider.bring_back(1)
    assert do(group, collect) == Collected()
    assert names(everything(group)) == [blob_id(1, 2)]
    do(group, RaiseFence(GROUP, TABLET, fence(1)))
    assert do(group, collect) == Overtaken(Generation(1))


# --- members that forgot --------------------------------------------------------------------------------------------------


def test_old_copy_of_a_member_does_not_take_part(provider: Provider, opened: Opened) -> None:
    opened()
    put_back = provider.save(0)
    group = opened()
    provider.take_away(2)
    assert put(group, 1) == Stored()
    provider.bring_back(2)
    put_back()
    assert names(everything(opened(), fence(1), restore=True)) == [blob_id(1, 1)]
    provider.take_away(1)
    with pytest.raises(StoreError, match="has forgotten session"):
        opened()


def test_empty_member_does_not_take_part(provider: Provider, opened: Opened) -> None:
    first = opened()
    put(first, 1)
    first.close()  # the slowest member's write also ends before its disk is replaced
    provider.replace_by_empty(0)
    assert names(everything(opened(), fence(1))) == [blob_id(1, 1)]
    provider.take_away(1)
    with pytest.raises(StoreError, match="not the directory that the group was made with"):
        opened()


def test_member_that_was_only_away_takes_part_again(provider: Provider, opened: Opened) -> None:
    opened()
    provider.take_away(0)
    put(opened(), 1)
    provider.bring_back(0)
    provider.take_away(1)
    assert names(everything(opened(), fence(1), restore=True)) == [blob_id(1, 1)]


def test_many_writers_at_once(opened: Opened) -> None:
    group = opened()
    outcomes: list[object] = []

    def work(first: int) -> None:
        outcomes.extend(put(group, first * 100 + step) for step in range(20))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [Stored()] * 160
    assert len(names(everything(opened()))) == 160


# --- members that are exchanged while the group is open -----------------------------------------------------------------------


def test_member_that_is_exchanged_by_an_older_copy_does_not_answer(provider: Provider, opened: Opened) -> None:
    put_back = provider.save(0)
    group = opened()
    _put_on_all(provider, group)
    provider.take_away(2)
    put_back()
    reply = put(group, 2)
    assert isinstance(reply, NotKnown)
    assert "has forgotten session 1" in reply.reason
    provider.bring_back(2)
    assert put(group, 3) == Stored()


def test_member_that_is_exchanged_by_another_one_does_not_answer(provider: Provider, opened: Opened) -> None:
    group = opened()
    provider.take_away(2)
    provider.replace_by_empty(0)
    assert isinstance(put(group, 1), NotKnown)


def test_23_member_that_forgot_a_later_leaders_fence_acknowledges_nothing(provider: Provider, opened: Opened) -> None:
    group = opened()
    _put_on_all(provider, group)
    forget = _fenced_by_two(provider, opened)
    forget()
    for step in (2, 3):
        assert put(group, step) != Stored()


def test_23_asked_by_a_leader_that_does_not_say_when_it_opened_the_group_it_does(
    provider: Provider, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdmittedMember, "_answer", lambda admitted, request: admitted.member.answer(request))
    group = opened()
    forget = _fenced_by_two(provider, opened)
    found = [provider.member(number).answer(Scan(blob_id(1, 0), blob_id(9, 0), fence(1))) for number in (0, 1)]
    assert found == [Contents(), Contents()]  # the next leader decides that there is nothing
    forget()
    assert put(group, 2) == Stored()


def _fenced_by_two(provider: Provider, opened: Opened) -> Callable[[], None]:
    """Open the group and fence two members; the third one does not hear of it in time.  Return what makes the first forget."""
    forget = provider.save(0)
    opened()
    for number in (0, 1):
        assert provider.member(number).answer(Raise(TABLET, fence(1))) == Done()
    return forget


def _put_on_all(provider: Provider, group: BlobGroups) -> None:
    """Store a blob, and wait until the last member has it, too: nobody writes to one that is exchanged."""
    assert put(group, 1) == Stored()
    wait_for(lambda: all(_has(provider, number, blob_id(1, 1)) for number in range(3)))


def _has(provider: Provider, number: int, blob: BlobId) -> bool:
    reply = provider.member(number).answer(Look((blob,)))
    return isinstance(reply, Contents) and bool(reply.blobs)


def test_group_that_was_opened_by_others_goes_on(provider: Provider, opened: Opened) -> None:
    group = opened()
    assert put(group, 1) == Stored()
    for step in range(2, 5):
        other = opened()
        assert put(group, step) == Stored()
        assert put(other, step, generation=2) == Stored()
    assert len(names(everything(group))) == 7


def test_member_that_was_away_for_another_opening_goes_on(provider: Provider, opened: Opened) -> None:
    group = opened()
    provider.take_away(2)
    opened()
    provider.bring_back(2)
    assert put(group, 1) == Stored()
    provider.take_away(0)
    assert put(group, 2) == Stored()
    assert names(everything(group)) == [blob_id(1, 1), blob_id(1, 2)]


def test_nobody_goes_on_when_others_opened_the_group_and_a_member_does_not_say_what_it_knows(
    provider: Provider, opened: Opened
) -> None:
    group = opened()
    opened()
    provider.take_away(0)
    assert isinstance(put(group, 1), NotKnown)
    assert put(opened(), 1) == Stored()
