"""When a part is durable: its files, its manifest, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from replitree.storage.durable import sync_files
from replitree.storage.manifest import MANIFEST_FILE, PartManifest


def sync_part(folder: Path, manifest: PartManifest) -> None:
    """Make a part's files and their names durable."""
    sync_parts([(folder, manifest)])


def sync_parts(parts: Sequence[tuple[Path, PartManifest]], names: Sequence[Path] = ()) -> None:
    """Make the files of parts and their names durable, and the names in some more folders, all at once."""
    paths = [
        f"{folder}/{name}" for folder, manifest in parts for name in (*(f.name for f in manifest.files), MANIFEST_FILE)
    ]
    sync_files([*paths, *(folder for folder, _ in parts), *names])
