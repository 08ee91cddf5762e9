"""One look at all that is known of a table's shares: objects, nodes, and what the replicas have on their disks.

The order gives a look its value (`protocol.shares.sharing` describes the life of a share):

1. *list* the objects
2. *attempts, shares, garbage*, in the order in which a share passes through them, never back: a share that has a node is found
   in one of them, whatever happens meanwhile
3. *registrations*, then the shares that each replica *refers to*: a part's folder exists before its mark, and goes after it

So listed objects without a node belong to no replica, for good: a writer notes its attempt before it puts objects, and the
commit that registers the part deletes that note.  A second look judges what was listed too early, or asked too late
(`protocol.rescue.fsck`).

Every age is by the clock of its writer: of objects by the store's, of nodes by coordination's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Effect, Get, Sync
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import text_of
from replitree.protocol.shares.share import ObjectsInDoubt, ShareEffect, ShareId

# --- what there is ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a share; `modified_ms` by the store's clock."""

    share: ShareId
    file: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """An upload in pieces that was begun and not ended: no listing shows it, and it takes room."""

    share: ShareId
    file: str
    upload: str
    begun_ms: int


@dataclass(frozen=True, slots=True)
class Trial:
    """An object that no table has: some process has put it to try the store, or to ask what time it is there."""

    key: str
    bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in the store, and what time it is there.

    Attributes
    ----------
    now_ms
        The store's time.
    objects, uploads
        Of the table.
    trials
        What processes have left that tried the store or asked for its time: of any table.
    not_judged
        Why nothing is known of uploads; empty if they were listed.
    """

    now_ms: int
    objects: tuple[StoredObject, ...]
    uploads: tuple[MultipartUpload, ...] = ()
    trials: tuple[Trial, ...] = ()
    not_judged: str = ""


@dataclass(frozen=True, slots=True)
class AgedNode:
    """A node and how long ago it was made, by coordination's clock."""

    name: str
    value: bytes
    age_ms: int


@dataclass(frozen=True, slots=True)
class NeededFile:
    """An object that a part needs; `bytes` is None when any size will do."""

    name: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """A part on a replica's disk and a share that it has; one that borrows has several.

    `files` are what it needs of that share: nothing while it is being written, or when the part has left.
    """

    part: str
    share: ShareId
    files: tuple[NeededFile, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenReplica:
    """A replica: which one of its name, what it has registered, what it refers to (None: it did not answer)."""

    name: str
    incarnation: str
    registered: frozenset[str]
    references: tuple[Reference, ...] | None


@dataclass(frozen=True, slots=True)
class FsckLook:
    """What one look has found.

    Attributes
    ----------
    now_ms
        The store's time when it was listed.
    objects
        Of each share, in the order of their names.
    uploads, attempts, garbage
        What is begun, and what is to be deleted.
    owners
        Names of the marks on each share.
    replicas
        Those that the table has.
    trials, not_judged
        As of the listing.
    """

    now_ms: int
    objects: Mapping[ShareId, tuple[StoredObject, ...]]
    uploads: tuple[MultipartUpload, ...]
    attempts: tuple[AgedNode, ...]
    owners: Mapping[ShareId, tuple[str, ...]]
    garbage: tuple[AgedNode, ...]
    replicas: tuple[SeenReplica, ...]
    trials: tuple[Trial, ...] = ()
    not_judged: str = ""

    @property
    def silent(self) -> tuple[str, ...]:
        """Replicas that did not answer."""
        return tuple(each.name for each in self.replicas if each.references is None)


# --- effects ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListObjects(Effect):
    """List all objects of the table's shares, and the uploads that were not ended.  Outcome: `Listing`, `ObjectsInDoubt`."""


@dataclass(frozen=True, slots=True)
class ListAges(Effect):
    """Outcome: an `AgedNode` for each child of a node, in the order of their names."""

    path: str


@dataclass(frozen=True, slots=True)
class AskReferences(Effect):
    """Ask a replica for all shares that it has on its disk or is writing.  Outcome: `Reference`s, or None: no answer."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class AbortUpload(Effect):
    """End an upload without an object.  Outcome: `ObjectsGone` or `ObjectsInDoubt`."""

    upload: MultipartUpload


@dataclass(frozen=True, slots=True)
class DeleteTrial(Effect):
    """Delete an object that no table has.  Outcome: `ObjectsGone` or `ObjectsInDoubt`."""

    key: str


_T = TypeVar("_T")
FsckEffect: TypeAlias = ShareEffect | ListObjects | ListAges | AskReferences | AbortUpload | DeleteTrial
Checking: TypeAlias = Generator[FsckEffect, Any, _T]
"""A procedure of fsck."""


# --- looking ------------------------------------------------------------------------------------------------------------------


def look(table: TablePlace) -> Checking[FsckLook | ObjectsInDoubt]:
    """Look at everything once, in the order that this module tells."""
    listed = yield ListObjects()
    if isinstance(listed, ObjectsInDoubt):
        return listed
    yield Sync(layout.sharing(table))
    attempts = yield ListAges(layout.all_writing(table))
    owners: dict[ShareId, tuple[str, ...]] = {}
    for name in (yield Children(layout.shares(table))) or ():
        marks = yield Children(layout.share(table, name))
        if marks is not None:
            owners[ShareId(name)] = marks
    garbage = yield ListAges(layout.all_garbage(table))
    replicas = yield from _replicas(table)
    found: dict[ShareId, list[StoredObject]] = {}
    for each in listed.objects:
        found.setdefault(each.share, []).append(each)
    objects = {share: tuple(sorted(found[share], key=lambda each: each.file)) for share in sorted(found)}
    rest = (listed.trials, listed.not_judged)
    return FsckLook(listed.now_ms, objects, listed.uploads, attempts, owners, garbage, replicas, *rest)


def _replicas(table: TablePlace) -> Checking[tuple[SeenReplica, ...]]:
    found: list[SeenReplica] = []
    for name in (yield Children(layout.replicas(table))) or ():
        replica = Replica(table, name)
        node = yield Get(layout.replica_path(replica))
        registered = yield Children(layout.parts(replica))
        # The replica is being dropped.
        if node is None or registered is None:
            continue
        references = yield AskReferences(replica)
        found.append(
            SeenReplica(name, text_of(node.value, layout.replica_path(replica)), frozenset(registered), references)
        )
    return tuple(found)


__all__ = [
    "AbortUpload",
    "AgedNode",
    "AskReferences",
    "Checking",
    "DeleteTrial",
    "FsckEffect",
    "FsckLook",
    "ListAges",
    "ListObjects",
    "Listing",
    "MultipartUpload",
    "NeededFile",
    "Reference",
    "SeenReplica",
    "StoredObject",
    "Trial",
    "look",
]
