"""Object stores in memory, in a folder, and in a bucket: what they do, and what is made of answers that do not come."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from replitree import private
from replitree.errors import NotAuthorized, StoreError
from replitree.storage.objects import (
    ObjectChanged,
    ObjectExists,
    ObjectStore,
    StoreInDoubt,
    open_store,
    probe,
    probe_replacing,
    store_id,
)
from replitree.storage.objects import store as module
from replitree.storage.objects.probe import STORE_ID_KEY
from tests.storage.objects.conformance import ObjectStoreConformance
from tests.storage.objects.conftest import KEYS, Pauses
from tests.storage.objects.s3_server import Fault, S3Server


class TestConformance(ObjectStoreConformance):
    """Of the stores that need no server of somebody else."""


# --- answers that do not come -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.SLOW_DOWN, Fault.CONFLICT])
def test_an_object_whose_answer_was_lost_is_ours(
    bucket: ObjectStore, server: S3Server, pauses: Pauses, fault: Fault
) -> None:
    server.state.faults += [("PUT", fault), ("PUT", fault)]
    bucket.create("one", b"ours")
    assert bucket.get("one") == b"ours"
    assert len(pauses) == 2


def test_another_object_is_not_ours_though_an_answer_was_lost(bucket: ObjectStore, server: S3Server) -> None:
    bucket.create("one", b"theirs")
    server.state.faults.append(("PUT", Fault.SLOW_DOWN))
    with pytest.raises(ObjectExists):
        bucket.create("one", b"ours")
    assert bucket.get("one") == b"theirs"


def test_a_lost_answer_of_the_comparison_is_asked_for_again(bucket: ObjectStore, server: S3Server) -> None:
    server.state.faults += [("PUT", Fault.LOSE_ANSWER), ("GET", Fault.LOSE_ANSWER)]
    bucket.create("one", b"ours")
    assert bucket.get("one") == b"ours"


def test_without_any_answer_it_is_not_known_whether_the_object_is_there(server: S3Server, pauses: Pauses) -> None:
    impatient = open_store(server.url(), environment=KEYS, patience_s=0.0, wait=pauses)
    server.state.faults += [("PUT", Fault.LOSE_ANSWER)]
    with pytest.raises(StoreInDoubt, match="did not answer in 0 s when asked to store one"):
        impatient.create("one", b"ours")
    assert impatient.get("one") == b"ours"  # it was
    server.state.faults += [("POST", Fault.SLOW_DOWN)]
    with pytest.raises(StoreInDoubt, match="delete 1 objects"):
        impatient.delete(["one"])
    assert pauses == []


# --- replacing ----------------------------------------------------------------------------------------------------------------


def tag_of(store: ObjectStore, key: str) -> str:
    """Read an object's tag."""
    found = store.get_tagged(key)
    assert found is not None
    return found.tag


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.SLOW_DOWN, Fault.CONFLICT])
def test_an_object_is_replaced_by_us_though_the_answer_was_lost(
    bucket: ObjectStore, server: S3Server, fault: Fault
) -> None:
    bucket.create("state", b"one")
    tag = tag_of(bucket, "state")
    server.state.faults += [("PUT", fault), ("PUT", fault)]
    bucket.replace("state", b"two", tag)
    assert bucket.get("state") == b"two"


def test_another_one_was_faster_though_an_answer_was_lost(bucket: ObjectStore, server: S3Server) -> None:
    bucket.create("state", b"one")
    tag = tag_of(bucket, "state")
    bucket.replace("state", b"theirs", tag)
    server.state.faults.append(("PUT", Fault.SLOW_DOWN))
    with pytest.raises(ObjectChanged):
        bucket.replace("state", b"ours", tag)
    assert bucket.get("state") == b"theirs"


def test_without_any_answer_it_is_not_known_whether_an_object_was_replaced(server: S3Server, pauses: Pauses) -> None:
    impatient = open_store(server.url(), environment=KEYS, patience_s=0.0, wait=pauses)
    impatient.create("state", b"one")
    server.state.faults.append(("PUT", Fault.LOSE_ANSWER))
    with pytest.raises(StoreInDoubt, match="asked to replace state"):
        impatient.replace("state", b"two", tag_of(impatient, "state"))
    assert impatient.get("state") == b"two"  # it was


