"""Uploads whose data files others put into the object store: a task of Spark, say, with credentials of its own.

::

    <table>/attempts/<upload>.json    the share of each partition of an upload, and how many names of files were given away

Order (`replitree.protocol.shares.uploading`); nothing here is part of the table before the commit:

1. *begin*   for each partition that a task has rows of, and each result of a rewrite: a share, noted on the disk, then in
             coordination; and for each file a name that no other attempt of any task gets
2. *seal*    at the commit: files that were sent here are put, all objects are looked at, the manifests are put, what a share
             has besides is deleted, and the manifests are written where those of any upload are
3. *take*    at the staging: from here on the staged part has the share

What was begun and not taken is given up as soon as its upload is gone: committed, discarded, or given up for its silence.  The
file is there until that is done, and survives a restart; so does the upload.

A name of a file is never given twice, also not after a power failure: a large object could replace another of that name.

Absent on purpose: the rows, but those of tasks that did not reach the store.  This process reads footers, and puts manifests.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput, CorruptPart, StoreError, Unavailable
from replitree.protocol.program import uploader
from replitree.protocol.program.stages import ForgetUpload, MemoryEffect, NoteUpload, Then
from replitree.protocol.shares.share import ObjectsInDoubt, ObjectsThere, ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.shares.uploading import AttemptLost
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.uploads.uploads import Uploads
from replitree.storage.disk.shared import write_manifest
from replitree.storage.files.durable import (
    file_bytes,
    file_checksum,
    file_sums,
    make_folder,
    rename,
    store_errors,
    sync_folder,
    write_file,
)
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.files.sums import is_summed
from replitree.storage.parts.manifest import PartManifest, is_partition_id, manifest_problem
from replitree.storage.parts.part_folder import is_staged_name
from replitree.wire.share_names import ShareNames

if TYPE_CHECKING:
    from replitree.storage.shares.shares import ShareObjects

FILES_MAX = 1_000_000
"""Names of files in one partition of one upload: as many as there are (`replitree.storage.parts.manifest.is_data_file`)."""

Tags = Mapping[str, Mapping[str, str]]
"""What the store said of the data files when they were put, by the part's name in the upload and by name."""

REWRITE_PARTS_MAX = 1_000
"""Results and new parts of one rewrite: its entry is one node, and every replica registers its parts in one commit."""


class _Begun(msgspec.Struct, frozen=True):
    """What an upload has of one partition, or of one result: a share, and how many names in it were given away."""

    share: str
    files: int = 0


