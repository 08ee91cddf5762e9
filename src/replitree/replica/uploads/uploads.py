"""Uploads: folders into which clients put finished part files before one commit makes them an insert.

::

    <root>/<upload>/<partition>/data-0.parquet    the data files; the manifests arrive with the commit
    <root>/<upload>_life                          who writes it; its time is that of the last renewal
    <root>/<upload>_scratch/                      what a client on this machine has not finished
    <root>/<upload>_scratch/<attempt>/<partition>/    files of one attempt of a Spark task, until it is known which ones count
    <root>/<upload>_made/                         a part made of it, see `replitree.replica.parts.prepared`

A client on the same machine writes the files itself, another one sends them.  Nothing in an upload is part of the table.  An
upload whose client has been silent for too long (`replitree.wire.upload_life`) is removed with everything beside it, but never
while it is being committed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.storage.disk.store import PartStore
from replitree.storage.files.folder_walk import below
from replitree.storage.files.sums import sums_path
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.parts.part_folder import check_file_name, is_staged_name
from replitree.storage.parts.sums_files import move_sums
from replitree.wire.staged_file import StagedFile
from replitree.wire.upload_life import LIFE_SUFFIX, SCRATCH_SUFFIX, UploadSilence, Writer, is_given_up

UPLOADS_MAX = 1000
SWEEP_S = 30.0
"""How often the uploads are looked through."""

MADE_SUFFIX = "_made"

_UPLOAD = re.compile(r"[0-9a-f]{32}")
_ATTEMPT = re.compile(r"[0-9a-z-]{1,100}")


class NoSuchUpload(BadInput):
    """The upload was committed, deleted, or removed after a long silence."""


class Uploads:
    """The uploads of one table on one replica.

    Parameters
    ----------
    root
        Folder that holds them; on the same file system as the table's staging folder.
    clock
        Seconds since the epoch.
    """

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._committing: Counter[str] = Counter()
        self._swept_at = clock()
        private.make_folder(root, parents=True, exist_ok=True)

    def open(self, writer: Writer | None = None) -> tuple[str, Path]:
        """Make a new upload; return its id and folder."""
        if sum(_UPLOAD.fullmatch(path.name) is not None for path in self.root.iterdir()) >= UPLOADS_MAX:
            raise BadInput(f"{UPLOADS_MAX} uploads are open; commit or delete some first")
        upload = secrets.token_hex(16)
        folder = self.root / upload
        private.make_folder(folder)
        private.write_file(self.root / f"{upload}{LIFE_SUFFIX}", msgspec.json.encode(writer or Writer()))
        return upload, folder

    def renew(self, upload: str) -> None:
        """Take a sign of life of the one who writes an upload, and expect more of them.

        Raises
        ------
        NoSuchUpload
            There is no such upload.
        """
        self.folder(upload)
        writer = msgspec.structs.replace(self._writer(upload), renews=True)
        private.write_file(self.root / f"{upload}{LIFE_SUFFIX}", msgspec.json.encode(writer))

    def heard_of(self, upload: str) -> None:
        """Take a sign of life of a task that works for the one who writes an upload.

        Raises
        ------
        NoSuchUpload
            There is no such upload.
        """
        self.folder(upload)
        with suppress(FileNotFoundError):
            now = self._clock()
            os.utime(self.root / f"{upload}{LIFE_SUFFIX}", (now, now))

    def has(self, upload: str) -> bool:
        """Whether there is an upload, or one that is being committed, or a part that was made of one."""
        with self._lock:
            is_made = (self.root / f"{upload}{MADE_SUFFIX}").is_dir()
            return is_made or bool(self._committing[upload]) or (self.root / upload).is_dir()

    @contextmanager
    def committing(self, upload: str) -> Iterator[None]:
        """Keep an upload while it is being committed."""
        with self._lock:
            self._committing[upload] += 1
        try:
            yield
        finally:
            with self._lock:
                self._committing[upload] -= 1
                # Adding an empty counter drops the entries that are zero.
                self._committing += Counter()
            self._forget_life(upload)

    def folder(self, upload: str) -> Path:
        """Return the folder of an upload.

        Raises
        ------
        NoSuchUpload
            There is no such upload: it was committed, deleted, or is too old.
        """
        if not _UPLOAD.fullmatch(upload) or not (self.root / upload).is_dir():
            raise NoSuchUpload("there is no such upload: it was committed, deleted or expired; start a new one")
        return self.root / upload

    def file_path(self, upload: str, partition: str, file: str) -> Path:
        """Return where a file of an upload goes; the names are checked."""
        folder = self.folder(upload)
        if not is_staged_name(partition):
            raise BadInput(f"{partition!r} is not a partition's id, nor a part's name")
        if check_file_name(file) == MANIFEST_FILE:
            raise BadInput("the manifests come with the commit, not as files")
        private.make_folder(folder / partition, exist_ok=True)
        return folder / partition / file

    def staged_path(self, upload: str, attempt: str, partition: str, file: str) -> Path:
        """Return where a file of one attempt of a task goes; the names are checked."""
        self.folder(upload)
        if not _ATTEMPT.fullmatch(attempt) or not is_staged_name(partition) or check_file_name(file) == MANIFEST_FILE:
            raise BadInput(f"{attempt}/{partition}/{file} is no data file of a task's attempt")
        folder = self.root / f"{upload}{SCRATCH_SUFFIX}" / attempt / partition
        private.make_folder(folder, parents=True, exist_ok=True)
        return folder / file

    @contextmanager
    def scratch(self, upload: str) -> Iterator[Path]:
        """Return the folder beside an upload for what is not finished; it is removed in the end."""
        self.folder(upload)
        folder = self.root / f"{upload}{SCRATCH_SUFFIX}"
        private.make_folder(folder, exist_ok=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def gather(self, upload: str, files: Sequence[StagedFile]) -> None:
        """Make files of tasks' attempts the files of an upload; those of all other attempts are removed.  It may be done again.

        Raises
        ------
        BadInput
            There is no such upload, a name is wrong, or a file is not there.
        """
        for file in files:
            source = self.staged_path(upload, file.attempt, file.partition, file.file)
            target = self.file_path(upload, file.partition, file.name)
            try:
                source.rename(target)
            except FileNotFoundError as error:
                # An earlier request, whose answer was lost, has renamed it.
                if not target.exists():
                    raise BadInput(
                        f"{file.attempt}/{file.partition}/{file.file} was not sent: run the job again"
                    ) from error
            else:
                move_sums(source, target)
        shutil.rmtree(self.root / f"{upload}{SCRATCH_SUFFIX}", ignore_errors=True)

    def discard(self, upload: str) -> None:
        """Delete an upload and what it holds.

        Raises
        ------
        BadInput
            There is no such upload, or it is being committed.
        """
        try:
            folder = self.folder(upload)
        except NoSuchUpload:
            # What a client had beside an upload that was committed may have gone only now.
            self._forget_life(upload)
            raise
        # From here on no request begins to commit it.
        with self._lock:
            if self._committing[upload]:
                raise BadInput("the upload is being committed; ask for its insert by the token")
            folder = folder.rename(self.root / f"{upload}_removed")
        shutil.rmtree(folder)
        shutil.rmtree(self.root / f"{upload}{SCRATCH_SUFFIX}", ignore_errors=True)
        (self.root / f"{upload}{LIFE_SUFFIX}").unlink(missing_ok=True)

    def remove(self, upload: str) -> None:
        """Delete an upload whose rows were inserted before, if it is there; the request that commits it says so."""
        with suppress(FileNotFoundError):
            shutil.rmtree((self.root / upload).rename(self.root / f"{upload}_removed"))
        (self.root / f"{upload}{LIFE_SUFFIX}").unlink(missing_ok=True)

    def seal(self, upload: str, manifests: tuple[PartManifest, ...], store: PartStore) -> Path:
        """Verify an upload against its manifests, write them beside the files, sync everything; return the folder.

        Raises
        ------
        BadInput
            A file is there that no manifest names, or the manifests contradict each other.
        CorruptPart
            A file is missing, or has not the size or the checksum that its manifest says.
        """
        if not manifests or len({manifest.partition for manifest in manifests}) != len(manifests):
            raise BadInput("an upload is committed with one manifest for each partition, at least one")
        return self.seal_named(upload, {manifest.partition: manifest for manifest in manifests}, store)

    def seal_named(self, upload: str, manifests: Mapping[str, PartManifest], store: PartStore) -> Path:
        """Do the same for parts under any names: the results of a rewrite have those of their sources."""
        folder = self.folder(upload)
        named = {folder / name / file.name for name, manifest in manifests.items() for file in manifest.files}
        named |= set(map(sums_path, named))
        named |= {folder / name / MANIFEST_FILE for name in manifests}
        named |= {folder / name for name in manifests}
        for path in sorted(below(folder)):
            if path not in named:
                raise BadInput(f"the upload has {path.relative_to(folder)}, which no manifest names; delete it")
        store.staged.seal_named(folder, manifests)
        return folder

    def sweep(self) -> int:
        """Delete the uploads whose clients have been silent for too long, with what lies beside them; return how many.

        It looks at most every `SWEEP_S`.
        """
        if self._clock() - self._swept_at < SWEEP_S:
            return 0
        self._swept_at = self._clock()
        removed = 0
        for upload in sorted({path.name.partition("_")[0] for path in self.root.iterdir()}):
            if not _UPLOAD.fullmatch(upload) or self._forget_life(upload):
                continue
            paths = tuple(self.root.glob(f"{upload}*"))
            # The thread that makes a part of an upload removes its folder.
            if any(path.name.endswith(MADE_SUFFIX) for path in paths):
                continue
            writer = self._writer(upload)
            changed = [0.0]
            for top in paths:
                for path in (top, *below(top)):
                    # A file may be removed between the listing and the look.
                    with suppress(OSError):
                        changed.append(path.stat().st_mtime)
            silence = UploadSilence(self._clock() - max(changed), writer.probe(), writer.renews)
            # From here on no request begins to commit it.
            with self._lock:
                if not is_given_up(silence) or self._committing[upload]:
                    continue
                with suppress(OSError):
                    (self.root / upload).rename(self.root / f"{upload}_removed")
            for path in self.root.glob(f"{upload}*"):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            removed += 1
        return removed

    def _forget_life(self, upload: str) -> bool:
        """Forget who wrote an upload of which nothing else is left; tell whether that is so."""
        is_alone = _UPLOAD.fullmatch(upload) and [path.name for path in self.root.glob(f"{upload}*")] == [
            f"{upload}{LIFE_SUFFIX}"
        ]
        if is_alone:
            (self.root / f"{upload}{LIFE_SUFFIX}").unlink(missing_ok=True)
        return bool(is_alone)

    def _writer(self, upload: str) -> Writer:
        try:
            return json_decoder(Writer).decode((self.root / f"{upload}{LIFE_SUFFIX}").read_bytes())
        except (OSError, msgspec.DecodeError):
            return Writer()
