"""A table is dropped while its object store is away: what it has there is noted, found and deleted when the store is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from replitree.client.transport.left_objects import note_left
from replitree.coordination.port import Coordination
from replitree.errors import CoordinationUnavailable, NotAuthorized
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Commit, CoordinationEffect, Exists, Unknown
from replitree.storage.objects import opening
from replitree.storage.shares.inventory import Inventory
from tests.client.test_fsck import LEFT, TABLE, Shared
from tests.replica.inprocess import ROOT
from tests.shared.stores import FOLDER, on
from tests.storage.objects.s3_server import S3Server
from tests.storage.objects.seaweed import KEYS
from tests.storage.objects.test_s3_uploads import begin

DAY_S = 24 * 3600.0


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[Shared]:
    made = Shared(tmp_path, store_url)
    yield made
    made.close()


@on(FOLDER)
def test_what_was_dropped_while_the_store_was_away_is_found_and_deleted(shared: Shared, tmp_path: Path) -> None:
    objects, away = tmp_path / "objects", tmp_path / "away"
    table_id = shared.place.rpartition("/")[2]
    objects.rename(away)
    shared.connection.drop_table("t")
    assert shared.connection.tables() == ()
    if objects.exists():
        objects.rmdir()
    away.rename(objects)
    (told,) = shared.connection.left_objects()
    assert (told.table_id, told.objects, told.gone, told.problem) == (table_id, 2, False, "")
    assert len(shared.objects()) == 2
    (done,) = shared.connection.left_objects(with_repair=True)
    assert (done.objects, done.gone) == (2, True)
    assert shared.objects() == []
    forget(shared)


def forget(shared: Shared) -> None:
    """Let a grace go by in which nothing comes, and see that the table is remembered for so long, and no longer."""
    (told,) = shared.connection.left_objects(with_repair=True)
    assert (told.objects, told.uploads, told.gone, told.problem) == (0, 0, True, "")
    assert DAY_S - 60 < told.remembered_s <= DAY_S
    (told,) = shared.connection.left_objects(with_repair=True, grace_s=0.0)
    assert told.gone
    assert shared.connection.left_objects() == ()


def test_an_object_of_nobody_is_found_when_its_table_is_dropped(shared: Shared) -> None:
    key = shared.leave(LEFT)
    shared.connection.drop_table("t")
    (told,) = shared.connection.left_objects()
    assert (told.objects, told.bytes, told.gone) == (1, 4, False)
    shared.connection.left_objects(with_repair=True)
    assert shared.store.get(key) is None
    forget(shared)


def test_who_looks_at_nodes_only_forgets_what_is_of_nobody(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant."""
    monkeypatch.setattr(Inventory, "is_empty", lambda _self: True)
    key = shared.leave(LEFT)
    shared.connection.drop_table("t")
    assert shared.connection.left_objects() == ()
    assert shared.store.get(key) is not None


def test_what_comes_after_a_repair_is_found_by_the_next_one(shared: Shared) -> None:
    """However short the grace is: it begins anew with everything that is found."""
    shared.leave(LEFT)
    shared.connection.drop_table("t")
    for number in range(3):
        (done,) = shared.connection.left_objects(with_repair=True, grace_s=0.0)
        assert (done.objects, done.gone) == (1, True)
        if number < 2:
            shared.leave(f"{number}" * 32)
    assert shared.objects() == []
    forget(shared)


@on(FOLDER)
def test_what_was_begun_in_a_folder_and_not_ended_is_found_when_its_table_is_dropped(
    shared: Shared, tmp_path: Path
) -> None:
    path = tmp_path / "objects" / shared.place / LEFT / "data-0.parquet#1"
    path.parent.mkdir()
    path.write_bytes(b"1234")
    shared.connection.drop_table("t")
    (told,) = shared.connection.left_objects()
    assert (told.objects, told.uploads, told.gone) == (0, 1, False)
    (done,) = shared.connection.left_objects(with_repair=True)
    assert done.gone
    assert not path.parent.parent.exists()
    forget(shared)


@pytest.fixture
def in_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shared, S3Server]]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with S3Server() as server:
        made = Shared(tmp_path, server.url("a/b"))
        yield made, server
        made.close()


def test_an_upload_that_was_begun_and_not_ended_is_found_when_its_table_is_dropped(
    in_bucket: tuple[Shared, S3Server],
) -> None:
    shared, server = in_bucket
    begin(server.endpoint, f"{shared.place}/{LEFT}/data-0.parquet")
    shared.connection.drop_table("t")
    (told,) = shared.connection.left_objects()
    assert (told.objects, told.uploads, told.gone) == (0, 1, False)
    shared.connection.left_objects(with_repair=True)
    assert server.state.uploads == {}
    forget(shared)


def test_of_uploads_that_are_not_listed_it_is_told_and_the_table_is_remembered(
    in_bucket: tuple[Shared, S3Server],
) -> None:
    shared, server = in_bucket
    server.state.refuses_uploads = 501
    shared.connection.drop_table("t")
    (told,) = shared.connection.left_objects(with_repair=True)
    assert not told.gone
    assert "let a rule of the bucket end them" in told.problem
    assert told.remembered_s > 0
    shared.connection.left_objects(with_repair=True, grace_s=0.0)
    assert shared.connection.left_objects() == ()  # nobody will ever know more


def test_who_drops_a_table_without_credentials_notes_it(
    in_bucket: tuple[Shared, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, _ = in_bucket

    def refused(*_: object, **__: object) -> None:
        raise NotAuthorized("no credentials")

    monkeypatch.setattr(opening, "amazon_source", refused)
    shared.connection.drop_table("t")
    monkeypatch.undo()
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    forget(shared)


@on(FOLDER)
def test_of_a_store_that_is_still_away_it_is_told_and_the_note_stays(shared: Shared, tmp_path: Path) -> None:
    (tmp_path / "objects").rename(tmp_path / "away")
    shared.connection.drop_table("t")
    for _ in range(2):  # an empty folder is made in its place: it is not the store
        (told,) = shared.connection.left_objects(with_repair=True)
        assert (told.objects, told.gone) == (0, False)
        assert "is its disk mounted" in told.problem


def test_a_table_that_was_dropped_with_its_store_there_leaves_no_note(shared: Shared) -> None:
    shared.connection.drop_table("t")
    assert not shared.cluster.admin.perform(Exists(layout.all_dropped_objects(ROOT)))
    assert shared.connection.left_objects(with_repair=True) == ()


class Forgetful:
    """Coordination that makes notes of left objects, and whose answers to them are lost."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    def __getattr__(self, name: str) -> Any:
        """Return what coordination has."""
        return getattr(self._coordination, name)

    def perform(self, effect: CoordinationEffect) -> Any:
        """Perform an effect, and forget what became of it if it was to make a note."""
        outcome = self._coordination.perform(effect)
        notes = f"{layout.all_dropped_objects(ROOT)}/"
        is_note = isinstance(effect, Commit) and any(each.path.startswith(notes) for each in effect.operations)
        return Unknown() if is_note else outcome


def test_a_note_whose_answer_is_lost_is_made_again_before_the_table_goes(shared: Shared) -> None:
    admin = shared.cluster.admin
    with pytest.raises(CoordinationUnavailable, match="drop it again"):
        note_left(cast("Coordination", Forgetful(admin)), ROOT, TABLE)
    note_left(admin, ROOT, TABLE)
    assert admin.perform(Children(layout.all_dropped_objects(ROOT)))
