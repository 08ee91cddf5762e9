"""Object stores: objects that are written once and read by every replica that shares the store.

::

    location   where a store is, from a URL; credentials from the environment or a file, never from the URL
    store      create, read, replace, list, delete; what an answer that never came means
    probe      what a store must keep to be used; whether two processes reach the same one

Imports: `files`.

Changes: with the conformance tests that every store must pass (`tests/storage/objects`).
"""

from replitree.storage.objects.location import StoreLocation, open_store
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
