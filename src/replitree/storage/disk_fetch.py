"""Small parts that come whole from another replica: checked in memory, then made durable together.

Order of a batch (`PartStore.receive` for each part, then `PartStore.publish_received` for all): verify manifest and
checksums → write files → sync all files → sync the parts' folders → rename each → sync ``parts``.  The disk is waited for once
for the batch, not once for each part.

What a crash leaves is a begun fetch as any other: the next try starts it anew.

Absent on purpose: large parts.  Those are fetched in ranges, piece by piece (`PartStore.begin_fetch`, `finish_fetch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from replitree.errors import CorruptPart
from replitree.protocol.parts import parse_part
from replitree.storage.durable import sync_files, sync_folder, write_file
from replitree.storage.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.part_folder import remove_folder


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """A part whose checked files lie, not yet synced, in a folder of its own."""

    part: str
    manifest: PartManifest
    folder: Path


def check_expected(manifest: PartManifest, part: str, content_hash: str | None) -> None:
    """Raise `CorruptPart` unless a manifest is of this part, with the content that the log says (None: it does not say)."""
    if content_hash not in (None, manifest.content_hash):
        raise CorruptPart(f"the fetched {part} has content {manifest.content_hash}, the log says {content_hash}")
    if manifest.partition != parse_part(part).partition:
        raise CorruptPart(f"the fetched {part} is of partition {manifest.partition}")


def check_received(part: str, manifest: PartManifest, files: Sequence[bytes]) -> None:
    """Raise `CorruptPart` unless the bytes of every data file are those of the manifest."""
    for file, data in zip(manifest.files, files, strict=True):
        if len(data) != file.bytes or xxhash.xxh3_128_hexdigest(data) != file.checksum:
            raise CorruptPart(f"{file.name} of {part} did not arrive as its checksum says; fetch the part again")


def write_received(received: ReceivedPart, raw: bytes, files: Sequence[bytes]) -> None:
    """Write a part's files and, last, its manifest; what an earlier try left is deleted first."""
    try:
        received.folder.mkdir()
    except FileExistsError:
        remove_folder(received.folder)
        received.folder.mkdir()
    for file, data in zip(received.manifest.files, files, strict=True):
        write_file(f"{received.folder}/{file.name}", data, sync=False)
    write_file(f"{received.folder}/{MANIFEST_FILE}", raw, sync=False)


def sync_received(batch: Sequence[ReceivedPart]) -> None:
    """Make the files of parts and their names durable."""
    sync_files(
        [
            f"{each.folder}/{name}"
            for each in batch
            for name in (*(file.name for file in each.manifest.files), MANIFEST_FILE)
        ]
    )
    for each in batch:
        sync_folder(each.folder)
