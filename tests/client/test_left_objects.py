"""A table is dropped while its object store is away: what it has there is noted, found and deleted when the store is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from replitree.client.left_objects import note_left
from replitree.coordination.port import Coordination
from replitree.errors import CoordinationUnavailable
from replitree.protocol import layout
from replitree.protocol.effects import Children, Commit, CoordinationEffect, Exists, Unknown
from tests.client.test_fsck import TABLE, Shared
from tests.replica.inprocess import ROOT
from tests.shared.stores import FOLDER, on


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
    assert shared.connection.left_objects() == ()


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
