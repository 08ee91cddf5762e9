"""When a part is durable: its files, its manifest, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from replitree.storage.files.durable import store_errors, sync_files
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.parts.sums_files import sums_files


def sync_part(folder: Path, manifest: PartManifest) -> None:
    """Make a part's files and their names durable."""
    sync_parts([(folder, manifest)])


def sync_parts(parts: Sequence[tuple[Path, PartManifest]], names: Sequence[Path] = ()) -> None:
    """Make the files of parts and their names durable, and the names in some more folders, all at once."""
    # The data files of a share are objects: their store has made them durable.
    paths = [
        f"{folder}/{file.name}" for folder, manifest in parts if manifest.share_id is None for file in manifest.files
    ]
    paths += [f"{folder}/{MANIFEST_FILE}" for folder, _ in parts]
    paths += [str(path) for folder, manifest in parts for path in sums_files(folder, manifest)]
    sync_files([*paths, *(folder for folder, _ in parts), *names])


class LaterSync:
    """Parts that are written and not durable yet: one sync is to make all of them durable.  Any thread may use it.

    The disk is asked once for the parts of many tables, not once for each.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Path, PartManifest]] = []
        self._names: list[Path] = []

    def add(self, parts: Sequence[tuple[Path, PartManifest]], names: Sequence[Path]) -> None:
        """Take parts, and folders whose names are to be durable, as of `sync_parts`."""
        self._parts.extend(parts)
        self._names.extend(names)

    def sync(self) -> None:
        """Make everything durable that was taken.

        Raises
        ------
        StoreError
            The disk refuses: none of it counts as durable.
        """
        with store_errors("sync what was staged"):
            sync_parts(self._parts, list(dict.fromkeys(self._names)))
