"""When a place on an object store remembers that its group was opened, and what it knows without asking again."""

from __future__ import annotations

from collections.abc import Iterator

import obstore
import pytest

from replitree.errors import StoreError
from replitree.storage.objects import ObjectStore, open_store
from replitree.tablet.group.effects import Fence, Overtaken
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.member import AskFence, Contents, Done, Failed, FenceIs, Raise, Scan
from replitree.tablet.group.openings import open_group
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import store_state as blob_store_state
from replitree.tablet.members.asking import performed
from replitree.tablet.members.member import Admission, Reopened, Standing
from replitree.tablet.members.store import BlobStore, make_blob_store, state_on
from replitree.tablet.members.store_state import STATE_KEY
from tests.storage.blob_providers import GROUP, TABLET, blob_id, fence
from tests.storage.blob_store_providers import Faults
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server

OTHERS = Fence(Generation(1), "another candidate")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch.setattr)


@pytest.fixture
def objects(faults: Faults) -> ObjectStore:
    """Make the only place of a group, which was opened once."""
    assert faults is not None
    store = open_store("memory:///", wait=lambda _: None)
    make_blob_store(store, GROUP, 0, "s0")
    with_session(store).close()
    assert session_of(store) == 1
    return store


@pytest.fixture
def member(objects: ObjectStore) -> Iterator[BlobStore]:
    """Open it once more."""
    member = with_session(objects)
    yield member
    member.close()


def with_session(objects: ObjectStore) -> BlobStore:
    """Open a group of one place."""
    member = BlobStore(objects)
    assert performed([member], open_group(Quorum(GROUP, 1, 1), ["s0"])).obstacles == (None,)
    return member


def session_of(objects: ObjectStore) -> int:
    """Return the last session that a place remembers."""
    state = state_on(objects)
    assert state is not None
    return state.session


def as_of(session: int) -> Admission:
    """Return as what the place was admitted."""
    return Admission("s0", session)


def test_place_that_is_alone_remembers_an_opening_when_it_raises_a_fence(
    faults: Faults, objects: ObjectStore, member: BlobStore
) -> None:
    asked = list[str]()
    faults.before = lambda what, key: asked.append(f"{what} {key}")
    assert member.answer_as(as_of(3), AskFence(TABLET)) == FenceIs(None)
    assert session_of(objects) == 1
    asked.clear()
    assert member.answer_as(as_of(3), Raise(TABLET, fence(1))) == Done()
    assert [each for each in asked if each.endswith(STATE_KEY)] == [f"put {STATE_KEY}"]
    state = state_on(objects)
    assert state is not None
    assert (state.session, state.seen, state.holdings().fence(TABLET)) == (3, (3,), fence(1))


def test_place_that_is_alone_remembers_an_opening_before_it_does_anything_else(
    objects: ObjectStore, member: BlobStore
) -> None:
    assert session_of(objects) == 1
    assert member.answer_as(as_of(3), Scan(blob_id(1, 0), blob_id(9, 0))) == Contents()
    assert session_of(objects) == 3


def test_place_among_others_remembers_an_opening_at_once() -> None:
    store = open_store("memory:///", wait=lambda _: None)
    make_blob_store(store, GROUP, 0, "s0")
    member = BlobStore(store)
    for session in (1, 2):
        member.standing()
        assert member.admit(session) == Done()
        assert session_of(store) == session
        assert member.remember((session, session, session)) == Done()
    member.close()


def test_old_copy_that_is_put_back_before_an_opening_is_written_does_not_answer(
    objects: ObjectStore, member: BlobStore
) -> None:
    old = objects.get(STATE_KEY)
    assert old is not None
    member.answer_as(as_of(3), Raise(TABLET, fence(1)))
    later = with_session(objects)  # it stood as of session 3
    obstore.put(objects._raw, STATE_KEY, old)  # noqa: SLF001 - somebody brings an old copy back
    for request in (Raise(TABLET, fence(3)), AskFence(TABLET), Scan(blob_id(1, 0), blob_id(9, 0))):
        reply = later.answer_as(as_of(5), request)
        assert isinstance(reply, Failed)
        assert "forgotten session 3" in reply.reason
    assert objects.get(STATE_KEY) == old
    later.close()


def test_fence_that_was_raised_since_a_group_was_opened_is_seen(objects: ObjectStore, member: BlobStore) -> None:
    other = with_session(objects)
    assert other.answer_as(as_of(3), Raise(TABLET, OTHERS)) == Done()
    assert member.answer_as(as_of(3), Raise(TABLET, fence(1))) == Overtaken(Generation(1))
    assert member.answer_as(as_of(3), Raise(TABLET, fence(2))) == Done()
    assert isinstance(with_session(objects).answer_as(as_of(5), Raise(TABLET, fence(3))), Done)
    assert member.answer_as(as_of(3), Raise(TABLET, fence(4))) == Reopened(
        "the group was opened again, as session 5", 5
    )
    other.close()


def test_opening_that_others_have_followed_is_not_written_any_more(objects: ObjectStore, member: BlobStore) -> None:
    for session in (3, 5):
        other = with_session(objects)
        assert other.answer_as(as_of(session), Raise(TABLET, fence(session))) == Done()
        other.close()
    again = Reopened("the group was opened again, as session 5", 5)
    for request in (AskFence(TABLET), Scan(blob_id(1, 0), blob_id(9, 0)), Raise(TABLET, fence(9))):
        assert member.answer_as(as_of(3), request) == again
    assert member.standing() == Standing("s0", 5, (5,))
    assert member.answer_as(as_of(5), AskFence(TABLET)) == FenceIs(fence(5))
    assert member.answer_as(as_of(5), Raise(TABLET, fence(9))) == Done()
    assert session_of(objects) == 5


def test_opening_whose_answer_was_lost_is_remembered(faults: Faults, objects: ObjectStore, member: BlobStore) -> None:
    faults.lost |= {"put": 1}
    assert member.answer_as(as_of(3), Raise(TABLET, fence(1))) == Done()
    assert session_of(objects) == 3


def test_fence_is_known_for_a_moment_only(
    objects: ObjectStore, member: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert member.fence_seen(TABLET) is None
    member.answer_as(as_of(3), Raise(TABLET, fence(1)))
    later = with_session(objects)
    monkeypatch.setattr(blob_store_state, "SEEN_S", 60.0)
    assert later.fence_seen(TABLET) == fence(1)
    monkeypatch.setattr(blob_store_state, "SEEN_S", -1.0)
    assert later.fence_seen(TABLET) is None
    later.close()


def test_store_is_tried_once_in_a_process(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tried = list[str]()
    monkeypatch.setattr("replitree.tablet.members.store.probe", lambda store: tried.append(store.name))
    monkeypatch.setattr("replitree.tablet.members.store.probe_replacing", lambda _: None)
    store = open_store(f"file://{tmp_path_factory.mktemp('objects')}")
    make_blob_store(store, GROUP, 0, "s0")
    tried.clear()
    for each in (store, store, objects, objects):
        BlobStore(each, probes=True).standing()
    assert tried == [store.name, objects.name, objects.name]  # those in memory have one name


def test_50_store_that_lists_too_little_is_refused() -> None:
    with S3Server() as server:
        store = open_store(server.url(), environment=KEYS)
        server.state.lists_the_newest = False
        with pytest.raises(StoreError, match="does not list what was stored"):
            make_blob_store(store, GROUP, 0, "s0")
        assert "does not list what was stored" in str(BlobStore(store, probes=True).standing())
        assert server.state.objects == {}
