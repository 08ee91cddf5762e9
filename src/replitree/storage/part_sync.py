"""When a part is durable: its files, its manifest, and their names."""

from __future__ import annotations

from pathlib import Path

from replitree.storage.durable import sync_files, sync_folder
from replitree.storage.manifest import MANIFEST_FILE, PartManifest


def sync_part(folder: Path, manifest: PartManifest) -> None:
    """Make a part's files and their names durable."""
    sync_files([*(f"{folder}/{file.name}" for file in manifest.files), f"{folder}/{MANIFEST_FILE}"])
    sync_folder(folder)
