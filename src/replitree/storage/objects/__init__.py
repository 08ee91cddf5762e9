"""Object stores: objects that are written once and read by every replica that shares the store.

::

    location   where a store is, from a URL; never with credentials
    identity   which one this process has there: keys, or what the chain of Amazon, Google or Azure finds
    opening    the client of a store's kind, with that identity
    store      create, read, replace, list, delete; what an answer that never came means
    probe      what a store must keep to be used; whether two processes reach the same one

Imports: `files`.

Changes: with the conformance tests that every store must pass (`tests/storage/objects`).
"""

from replitree.storage.objects.location import StoreLocation
from replitree.storage.objects.opening import open_store
from replitree.storage.objects.probe import probe, probe_replacing, store_id
from replitree.storage.objects.store import (
    ObjectChanged,
    ObjectExists,
    ObjectInfo,
    ObjectStore,
    StoreInDoubt,
    TaggedObject,
)

__all__ = [
    "ObjectChanged",
    "ObjectExists",
    "ObjectInfo",
    "ObjectStore",
    "StoreInDoubt",
    "StoreLocation",
    "TaggedObject",
    "open_store",
    "probe",
    "probe_replacing",
    "store_id",
]
