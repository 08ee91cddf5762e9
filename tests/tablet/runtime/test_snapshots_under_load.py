"""Snapshots while commands go on: nothing grows without an end, whatever the store takes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from replitree.storage.objects import open_store
from replitree.tablet import Settings, Tablet
from replitree.tablet import open as open_tablet
from replitree.tablet.core import snapshots
from replitree.tablet.core.pace import Limits
from replitree.tablet.group.ids import BlobId
from replitree.tablet.group.quorum import Quorum
from replitree.tablet.members import store as blob_store
from replitree.tablet.members.group import BlobGroups, MemberPool
from replitree.tablet.members.store import BlobStore, make_blob_store
from replitree.tablet.runtime import commits
from tests.tablet.building import GROUP
from tests.tablet.machine import State, Words
from tests.tablet.runtime.group import CHANNELS, Delayed, Group
from tests.waiting import wait_for

BLOB_BYTES = 4096
SETTINGS = Settings(look_s=3600.0, limits=Limits(flights=2, batch_bytes=1024, batch_commands=4))
WORD = b"w" * 100


def is_piece(blob: BlobId) -> bool:
    """Whether a blob belongs to a snapshot."""
    return blob.channel == snapshots.DATA


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobGroups]:
    """A group on a store that takes small blobs only."""
    monkeypatch.setattr(blob_store, "BLOB_BYTES_MAX", BLOB_BYTES)
    objects = open_store("memory:///", patience_s=0.0)
    make_blob_store(objects, str(GROUP), 0, "s0")
    store = BlobStore(objects)
    opened = BlobGroups({GROUP: (Quorum(GROUP, 1, 1), [MemberPool(store)])})
    yield opened
    opened.close()
    store.close()


@pytest.fixture
def slow(groups: BlobGroups) -> Delayed:
    """The group, whose puts can be held."""
    return Delayed(groups)


@contextmanager
def snapshot_of(tablet: Tablet[State], slow: Delayed) -> Iterator[Callable[[], bool]]:
    """Make a snapshot whose first piece takes as long as this context; what is given waits for its end."""
    with ThreadPoolExecutor(1) as pool, slow.holding(is_piece):
        made: Future[bool] = pool.submit(tablet.snapshot)
        wait_for(lambda: slow.waiting)
        yield partial(made.result, 60)


def test_commands_that_come_during_a_snapshot_are_more_than_a_blob_holds(
    groups: BlobGroups, slow: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SINCE_BYTES", 1024)
    with open_tablet(slow, Words(), CHANNELS, settings=SETTINGS) as tablet:
        tablet.execute(b"a")
        with snapshot_of(tablet, slow) as made:
            futures = [tablet.submit(WORD) for _ in range(100)]
            assert futures[-1].result(60) == b"101"
        assert made()
        assert tablet.is_leading
        tablet.execute(b"b")
    with open_tablet(groups, Words(), CHANNELS, settings=SETTINGS) as second:
        assert second.read() == ("a", *(WORD.decode(),) * 100, "b")
        assert second.status().commands == 102


def test_commands_that_come_between_pieces_are_stored_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    group, words = Group(), [b"w" * (100 << 10)] * 25
    monkeypatch.setattr(snapshots, "SINCE_BYTES", 1)
    slow = Delayed(group.groups)
    with open_tablet(slow, Words(), CHANNELS, settings=SETTINGS) as tablet:
        tablet.submit_together(words).result(60)

        more = list[bytes]()

        def commit_first(blob: BlobId) -> bool:
            if is_piece(blob) and blob.step == 2:  # it is stored before the snapshot's entry
                more.append(b"a%d" % len(more))
                tablet.submit(more[-1]).result(60)
            return False

        with slow.holding(commit_first):
            assert tablet.snapshot()
    assert len(more) > 3
    with group.open() as second:
        assert second.read() == tuple(each.decode() for each in (*words, *more))
        assert second.status().commands == len(words) + len(more)


def test_commands_wait_for_a_snapshot_that_can_not_catch_up(
    groups: BlobGroups, slow: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "SINCE_BYTES_MAX", 1000)
    with open_tablet(slow, Words(), CHANNELS, settings=SETTINGS) as tablet:
        tablet.execute(b"a")
        with snapshot_of(tablet, slow) as made:
            futures = [tablet.submit(WORD) for _ in range(100)]
            wait_for(lambda: tablet.status().commands > 10)
            assert not futures[20].done()
        assert futures[-1].result(60) == b"101"
        assert made()
    with open_tablet(groups, Words(), CHANNELS, settings=SETTINGS) as second:
        assert second.status().commands == 101


def test_snapshot_that_can_not_be_stored_holds_nothing_up(slow: Delayed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SINCE_BYTES_MAX", 1000)
    with open_tablet(slow, Words(), CHANNELS, settings=SETTINGS) as tablet:
        for _ in range(BLOB_BYTES // len(WORD) + 1):
            tablet.execute(WORD)
        assert not tablet.snapshot()  # its one piece is larger than a blob may be
        before = tablet.status().commands
        for _ in range(20):
            tablet.execute(WORD)
        assert tablet.status().commands == before + 20


def test_snapshot_after_a_snapshot_needs_no_command_between(groups: BlobGroups) -> None:
    with open_tablet(groups, Words(), CHANNELS, settings=SETTINGS) as tablet:
        tablet.execute(b"a")
        for number in range(3):
            assert tablet.snapshot()
            assert tablet.status().snapshot == (1, 2 + number)
    with open_tablet(groups, Words(), CHANNELS, settings=SETTINGS) as second:
        assert second.snapshot()
        assert second.snapshot()
        assert second.read() == ("a",)
