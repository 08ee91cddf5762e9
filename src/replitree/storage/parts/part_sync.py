"""When a part is durable: its files, its manifest, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from replitree.storage.files.durable import store_errors, sync_files
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.parts.sums_files import sums_files


class SyncTogether:
    """Parts of several tables that become durable at once, by `sync`; until then nothing may rely on them."""

    def __init__(self) -> None:
        self._parts: list[tuple[Path, PartManifest]] = []
        self._names: list[Path] = []

    def add(self, parts: Sequence[tuple[Path, PartManifest]], names: Sequence[Path]) -> None:
        """Add what `sync_parts` takes."""
        self._parts += parts
        self._names += names

    def sync(self) -> None:
        """Make all of them durable.

        Raises
        ------
        StoreError
            The disk is full or failing.
        """
        with store_errors(f"sync {len(self._parts)} staged parts"):
            sync_parts(self._parts, self._names)


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
