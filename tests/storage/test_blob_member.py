"""What every member of a blob group must do: asked of every kind alike (`conftest.KINDS`)."""

from __future__ import annotations

import pytest

from replitree.tablet.group.effects import Collection, Overtaken
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, Generation
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    Barrier,
    BarrierIs,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Reply,
    Scan,
    Sweep,
    Swept,
    Write,
)
from replitree.tablet.members.member import Admission, BlobMember, Reopened, Rules, Standing, Streams
from tests.storage.blob_providers import TABLET, Provider, at, blob_id, fence


@pytest.fixture
def member(provider: Provider) -> BlobMember:
    return provider.member(0)


ALL = Scan(blob_id(1, 0), blob_id(9, 0))


def write(member: BlobMember, *steps: int, generation: int = 1) -> Reply:
    """Write small blobs of one generation."""
    return member.answer(Write(tuple((blob_id(generation, step), data_of(step)) for step in steps)))


def data_of(step: int) -> bytes:
    return f"blob {step}".encode()


def steps_of(reply: Reply) -> list[int]:
    assert isinstance(reply, Contents)
    assert all(data == data_of(blob.step) for blob, data in reply.blobs)
    return [blob.step for blob, _ in reply.blobs]


def test_blobs_are_read_back_in_order(member: BlobMember) -> None:
    assert write(member, 3) == Done()
    assert write(member, 2, 1) == Done()
    assert write(member, 1, generation=2) == Done()
    assert steps_of(member.answer(ALL)) == [1, 2, 3, 1]
    assert steps_of(member.answer(Scan(blob_id(1, 2), blob_id(1, 3)))) == [2, 3]
    assert steps_of(member.answer(Scan(blob_id(1, 0), blob_id(1, 9), newest=True))) == [3]
    assert steps_of(member.answer(Look((blob_id(1, 3), blob_id(1, 1), blob_id(1, 7))))) == [1, 3]
    assert steps_of(member.answer(Scan(blob_id(1, 0, 1), blob_id(9, 0, 1)))) == []


def test_streams_are_the_channels_that_have_blobs(provider: Provider, member: BlobMember) -> None:
    assert member.streams() == Streams(())
    for channel in (1, 0):
        assert member.answer(Write(((blob_id(1, 1, channel), b"x"),))) == Done()
    assert provider.member(0).streams() == Streams(((TABLET, Channel(0)), (TABLET, Channel(1))))


def test_everything_is_there_for_the_next_process(provider: Provider, member: BlobMember) -> None:
    write(member, 1, 2)
    member.answer(Raise(TABLET, fence(1)))
    following = provider.member(0)
    assert steps_of(following.answer(ALL)) == [1, 2]
    assert following.answer(AskFence(TABLET)) == FenceIs(fence(1))


def test_two_processes_see_what_each_other_wrote(provider: Provider, member: BlobMember) -> None:
    other = provider.member(0)
    for step in (1, 3, 5):
        write(member, step)
        assert steps_of(other.answer(ALL)) == list(range(1, step + 1))
        write(other, step + 1)
        assert steps_of(member.answer(ALL)) == list(range(1, step + 2))


def test_same_blob_again_is_fine_and_another_one_of_its_name_is_not(provider: Provider, member: BlobMember) -> None:
    write(member, 1)
    assert write(member, 1) == Done()
    assert member.answer(Write(((blob_id(1, 2), data_of(2)), (blob_id(1, 1), b"other")))) == Conflict(blob_id(1, 1))
    assert steps_of(member.answer(ALL)) == ([1] if provider.is_atomic else [1, 2])
    assert member.answer(Write(((blob_id(1, 3), b"one"), (blob_id(1, 3), b"other")))) == Conflict(blob_id(1, 3))


def test_fence_refuses_its_generation_and_those_before(member: BlobMember) -> None:
    assert member.answer(AskFence(TABLET)) == FenceIs(None)
    assert member.answer(Raise(TABLET, fence(2))) == Done()
    assert write(member, 1, generation=1) == Overtaken(Generation(2))
    assert write(member, 1, generation=2) == Overtaken(Generation(2))
    assert write(member, 1, generation=3) == Done()
    assert steps_of(member.answer(ALL)) == [1]


