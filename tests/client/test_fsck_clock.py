"""Fsck on a store whose clock is far behind this machine's: what is young there is young, whatever the time is here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from replitree.storage.shares.inventory import Inventory, inventory_of
from tests.client.test_fsck import LEFT, Shared
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server

STORE_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""When everything in the server was made, by its clock."""

GRACE_S = 3600.0


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with S3Server() as server:
        made = Shared(tmp_path, server.url())
        yield made
        made.close()


def test_the_time_is_that_of_the_store(shared: Shared) -> None:
    assert inventory_of(shared.store, shared.place.rpartition("/")[2]).listing().now_ms == STORE_MS
    assert time.time() * 1000 > STORE_MS + 1000 * GRACE_S


def test_what_is_young_by_the_clock_of_the_store_is_left_alone(shared: Shared) -> None:
    key = shared.leave(LEFT)
    report = shared.fsck(with_repair=True, grace_s=GRACE_S)
    assert (report.findings, report.clean) == ((), True)
    assert shared.store.get(key) == b"1234"
    assert shared.kinds(grace_s=0.0) == ["orphan"]


def test_who_looks_at_its_own_clock_deletes_what_is_young(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant."""
    key = shared.leave(LEFT)
    monkeypatch.setattr(Inventory, "_now_ms", lambda _self: int(time.time() * 1000))
    assert [each.repair for each in shared.fsck(with_repair=True, grace_s=GRACE_S).findings] == ["done"]
    assert shared.store.get(key) is None
