"""Whether an object store keeps what we rely on, tested before it is used.

Some servers take a condition and ignore it: "create only when it is not there" then replaces what is there.  With such a store
two writers can both believe that they were first, so it is refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from replitree.errors import StoreError
from replitree.storage.objects.store import ObjectChanged, ObjectExists, ObjectStore

RACES = 3
RACERS = 4

STORE_ID_KEY = "replitree-store-id"
PROBES = "replitree-probe"
"""The begin of the keys of trial objects."""


class StoreUnusable(StoreError):
    """The store does not keep what replicas rely on."""


def probe(store: ObjectStore) -> None:
    """Test that a store honours conditions, reads what was written, lists and deletes; leaves nothing behind.

    Raises
    ------
    StoreError
        It does not; the message says what it did.
    NotAuthorized
        It refuses us.
    """
    place = f"{PROBES}/{uuid.uuid4()}"
    keys = [f"{place}/first"] + [f"{place}/race-{number}" for number in range(RACES)]
    try:
        with ThreadPoolExecutor(len(keys)) as pool:
            # Races and the plain test side by side: a store far away answers each request slowly.
            races = [pool.submit(_side_by_side, store, key) for key in keys[1:]]
            key = keys[0]
            store.create(key, b"first")
            try:
                store.create(key, b"second")
            except ObjectExists:
                pass
            else:
                raise _unusable(store, "ignores the condition that an object must not exist, and replaces it")
            # A range that begins inside: a server that ignores the range sends all of the object.
            if store.get(key) != b"first" or store.get_range(key, 1, 3) != b"irs":
                raise _unusable(store, "does not read back what was stored")
            for race in races:
                race.result()
        if {info.key for info in store.list(place)} != set(keys):
            raise _unusable(store, "does not list what was stored")
    finally:
        # Also when the test fails: trial objects cost room for ever.
        store.delete(keys)
        store.tidy(place)
    if list(store.list(place)) or store.get(keys[0]) is not None:
        raise _unusable(store, "keeps objects that were deleted")


def _side_by_side(store: ObjectStore, key: str) -> None:
    def create(racer: int) -> bool:
        try:
            store.create(key, b"%d" % racer)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        # Exactly one, and it is the one whose bytes are there.
        winners = [racer for racer, won in enumerate(pool.map(create, range(RACERS))) if won]
    if len(winners) != 1 or store.get(key) != b"%d" % winners[0]:
        raise _unusable(store, f"let {len(winners)} of {RACERS} create the same object at once")


def probe_replacing(store: ObjectStore) -> None:
    """Test that a store replaces an object only if it is as it was read; leaves nothing behind.

    Raises
    ------
    StoreError, NotAuthorized
        As of `probe`.
    """
    place = f"{PROBES}/{uuid.uuid4()}"
    key = f"{place}/replaced"
    try:
        store.create(key, b"first")
        first = store.get_tagged(key)
        if first is None:
            raise _unusable(store, "does not read back what was stored")
        store.replace(key, b"second", first.tag)
        try:
            store.replace(key, b"third", first.tag)
        except ObjectChanged:
            pass
        else:
            raise _unusable(store, "ignores the condition that an object must be as it was, and replaces it")
        if store.get(key) != b"second":
            raise _unusable(store, "does not read back what was replaced")
    finally:
        store.delete([key])
        store.tidy(place)


def store_id(store: ObjectStore) -> str:
    """Return the id that this store keeps for ever; the first process that asks gives it one.

    Two processes that read the same id reach the same store, whatever URL each of them uses.
    """
    found = store.get(STORE_ID_KEY)
    if found is None:
        # Read back, also by the process that created it: of two that race, one id counts.
        with suppress(ObjectExists):
            store.create(STORE_ID_KEY, str(uuid.uuid4()).encode())
        found = store.get(STORE_ID_KEY)
    try:
        return str(uuid.UUID((found or b"").decode()))
    except ValueError:
        raise StoreError(
            f"the object {STORE_ID_KEY} of {store.name} is not ours: is the prefix used by something else?"
        ) from None


def try_all(store: ObjectStore) -> Iterator[str]:
    """Try everything that a replica does with a store; yield each thing that works, in order: the first one that fails raises.

    Raises
    ------
    StoreUnusable
        The store ignores a condition, or loses what was stored.
    NotAuthorized, StoreError
        It refuses us, or does not answer.
    """
    key = f"{PROBES}/{uuid.uuid4()}/tried"
    next(store.list(PROBES), None)
    store.get(key)
    yield "reads"
    try:
        store.create(key, b"tried")
    finally:
        store.delete([key])
    yield "writes"
    probe(store)
    yield "creates only what is not there"
    probe_replacing(store)
    yield "replaces only what is as it was"


def _unusable(store: ObjectStore, why: str) -> StoreUnusable:
    return StoreUnusable(f"{store.name} {why}: rows could be lost in it; use a store with conditional writes")


__all__ = ["PROBES", "STORE_ID_KEY", "StoreUnusable", "probe", "probe_replacing", "store_id", "try_all"]