def test_fence_never_sinks_and_has_one_issuer(member: BlobMember) -> None:
    member.answer(Raise(TABLET, fence(2, "a")))
    assert member.answer(Raise(TABLET, fence(2, "a"))) == Done()
    assert member.answer(Raise(TABLET, fence(2, "b"))) == Overtaken(Generation(2))
    assert member.answer(Raise(TABLET, fence(1, "a"))) == Overtaken(Generation(2))
    assert member.answer(Raise(TABLET, fence(3, "b"))) == Done()
    assert member.answer(AskFence(TABLET)) == FenceIs(fence(3, "b"))


def test_barrier_is_told_and_none_is_before_the_first(member: BlobMember) -> None:
    ask = AskBarrier(TABLET, Channel(0))
    assert member.answer(ask) == BarrierIs(NOTHING)
    write(member, 1)
    for barrier, is_hard in (((1, 3), False), ((1, 2), True)):
        order = (Generation(1), 1 + is_hard)
        command = Collection(TABLET, Channel(0), order, at(*barrier), is_hard=is_hard)
        assert member.answer(Sweep(command)) == Done()
        assert member.answer(ask) == BarrierIs(at(1, 3))
    assert member.answer(AskBarrier(TABLET, Channel(1))) == BarrierIs(NOTHING)


def test_first_fence_of_generation_nought_has_one_issuer_too(member: BlobMember) -> None:
    assert member.answer(Raise(TABLET, fence(0, "a"))) == Done()
    assert member.answer(Raise(TABLET, fence(0, "b"))) == Overtaken(Generation(0))


@pytest.mark.parametrize("read", [Scan(blob_id(1, 0), blob_id(9, 0), fence(4)), Look((blob_id(1, 1),), fence(4))])
def test_read_with_a_fence_raises_it_first(member: BlobMember, read: Scan | Look) -> None:
    write(member, 1)
    assert steps_of(member.answer(read)) == [1]
    assert member.answer(AskFence(TABLET)) == FenceIs(fence(4))
    assert write(member, 2, generation=4) == Overtaken(Generation(4))
    member.answer(Raise(TABLET, fence(5)))
    assert member.answer(read) == Overtaken(Generation(5))


def test_restored_blob_passes_its_restorers_fence_and_no_later_one(member: BlobMember) -> None:
    old = ((blob_id(1, 1), data_of(1)),)
    member.answer(Raise(TABLET, fence(3, "a")))
    assert member.answer(Write(old)) == Overtaken(Generation(3))
    assert member.answer(Write(old, fence(3, "b"))) == Overtaken(Generation(3))
    assert member.answer(Write(old, fence(2, "a"))) == Overtaken(Generation(3))
    assert member.answer(Write(old, fence(3, "a"))) == Done()
    assert steps_of(member.answer(ALL)) == [1]


# --- collection -----------------------------------------------------------------------------------------------------------


def sweep(
    number: int, barrier: tuple[int, int], keep: tuple[BlobId, ...] = (), dont: tuple[BlobId, ...] = (), **more: bool
) -> Sweep:
    """Make a collection of the log, of generation 3."""
    order = (Generation(3), number)
    return Sweep(Collection(TABLET, Channel(0), order, at(*barrier), keep, dont, **more))


def test_what_is_below_the_barrier_goes_and_never_comes_back(member: BlobMember) -> None:
    write(member, 1, 2, 3)
    write(member, 1, 2, generation=3)
    assert member.answer(sweep(1, (3, 1), keep=(blob_id(1, 2),))) == Done()
    assert steps_of(member.answer(ALL)) == [2, 2]
    assert write(member, 3) == Swept(blob_id(1, 3))
    assert write(member, 2) == Done()


def test_what_is_not_kept_any_more_goes(member: BlobMember) -> None:
    write(member, 1, 2)
    member.answer(sweep(1, (3, 0), keep=(blob_id(1, 1), blob_id(1, 2))))
    member.answer(sweep(2, (3, 0), dont=(blob_id(1, 1),)))
    assert steps_of(member.answer(ALL)) == [2]
    member.answer(sweep(3, (2, 0), is_hard=True))
    assert steps_of(member.answer(ALL)) == []


