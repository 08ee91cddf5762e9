"""The stores that tests run on are what they say."""

from __future__ import annotations

import random

from replitree.storage.objects import open_store
from tests.shared.s3_proxy import Ill
from tests.shared.stores import BUCKET, FAULTY, FOLDER, HURT, on
from tests.storage.objects.seaweed import Seaweed


def test_requests_suffer_everything_but_coming_late() -> None:
    chance = random.Random(1)
    assert {HURT.draw(chance) for _ in range(2000)} == {None, *Ill} - {Ill.LATE}


@on(FOLDER, FAULTY, at_night=(BUCKET,))
def test_a_store_is_empty_and_takes_objects(store_url: str) -> None:
    store = open_store(store_url)
    assert list(store.list()) == []
    store.create("tables/a", b"1234")
    assert [found.key for found in store.list()] == ["tables/a"]


@on(FAULTY)
def test_a_store_with_faults_is_behind_a_proxy(store_url: str, s3_server: Seaweed) -> None:
    assert store_url.startswith("s3://")
    assert s3_server.endpoint not in store_url


@on(BUCKET)
def test_a_store_without_faults_is_not(store_url: str, s3_server: Seaweed) -> None:
    assert s3_server.endpoint in store_url