def test_a_store_that_replaces_whatever_is_there_is_refused(bucket: ObjectStore, server: S3Server) -> None:
    server.state.honours_matches = False
    with pytest.raises(StoreError, match="must be as it was"):
        probe_replacing(bucket)
    assert server.state.objects == {}


def test_a_folder_that_went_away_takes_nothing(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/objects")
    store.create("state", b"one")
    tag = tag_of(store, "state")
    (tmp_path / "objects").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="is its disk mounted"):
        store.create("a", b"x")
    with pytest.raises(ObjectChanged):
        store.replace("state", b"two", tag)
    assert not (tmp_path / "objects").exists()


def test_reading_without_an_answer_has_failed(server: S3Server, pauses: Pauses) -> None:
    impatient = open_store(server.url(), environment=KEYS, patience_s=0.0, wait=pauses)
    impatient.create("one", b"ours")
    for call in (lambda: impatient.get("one"), lambda: list(impatient.list())):
        server.state.faults += [("GET", Fault.SLOW_DOWN)]
        with pytest.raises(StoreError, match="did not answer") as caught:
            call()
        assert not isinstance(caught.value, StoreInDoubt)


def test_pauses_between_tries_grow(server: S3Server, bucket: ObjectStore, pauses: Pauses) -> None:
    server.state.faults += [("GET", Fault.SLOW_DOWN)] * 8
    assert bucket.get("nothing") is None
    assert len(pauses) == 8
    assert pauses[0] <= module.PAUSE_S
    assert module.PAUSE_S_MAX / 2 <= max(pauses) <= module.PAUSE_S_MAX


def test_a_listing_goes_on_where_an_answer_was_lost(bucket: ObjectStore, server: S3Server) -> None:
    keys = [f"k{number:02}" for number in range(10)]
    for key in keys:
        bucket.create(key, b"x")
    server.state.faults += [("GET", Fault.LOSE_ANSWER), ("GET", Fault.SLOW_DOWN)]
    assert [info.key for info in bucket.list()] == keys


def test_a_repeated_delete_is_done(bucket: ObjectStore, server: S3Server) -> None:
    bucket.create("one", b"x")
    server.state.faults += [("POST", Fault.LOSE_ANSWER)]
    bucket.delete(["one"])
    assert bucket.get("one") is None


# --- what is not tried again --------------------------------------------------------------------------------------------------


def test_refused_credentials_are_told_at_once(bucket: ObjectStore, server: S3Server, pauses: Pauses) -> None:
    server.state.faults += [("PUT", Fault.DENY)]
    with pytest.raises(NotAuthorized, match="refuses to store one"):
        bucket.create("one", b"x")
    assert (pauses, server.state.objects) == ([], {})


def test_without_its_bucket_nothing_is_stored(server: S3Server) -> None:
    store = open_store(server.url(bucket="nowhere"), environment=KEYS)
    with pytest.raises(StoreError, match="make the bucket first"):
        store.create("one", b"x")


def test_a_full_disk_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: Pauses) -> None:
    def full(*_: object, **__: object) -> None:
        raise GenericError("Generic LocalFileSystem error: No space left on device (os error 28)")

    store = open_store(f"file://{tmp_path}/objects", wait=pauses)
    monkeypatch.setattr(obstore, "put", full)
    with pytest.raises(StoreError, match="make room on that disk"):
        store.create("one", b"x")
    assert pauses == []


def test_objects_in_a_folder_are_synced_before_they_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(module, "sync_files", synced.extend)
    monkeypatch.setattr(module, "sync_folder", synced.append)
    open_store(f"file://{tmp_path}/objects").create("a/b/c", b"x")
    folder = tmp_path / "objects"
    assert synced == [folder / "a/b/c", folder / "a/b", folder / "a", folder]


