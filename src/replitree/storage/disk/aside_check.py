"""The check of what a replica keeps beside its parts: detached parts that can be attached, frozen snapshots, packs.

No other replica has to have the first two, so damage is reported and nothing is changed: attaching a damaged part is refused
(`StagedParts.attach`), and the files that are whole still serve as copies (`replitree.storage.disk.copies`).  A damaged pack is
set aside when a reader needs it (`replitree.replica.kit.packed_parts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from replitree.errors import CorruptPart, StoreError, UnsupportedFormat
from replitree.storage.disk.detached import DETACHED, detached_name
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.part_folder import verify_files


def damage_aside(store: PartStore) -> Iterator[tuple[str, str]]:
    """Read every byte of what is kept aside; give the place of what is damaged, below the table's folder, and the problem."""
    for name in store.detached():
        why, part = detached_name(name)
        if why == DETACHED and part:
            problem = _problem(store.root / "detached" / name, None)
            # Listed again: a part that was attached or removed meanwhile is no damage.
            if problem and name in store.detached():
                yield f"detached/{name}", problem
    for name in store.frozen():
        try:
            snapshot = store.frozen_snapshot(name)
        # A snapshot that was removed while it was read is no damage: the list is asked again before anything is reported.
        except (CorruptPart, StoreError, UnsupportedFormat) as error:
            if name in store.frozen():
                yield f"frozen/{name}", str(error)
            continue
        for frozen in snapshot.parts:
            problem = _problem(store.frozen_path(name) / frozen.name, frozen.content_hash)
            if problem and name in store.frozen():
                yield f"frozen/{name}/{frozen.name}", problem
    for pack in store.packs.names():
        try:
            store.packs.verify(pack)
        except (CorruptPart, StoreError, UnsupportedFormat) as error:
            # Listed again, as above.
            if pack in store.packs.names():
                yield f"packs/{pack}", str(error)


def _problem(folder: Path, content: str | None) -> str:
    """Verify a part that lies aside; return what is wrong with it, or ""."""
    try:
        manifest = read_manifest(folder)
        verify_files(folder, manifest)
    except (CorruptPart, StoreError, UnsupportedFormat, OSError) as error:
        return str(error)
    if content not in (None, manifest.content):
        return f"it has content {manifest.content}, and was frozen with {content}"
    return ""
