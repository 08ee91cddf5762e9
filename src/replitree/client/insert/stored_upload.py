"""Uploads into the object store: a client puts files there, without a replica in between.

Order, for the rows of one task; whatever it leaves when it ends early, the replica or fsck removes:

1. *reach*   the table's store, with the credentials of this process; that it is the table's its id proves
2. *name*    the replica of the upload names a share for each partition, or result of a rewrite, and files in it that no other
             task gets
3. *put*     the files; what is there in part when that fails is deleted again, as far as that works

The manifests travel to the process that commits (`replitree.client.insert.upload`); the replica looks at the objects then.

Absent on purpose: manifests in the store, which the replica puts; and whether an attempt counts, which its commit decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from replitree.client.insert.upload import Upload
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.client.transport.stored import StoredParts
from replitree.errors import ReplicaUnavailable, ReplitreeError, StoreError
from replitree.storage.files.sums import is_summed, read_sums
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.shares.object_bytes import sums_key
from replitree.storage.shares.shares import ShareObjects
from replitree.wire.share_names import ShareNames

NAME_S_MAX = 30.0
"""How long a replica may take to give names, in seconds: it notes a share of each new partition."""

NAME_TRIES = 3
PUTS_AT_ONCE = 4

Tags = dict[str, dict[str, str]]
"""What the store said of the data files when they were put, by partition and name."""


class _NamesAnswer(msgspec.Struct, frozen=True):
    names: dict[str, ShareNames]


@dataclass(frozen=True, slots=True)
class PutParts:
    """What was put: a manifest for each partition, which names the share, and the tags of its files."""

    manifests: tuple[PartManifest, ...]
    tags: Tags


@dataclass(frozen=True, slots=True)
class MadePart:
    """A part that was made and is still to be put: the folder of its files, and its manifest."""

    folder: Path
    manifest: PartManifest


def reach(definition: TableDefinition, store_id: str, environment: Mapping[str, str] | None = None) -> ShareObjects:
    """Return the objects of a table as this process reaches them.

    Parameters
    ----------
    definition
        The table.
    store_id
        Of its store, as a replica says.
    environment
        Where credentials are looked for; the process's own by default.

    Raises
    ------
    NotAuthorized
        There are no credentials, or others.
    StoreError
        The store does not answer, or is another one than the table's; or the definition is older than the table's store.
    """
    if not definition.is_shared:
        raise StoreError(
            f"table {definition.name} had no object store when its definition was read: get the table anew"
        )
    stored = StoredParts(definition, environment)
    # Not `is_dir`: it raises where a folder above is closed to this process's user.
    if stored.is_folder and not os.access(stored.location.place, os.R_OK | os.W_OK | os.X_OK):
        raise StoreError(
            f"the folder {stored.location.place} is not there, or closed to this user: is its disk mounted here?"
        )
    stored.objects.store_id = store_id
    stored.objects.check_store()
    return stored.objects


def put_parts(
    http: HttpClient, upload: Upload, objects: ShareObjects, folder: Path, manifests: Sequence[PartManifest]
) -> PutParts:
    """Put the files of parts into the store, for an upload.

    Parameters
    ----------
    objects
        From `reach`.
    folder
        Has the files, in a folder for each partition.

    Raises
    ------
    ReplicaUnavailable, ReplitreeError
        The replica gives no names.
    NotAuthorized, StoreError
        The store did not take a file.
    """
    made = {manifest.partition: MadePart(folder / manifest.partition, manifest) for manifest in manifests}
    named, tags = put_named(http, upload, objects, made)
    return PutParts(tuple(named.values()), tags)


def put_named(
    http: HttpClient, upload: Upload, objects: ShareObjects, made: Mapping[str, MadePart], *, is_rewrite: bool = False
) -> tuple[dict[str, PartManifest], Tags]:
    """Put the files of parts with any names into the store; return their manifests and tags by these names.

    Parameters
    ----------
    objects
        From `reach`.
    made
        The parts, by the names that they have in the upload: their partitions', and of results of a rewrite their sources'.
    is_rewrite
        The upload is that of a rewrite.

    Raises
    ------
    ReplicaUnavailable, ReplitreeError, NotAuthorized, StoreError
        As `put_parts`.
    """
    counts = {name: len(each.manifest.files) for name, each in made.items()}
    given = ask_names(http, upload, counts, is_rewrite=is_rewrite) if counts else {}
    named = {name: each.manifest.named_in(given[name].share, given[name].first) for name, each in made.items()}
    files = [
        (each.folder / old.name, objects.key(str(named[name].share_id), new.name), new)
        for name, each in made.items()
        for old, new in zip(each.manifest.files, named[name].files, strict=True)
    ]
    try:
        with ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put") as pool:
            found = list(pool.map(lambda each: _put(objects, *each), files))
    except BaseException:
        # What this process leaves behind costs room until `fsck` finds it.
        keys = [key for _, key, _ in files]
        with suppress(ReplitreeError):
            objects.store.delete([*keys, *map(sums_key, keys)])
        raise
    tags = iter(found)
    return named, {name: {file.name: next(tags) for file in each.files} for name, each in named.items()}


def name_files(http: HttpClient, upload: Upload, manifests: Sequence[PartManifest]) -> tuple[PartManifest, ...]:
    """Have the replica of an upload name data files in the store; return the manifests with these names.

    Raises
    ------
    ReplicaUnavailable, ReplitreeError
        It does not answer, or gives none.
    """
    given = ask_names(http, upload, {manifest.partition: len(manifest.files) for manifest in manifests})
    return tuple(each.named_in(given[each.partition].share, given[each.partition].first) for each in manifests)


def ask_names(
    http: HttpClient, upload: Upload, counts: Mapping[str, int], *, is_rewrite: bool = False
) -> dict[str, ShareNames]:
    """Have the replica of an upload give names to so many data files of each part.  Parameters as `put_named`.

    Raises
    ------
    ReplicaUnavailable, ReplitreeError
        It does not answer, or gives none.
    """
    # A replica of an earlier version knows no rewrites whose files are in the store, and says so at their begin.
    body = msgspec.json.encode({"files": counts} | ({"is_rewrite": True} if is_rewrite else {}))
    problem: ReplitreeError = ReplicaUnavailable(f"{upload.replica.address} does not answer")
    # Names in a lost answer are never used, so asking for others is harmless.
    for _ in range(NAME_TRIES):
        try:
            answer = http.request(
                upload.replica.address, "POST", f"{upload.route}/objects", body, timeout_s=NAME_S_MAX
            ).decode(_NamesAnswer)
        except (AnswerLost, ReplicaUnavailable) as error:
            problem = error
        else:
            return answer.names
    raise ReplicaUnavailable(
        f"replica {upload.replica.name} did not name objects in the store ({problem}); nothing is in the table, try again"
    )


def _put(objects: ShareObjects, path: Path, key: str, file: FileEntry) -> str:
    """Put one file, and the sums object of a large one; return the tag that the file has in the store."""
    objects.store.create(key, path)
    if is_summed(file.bytes):
        objects.put_sums(key, read_sums(path, file.bytes, file.checksum))
    found = objects.store.head(key)
    if found is None:
        raise StoreError(f"{objects.store.name} does not show what was stored a moment ago; try again")
    return found.tag


__all__ = ["MadePart", "PutParts", "Tags", "ask_names", "name_files", "put_named", "put_parts", "reach"]