def test_a_folder_that_is_removed_before_the_write_and_made_again_by_the_library_is_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, kept = open_store(f"file://{tmp_path}/objects"), os.umask(0o022)
    monkeypatch.setattr(
        private, "make_folder", lambda *_, **__: None
    )  # another thread removes it as soon as it is there
    try:
        store.create("a/b/c", b"x")
    finally:
        os.umask(kept)
    modes = {name: stat.S_IMODE((tmp_path / "objects" / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")}
    assert modes == {"a": 0o700, "a/b": 0o700, "a/b/c": 0o600}


def test_an_object_that_cant_be_synced_is_in_doubt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "sync_files", fail)
    with pytest.raises(StoreInDoubt, match="can't be synced"):
        open_store(f"file://{tmp_path}/objects").create("a", b"x")


# --- stores that can't be used ------------------------------------------------------------------------------------------------


def test_a_store_that_ignores_conditions_is_refused(bucket: ObjectStore, server: S3Server) -> None:
    server.state.honours_conditions = False
    with pytest.raises(StoreError, match="ignores the condition"):
        probe(bucket)
    assert server.state.objects == {}


def test_a_store_that_keeps_what_was_deleted_is_refused(bucket: ObjectStore, server: S3Server) -> None:
    server.state.forgets_deletes = True
    with pytest.raises(StoreError, match="keeps objects that were deleted"):
        probe(bucket)


def test_a_store_that_lists_too_little_is_refused(bucket: ObjectStore, server: S3Server) -> None:
    server.state.lists_the_newest = False
    with pytest.raises(StoreError, match="does not list what was stored"):
        probe(bucket)
    assert server.state.objects == {}


def test_a_probe_survives_lost_answers(bucket: ObjectStore, server: S3Server) -> None:
    server.state.faults += [("PUT", Fault.LOSE_ANSWER), ("PUT", Fault.ERROR_AFTER), ("GET", Fault.SLOW_DOWN)]
    probe(bucket)
    assert server.state.objects == {}


def test_a_prefix_that_something_else_uses_is_told(bucket: ObjectStore) -> None:
    bucket.create(STORE_ID_KEY, b"\xff not an id")
    with pytest.raises(StoreError, match="used by something else"):
        store_id(bucket)


def test_places_in_one_bucket_do_not_see_each_other(server: S3Server) -> None:
    one, other = (open_store(server.url(prefix), environment=KEYS) for prefix in ("one", "other"))
    one.create("a", b"1")
    assert (other.get("a"), list(other.list())) == (None, [])
    assert store_id(one) != store_id(other)
    assert sorted(server.state.objects) == sorted([f"one/{STORE_ID_KEY}", f"other/{STORE_ID_KEY}", "one/a"])


# --- large objects ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three pieces."""
    monkeypatch.setattr(module, "PIECES_BYTES", 1000)
    monkeypatch.setattr(module, "PIECE_BYTES", 5 << 20)
    file = tmp_path / "rows"
    file.write_bytes(bytes(range(256)) * 50_000)
    return file


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.SLOW_DOWN])
def test_of_a_large_object_only_the_piece_without_an_answer_is_sent_again(
    bucket: ObjectStore, server: S3Server, pauses: Pauses, large: Path, fault: Fault
) -> None:
    server.state.faults += [("PUT", fault)]
    bucket.create("large", large)
    assert bucket.get("large") == large.read_bytes()
    assert sum(request.startswith("PUT") for request in server.state.requests) == 4
    assert pauses == []


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER])
def test_a_large_object_whose_completion_was_not_answered_is_ours(
    bucket: ObjectStore, server: S3Server, large: Path, fault: Fault
) -> None:
    server.state.faults += [("PUT", Fault.SLOW_DOWN), ("POST", fault)]  # so the upload begins undisturbed
    bucket.create("large", large)
    assert bucket.get("large") == large.read_bytes()
    assert sum(request.startswith("PUT") for request in server.state.requests) == 4


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.ERROR_AFTER])
def test_a_large_object_that_is_as_large_and_has_other_bytes_is_not_ours(
    bucket: ObjectStore, server: S3Server, large: Path, fault: Fault
) -> None:
    server.state.spoils_uploads = True
    server.state.faults += [("PUT", Fault.SLOW_DOWN), ("POST", fault)]
    with pytest.raises(ObjectExists, match="another object large"):
        bucket.create("large", large)
