"""Uploads: folders into which clients put finished part files before one commit makes them an insert.

An upload's folder has one folder per partition with the data files; the manifests arrive with the commit.  A client on the
same machine writes the files itself, another one sends them.  Nothing in an upload is part of the table, and an upload that
was never committed is removed after `UPLOAD_LIFETIME_S`.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from pathlib import Path

from replitree.errors import BadInput
from replitree.storage.disk import PartStore
from replitree.storage.manifest import MANIFEST_FILE, PartManifest, is_partition_id
from replitree.storage.part_folder import check_file_name

UPLOAD_LIFETIME_S = 24 * 3600.0
UPLOADS_MAX = 1000

_UPLOAD = re.compile(r"[0-9a-f]{32}")


class Uploads:
    """The uploads of one table on one replica.

    Parameters
    ----------
    root
        Folder that holds them; on the same file system as the table's staging folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def open(self) -> tuple[str, Path]:
        """Make a new upload; return its id and folder."""
        if sum(1 for _ in self.root.iterdir()) >= UPLOADS_MAX:
            raise BadInput(f"{UPLOADS_MAX} uploads are open; commit or delete some first")
        upload = secrets.token_hex(16)
        folder = self.root / upload
        folder.mkdir()
        return upload, folder

    def folder(self, upload: str) -> Path:
        """Return the folder of an upload.

        Raises
        ------
        BadInput
            There is no such upload: it was committed, deleted, or is too old.
        """
        if not _UPLOAD.fullmatch(upload) or not (self.root / upload).is_dir():
            raise BadInput("there is no such upload: it was committed, deleted or expired; start a new one")
        return self.root / upload

    def file_path(self, upload: str, partition: str, file: str) -> Path:
        """Return where a file of an upload goes; the names are checked."""
        folder = self.folder(upload)
        if not is_partition_id(partition):
            raise BadInput(f"{partition!r} is not a partition's id")
        if check_file_name(file) == MANIFEST_FILE:
            raise BadInput("the manifests come with the commit, not as files")
        (folder / partition).mkdir(exist_ok=True)
        return folder / partition / file

    def discard(self, upload: str) -> None:
        """Delete an upload and what it holds."""
        shutil.rmtree(self.folder(upload))

    def seal(self, upload: str, manifests: tuple[PartManifest, ...], store: PartStore) -> Path:
        """Verify an upload against its manifests, write them beside the files, sync everything; return the folder.

        Raises
        ------
        BadInput
            A file is there that no manifest names, or the manifests contradict each other.
        CorruptPart
            A file is missing, or has not the size or the checksum that its manifest says.
        """
        folder = self.folder(upload)
        if not manifests or len({manifest.partition for manifest in manifests}) != len(manifests):
            raise BadInput("an upload is committed with one manifest for each partition, at least one")
        named = {folder / manifest.partition / file.name for manifest in manifests for file in manifest.files}
        named |= {folder / manifest.partition / MANIFEST_FILE for manifest in manifests}
        named |= {folder / manifest.partition for manifest in manifests}
        for path in sorted(folder.rglob("*")):
            if path not in named:
                raise BadInput(f"the upload has {path.relative_to(folder)}, which no manifest names; delete it")
        store.seal_upload(folder, manifests)
        return folder

    def sweep(self, lifetime_s: float = UPLOAD_LIFETIME_S) -> int:
        """Delete the uploads that nobody touched for `lifetime_s`; return how many."""
        old = [folder for folder in self.root.iterdir() if time.time() - _newest(folder) > lifetime_s]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
        return len(old)


def _newest(folder: Path) -> float:
    """Return when a folder or a file in it was last changed, in seconds since the epoch."""
    times = [folder.stat().st_mtime]
    times += [path.stat().st_mtime for path in folder.rglob("*")]
    return max(times)
