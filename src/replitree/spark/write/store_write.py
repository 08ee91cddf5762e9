"""Writing into the object store: tasks put their files there, and no row goes through a replica.

A task whose process has no credentials, or does not reach the store, says so in its log, and does as if there were none: its
rows go to the replica, by its disk or by HTTP, and it puts them.  With the option ``through=store`` it fails instead.

The manifests of several tasks for one partition become one without reading anything (`replitree.storage.parts.joined`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from replitree.client.insert.stored_upload import PutParts, Tags, name_files, reach
from replitree.client.insert.upload import Upload, send_file
from replitree.client.transport.http import HttpClient
from replitree.client.transport.stored import Through
from replitree.errors import BadInput, NotAuthorized, StoreError
from replitree.storage.parts.joined import joined_manifest
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.shares.shares import ShareObjects


def offered(upload: Upload, through: Through | None) -> str:
    """Return the id of the store that tasks of a job put into; empty when there is none, or it is not wanted.

    Raises
    ------
    BadInput
        The job is to go there, and can't.
    """
    if through == "replica":
        return ""
    if through == "store" and not upload.store:
        raise BadInput(
            f"replica {upload.replica.name} takes nothing of table {upload.table} from an object store: new parts go to local"
            " disks, or the replica is of an earlier version; leave the option through out"
        )
    return upload.store


def reached(definition: TableDefinition, store: str, through: Through | None, replica: str) -> ShareObjects | None:
    """Return the table's objects as this task reaches them; None when its rows have to go through a replica.

    Parameters
    ----------
    store
        From `offered`; if it is empty nothing is tried.

    Raises
    ------
    NotAuthorized, StoreError
        It does not reach them, and has to.
    """
    if not store:
        return None
    try:
        return reach(definition, store)
    except (NotAuthorized, StoreError) as error:
        if through == "store":
            raise
        # An executor's log is what its processes write there; logging is not configured in them.
        sys.stderr.write(f"replitree: {error}: the rows of this task go through replica {replica}\n")
        sys.stderr.flush()
        return None


def sent(http: HttpClient, upload: Upload, folder: Path, manifests: Sequence[PartManifest]) -> PutParts:
    """Send the files of a task that does not reach the store to the replica, which puts them beside those of the others."""
    named = name_files(http, upload, manifests)
    for before, after in zip(manifests, named, strict=True):
        for old, new in zip(before.files, after.files, strict=True):
            send_file(http, upload, before.partition, folder / before.partition / old.name, new)
    return PutParts(named, {})


def joined(definition: TableDefinition, tasks: Sequence[PutParts]) -> PutParts:
    """Return the parts of a job, of what its tasks have put, in their order.

    Raises
    ------
    BadInput
        The rows belong to too many partitions.
    """
    pieces: dict[str, list[PartManifest]] = {}
    tags: Tags = {}
    for task in tasks:
        for manifest in task.manifests:
            pieces.setdefault(manifest.partition, []).append(manifest)
        for partition, some in task.tags.items():
            tags.setdefault(partition, {}).update(some)
    check_partitions(definition, pieces)
    return PutParts(tuple(joined_manifest(some) for _, some in sorted(pieces.items())), tags)


def check_partitions(definition: TableDefinition, found: Mapping[str, object]) -> None:
    """Do nothing if one insert may write to these partitions.

    Raises
    ------
    BadInput
        They are too many.
    """
    limit = definition.settings.partitions_per_insert_max
    if len(found) > limit:
        raise BadInput(
            f"the rows belong to {len(found)} partitions, and one insert may write to {limit}: insert in slices"
        )


__all__ = ["check_partitions", "joined", "offered", "reached", "sent"]
