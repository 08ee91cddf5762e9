"""Parts that are near: their files lie on this machine, on a replica's disk or in the table's store, and are read in place."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from replitree import private
from replitree.client.read.part_cache import place_name, process_folder
from replitree.client.transport.catalog import this_machine
from replitree.client.transport.stored import StoredParts
from replitree.errors import SnapshotExpired
from replitree.storage.parts.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from replitree.client.read.snapshot import SnapshotPart


def local_folder(part: SnapshotPart, machine: str, table: str) -> Path | None:
    """Return a part's folder if it lies on this machine and this user may read it, or None.

    Raises
    ------
    SnapshotExpired
        It would lie here, but is gone.
    """
    if machine != this_machine():
        return None
    folder = Path(part.path)
    try:
        if not folder.is_dir():
            raise SnapshotExpired(f"part {part.part} of table {table} is gone from this machine; take a new snapshot")
    except PermissionError:
        # The replica's folders are private to its user.
        return None
    return folder if os.access(folder, os.R_OK | os.X_OK) else None


def near_folder(part: SnapshotPart, machine: str, table: str, stored: StoredParts | None) -> Path | None:
    """Return a part's folder if it lies on this machine, on a replica's disk or in the table's store, or None.

    Raises
    ------
    SnapshotExpired
        It would lie on a replica's disk here, but is gone.
    """
    if part.lacking:
        return None
    folder = stored.folder(part.manifest) if stored is not None else None
    if folder is None or stored is None:
        return local_folder(part, machine, table)
    if not part.manifest.borrowed:
        return folder
    # The objects of this part lie in the folders of several shares: a folder of this process has links to all of them.
    linked = process_folder() / f"{place_name(part.part, part.manifest)}-linked"
    private.make_folder(linked, exist_ok=True)
    for file in part.manifest.files:
        # An earlier read of the part, or another thread, has made the link: its target has the same bytes.
        with suppress(FileExistsError):
            (linked / file.name).symlink_to(stored.path(part.manifest, file))
    # Two threads may make the folder at the same time, so each writes the manifest under a name of its own.
    draft = linked / f".{threading.get_ident()}"
    private.write_file(draft, part.manifest.encode())
    draft.replace(linked / MANIFEST_FILE)
    return linked


__all__ = ["local_folder", "near_folder"]
