"""How much a folder holds, while a cluster works in it."""

from __future__ import annotations

from pathlib import Path

from replitree.storage.files.durable import file_bytes
from replitree.storage.files.folder_walk import below


def bytes_below(folder: Path) -> int:
    """Return the bytes of the files below a folder; one that vanishes meanwhile may be left out."""
    return sum(file_bytes(path) or 0 for path in below(folder))