_Upload = dict[str, _Begun]
NOTE_FORMAT = 2
"""Format of the note of an upload, with a checksum; notes of earlier versions have neither."""
DAMAGED_SUFFIX = ".damaged"


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The file that says what an upload has begun."""

    format: int = NOTE_FORMAT
    begun: _Upload


class StoredUploads:
    """The uploads into the store of one table replica.

    Parameters
    ----------
    root
        The folder of the table on this disk.
    uploads
        What clients have opened here, wherever its data files are.
    objects
        The objects of the table's shares.
    availability
        When this replica gives names.
    sharer
        Returns who this replica is; raises `Unavailable` before its first activation.
    """

    def __init__(
        self,
        context: TableContext,
        root: Path,
        uploads: Uploads,
        objects: ShareObjects,
        availability: Availability,
        sharer: Callable[[], Sharer],
    ) -> None:
        self._context = context
        self._uploads = uploads
        self._objects = objects
        self._availability = availability
        self._sharer = sharer
        self._folder = root / "attempts"
        self._beginning, self._lock = threading.Lock(), threading.Lock()
        self._noted = set[ShareId]()
        """Shares that coordination has noted, as far as this process knows; only of these a client hears the names."""
        self._looked_for: dict[ShareId, tuple[Path, PartManifest, Mapping[str, str]]] = {}
        """For each share that is being sealed: where files that were sent here lie, the manifest, and the tags."""
        with store_errors(f"read {self._folder}"):
            make_folder(self._folder)
            self._begun = dict[str, _Upload]()
            # What an earlier process has noted is taken over.
            for path in sorted(self._folder.glob("*.json")):
                data = path.read_bytes()
                try:
                    # Notes of earlier versions have neither a format nor a checksum.
                    if data.startswith(b'{"format":'):
                        self._begun[path.stem] = json_decoder(_Note).decode(unseal(data, NOTE_FORMAT)).begun
                    else:
                        self._begun[path.stem] = json_decoder(_Upload).decode(data)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    # Its upload has to begin anew; the objects of this one are found by fsck.
                    aside = path.with_suffix(DAMAGED_SUFFIX)
                    rename(path, aside)
                    self._context.log.warning("upload note damaged", file=str(aside), problem=str(error))

    def shares(self) -> tuple[ShareId, ...]:
        """Return the shares that were begun and not taken, ascending."""
        with self._lock:
            return tuple(sorted(ShareId(each.share) for begun in self._begun.values() for each in begun.values()))

    # --- begin ----------------------------------------------------------------------------------------------------------------

    def begin(self, upload: str, files: Mapping[str, int], *, is_rewrite: bool = False) -> dict[str, ShareNames]:
        """Give names to data files that a client is about to put.

        Parameters
        ----------
        upload
            The upload that they are for.
        files
            How many, by partition; of results of a rewrite by source.
        is_rewrite
            The upload is that of a rewrite.

        Raises
        ------
        NoSuchUpload
            There is no such upload.
        BadInput
            The partitions, or the files, are too many or none.
        ReadOnly, Unavailable
            Nothing can be begun now.
        """
        # Coordination may take long, so this is not the lock under which the list of uploads is read.
        with self._beginning:
            # This is checked under the lock: once `left` names the shares of an upload, it must get no further ones.
            self._uploads.heard_of(upload)
            epoch = self._availability.epoch()
            before = self._begun.get(upload, {})
            # An earlier process may have noted shares on this disk only: these are begun anew.
            unsure = tuple(share for each in before.values() if (share := ShareId(each.share)) not in self._noted)
            if unsure:
                self._noted.update(self._run(upload, {}, Then(uploader.resume_upload, (self._sharer(), unsure))))
                before = self._begun.get(upload, {})
            fresh = {partition: _Begun(uuid.uuid4().hex) for partition in files if partition not in before}
            now = {**before, **fresh}
            limit = self._context.definitions.current.settings.partitions_per_insert_max
            if is_rewrite and len(now) > REWRITE_PARTS_MAX:
                raise BadInput(f"a rewrite has 1 to {REWRITE_PARTS_MAX} parts: rewrite in smaller steps")
            if not is_rewrite and len(now) > limit:
                raise BadInput(
                    f"the rows belong to {len(now)} partitions, and one insert may write to {limit}: insert in slices"
                )
            for partition, count in files.items():
                is_name = is_staged_name(partition) if is_rewrite else is_partition_id(partition)
                if not is_name or count < 1:
                    raise BadInput(
                        f"{count} files of partition {partition!r}: name each partition, with at least one file"
                    )
                if now[partition].files + count > FILES_MAX:
                    raise BadInput(f"partition {partition} has more than {FILES_MAX:,} files: use fewer, larger tasks")
            given = {
                partition: _Begun(now[partition].share, now[partition].files + files[partition]) for partition in files
            }
            begun = {**now, **given}
            if not fresh:
                self._write(upload, begun)
            else:
                shares = tuple(ShareId(each.share) for each in fresh.values())
                try:
                    is_noted = self._run(upload, begun, Then(uploader.begin_upload, (self._sharer(), epoch, shares)))
                except BaseException:
                    # After any error no client learns these names, so upkeep may give the shares up.
                    self.given_up(shares)
                    raise
                if not is_noted:
                    raise Unavailable(
                        "coordination did not take note of what is to be put into the object store; try again"
                    )
                self._noted.update(shares)
        return {partition: ShareNames(now[partition].share, now[partition].files) for partition in files}

    def _run(self, upload: str, begun: _Upload, then: Then) -> Any:
        """Run a stage for an upload, which has `begun` once the stage notes it; return what the stage found out."""

        def remember(effect: MemoryEffect) -> None:
            match effect:
                case NoteUpload():
                    self._write(upload, begun)
                case ForgetUpload(shares):
                    self.given_up(shares)

        return Driver(self._context.performer, remember).finish(then)

    # --- seal -----------------------------------------------------------------------------------------------------------------

    def seal(self, upload: str, manifests: Sequence[PartManifest], tags: Tags) -> Path:
        """Make sure that an upload with one part for each partition is in the store: see `seal_named`."""
        if not manifests or len({manifest.partition for manifest in manifests}) != len(manifests):
            raise BadInput("an upload is committed with one manifest for each partition, at least one")
        return self.seal_named(upload, {manifest.partition: manifest for manifest in manifests}, tags)

    def seal_named(self, upload: str, manifests: Mapping[str, PartManifest], tags: Tags) -> Path:
        """Make sure that an upload is in the store as its manifests say, and can be staged; return its folder.

        It may be done again.

        Parameters
        ----------
        upload
            The upload.
        manifests, tags
            By the names that its parts have: their partitions', and of results of a rewrite their sources'.

        Raises
        ------
        NoSuchUpload
            There is no such upload.
        BadInput
            The manifests are not of this upload, or contradict themselves; or its objects were given up.
        CorruptPart, SchemaMismatch
            An object is missing, or is not what its manifest says.
        StoreError, NotAuthorized
            The store gives no answer.
        """
        folder = self._uploads.folder(upload)
        with self._lock:
            begun = dict(self._begun.get(upload, {}))
        for name, manifest in manifests.items():
            problem = manifest_problem(manifest)
            if problem is not None:
                raise BadInput(f"the manifest of an uploaded part contradicts itself: {problem}")
            known = begun.get(name)
            if known is None or (known.share,) != manifest.shares:
                what = f"of partition {name}" if name == manifest.partition else f"that takes the place of {name}"
                raise BadInput(
                    f"the part {what} is not in the share that was named for it: commit an upload"
                    " with all its parts in the store, or all at the replica"
                )
        shares = tuple(ShareId(str(manifest.share_id)) for manifest in manifests.values())
        with self._lock:
            self._looked_for |= {
                share: (folder / name, manifest, tags.get(name, {}))
                for share, (name, manifest) in zip(shares, manifests.items(), strict=True)
            }
        try:
            taken = self._run(upload, {}, Then(uploader.seal_upload, (self._sharer(), shares)))
        finally:
            with self._lock:
                for share in shares:
                    self._looked_for.pop(share, None)
        match taken:
            case AttemptLost.GIVEN_UP:
                raise BadInput("the objects of the upload were given up; run the job again")
            case ObjectsInDoubt(problem):
                raise StoreError(problem)
        with store_errors(f"seal the upload {upload}"):
            for name, manifest in manifests.items():
                make_folder(folder / name)
                write_manifest(folder / name, manifest)
            sync_folder(folder)
        return folder

    def look(self, shares: Sequence[ShareId]) -> ObjectsThere | ObjectsInDoubt:
        """Look at the objects of an upload that is being sealed; put the manifests, delete what the shares have besides.

        Raises as `seal`.
        """
        from replitree.storage.objects.store import ObjectExists
        from replitree.storage.shares.received import check_received, remove_others

        with self._lock:
            wanted = [self._looked_for[share] for share in shares]
        for folder, manifest, _ in wanted:
            # Files that were sent to this replica, as the client of the upload does not reach the store.
            for file in manifest.files:
                path = folder / file.name
                if file_bytes(path) is None:
                    continue
                checksum, sums = file_sums(path) if is_summed(file.bytes) else (file_checksum(path), None)
                if checksum != file.checksum:
                    raise CorruptPart(f"{path} is not what its checksum says; send it again")
                key = self._objects.key(str(manifest.share_id), file.name)
                # Only an earlier try can have put it, because no other writer has this name.
                with suppress(ObjectExists):
                    self._objects.store.create(key, path)
                self._objects.put_sums(key, sums)
                path.unlink()
        for _, manifest, tags in wanted:
            check_received(self._objects, manifest, self._context.definitions.at(manifest.schema_version), tags)
        # A manifest is refused if the upload was sealed with another one.  So this comes before the deletes, which would remove
        # files of that one.
        for _, manifest, _ in wanted:
            self._objects.put_manifest(manifest)
        for _, manifest, _ in wanted:
            # Objects that stay are deleted with the share.
            with suppress(StoreError):
                if removed := remove_others(self._objects, manifest):
                    self._context.log.info("objects of attempts that do not count removed", objects=removed)
        return ObjectsThere()

    # --- afterwards -----------------------------------------------------------------------------------------------------------

    def hand_over(self, shares: Sequence[ShareId]) -> None:
        """Forget the shares of parts that are about to be staged."""
        # With this lock, a task that comes late can't note them again.
        with self._beginning:
            self.given_up(shares)

    def put_back(self, upload: str, manifests: Mapping[str, PartManifest]) -> None:
        """Take the shares of parts, by their names, back whose staging was undone; no further names are given in them."""
        back = {name: _Begun(each.share_id, FILES_MAX) for name, each in manifests.items() if each.share_id is not None}
        if back:
            with self._beginning:
                self._write(upload, {**self._begun.get(upload, {}), **back})

    def left(self) -> tuple[ShareId, ...]:
        """Return the shares that were begun for uploads that are gone: their attempts are to be given up.

        While a request for names runs there are none to return.
        """
        # Coordination may not yet have noted what such a request has noted on the disk, and an attempt that is given up before
        # it is noted would stay until the next activation.
        if not self._beginning.acquire(blocking=False):
            return ()
        try:
            gone = [begun for upload, begun in list(self._begun.items()) if not self._uploads.has(upload)]
        finally:
            self._beginning.release()
        return tuple(ShareId(each.share) for begun in gone for each in begun.values())

    def given_up(self, shares: Sequence[ShareId]) -> bool:
        """Forget shares whose attempts were given up, or that are staged now; return whether one of them was an upload's."""
        self._noted.difference_update(shares)
        has_changed = False
        for upload, begun in list(self._begun.items()):
            left = {partition: each for partition, each in begun.items() if each.share not in shares}
            if len(left) < len(begun):
                self._write(upload, left)
                has_changed = True
        return has_changed

    def _write(self, upload: str, begun: _Upload) -> None:
        """Let the disk have what an upload has, durably."""
        path = self._folder / f"{upload}.json"
        with self._lock, store_errors(f"note what the upload {upload} has begun"):
            if begun:
                draft = self._folder / f".{upload}"
                draft.unlink(missing_ok=True)
                write_file(draft, seal(msgspec.json.encode(_Note(begun=begun))))
                rename(draft, path)
            else:
                path.unlink(missing_ok=True)
            sync_folder(self._folder)
            self._begun.pop(upload, None)
            self._begun.update({upload: begun} if begun else {})


__all__ = ["StoredUploads"]