def test_older_collection_changes_nothing(provider: Provider, member: BlobMember) -> None:
    write(member, 1, 2)
    member.answer(sweep(2, (1, 1)))
    assert member.answer(sweep(1, (1, 2))) == Done()
    assert member.answer(sweep(2, (1, 2))) == Done()
    assert steps_of(provider.member(0).answer(ALL)) == [2]


def test_collection_of_a_deposed_leader_is_refused(member: BlobMember) -> None:
    write(member, 1)
    member.answer(Raise(TABLET, fence(3)))
    assert member.answer(sweep(1, (1, 1))) == Overtaken(Generation(3))
    assert steps_of(member.answer(ALL)) == [1]


# --- as what it was admitted ----------------------------------------------------------------------------------------------


def test_member_answers_whoever_asks_as_what_it_was_admitted(provider: Provider, member: BlobMember) -> None:
    who = provider.incarnations[0]
    assert member.admit(3) == Done()
    for each in (member, provider.member(0)):
        assert each.answer_as(Admission(who, 3), ALL) == Contents()
        later = each.answer_as(Admission(who, 2), Raise(TABLET, fence(1)))
        assert isinstance(later, Reopened)
        assert later.session == 3
        for admission in (Admission(who, 4), Admission("another", 3), Admission("another", 2)):
            reply = each.answer_as(admission, ALL)
            assert isinstance(reply, Failed)
            assert not isinstance(reply, Reopened)


def test_member_is_admitted_only_as_it_stood(provider: Provider, member: BlobMember) -> None:
    who = provider.incarnations[0]
    for _ in range(2):  # a request may come twice
        assert member.admit(3, Admission(who, 0)) == Done()
    for stood in (Admission(who, 4), Admission("another", 3), Admission(who, 2)):
        assert isinstance(member.admit(5, stood), Failed)
    assert member.admit(4, Admission(who, 3)) == Done()
    assert member.standing() == Standing(who, 4, ())


def test_member_says_what_it_refuses(provider: Provider, member: BlobMember) -> None:
    assert member.rules() == Rules()
    member.answer(sweep(1, (2, 1), keep=(blob_id(1, 2),)))
    member.answer(Raise(TABLET, fence(1)))
    barrier = Barrier((Generation(3), 1), at(2, 1), keep=frozenset({blob_id(1, 2)}))
    for each in (member, provider.member(0)):
        assert each.rules() == Rules(((TABLET, fence(1)),), ((TABLET, Channel(0), barrier),))


# --- faults ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
def test_changed_blob_is_damaged_not_absent(provider: Provider, member: BlobMember, step: int) -> None:
    write(member, 1, 2)
    write(member, 3)
    provider.rot(0, blob_id(1, step))
    for each in (member, provider.member(0)):
        reply = each.answer(ALL)
        assert steps_of(reply) == [other for other in (1, 2, 3) if other != step]
        assert isinstance(reply, Contents)
        assert reply.damaged == (blob_id(1, step),)


def test_damaged_blob_is_restored(provider: Provider, member: BlobMember) -> None:
    write(member, 1, 2)
    provider.rot(0, blob_id(1, 1))
    assert member.answer(Write(((blob_id(1, 1), data_of(1)),), fence(5))) == Done()
    for each in (member, provider.member(0)):
        assert each.answer(ALL) == Contents(tuple((blob_id(1, step), data_of(step)) for step in (1, 2)))


def test_full_disk_takes_nothing_and_goes_on_when_there_is_room(provider: Provider, member: BlobMember) -> None:
    write(member, 1)
    provider.fill(0)
    assert isinstance(write(member, 2), Failed)
    assert isinstance(member.answer(Raise(TABLET, fence(1))), Failed)
    assert steps_of(member.answer(ALL)) == [1]
    provider.make_room(0)
    assert write(member, 3) == Done()
    assert member.answer(Raise(TABLET, fence(1))) == Done()
    assert steps_of(provider.member(0).answer(ALL)) == [1, 3]


def test_missing_disk_fails_and_is_used_again_when_it_is_back(provider: Provider, member: BlobMember) -> None:
    write(member, 1)
    provider.take_away(0)
    assert isinstance(member.answer(ALL), Failed)
    assert isinstance(write(member, 2), Failed)
    assert isinstance(member.standing(), Failed)
    provider.bring_back(0)
    assert write(member, 2) == Done()
    assert steps_of(member.answer(ALL)) == [1, 2]
