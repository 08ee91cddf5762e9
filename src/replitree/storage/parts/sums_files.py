"""Sums files on a disk: written beside large data files, linked with them, and made again when they are missing or damaged.

Guarantees: what is done here never makes an operation on a part fail that would succeed without sums files, except where the
disk refuses what is written.

Their content is described in `replitree.storage.files.sums`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from replitree.storage.files.durable import file_bytes, link_file, rename, write_file
from replitree.storage.files.sums import Sums, is_summed, read_sums, sums_path
from replitree.storage.parts.manifest import FileEntry, PartManifest


def write_sums(path: Path, sums: Sums) -> None:
    """Write the sums file of a data file that has none; `sync_part` makes it durable."""
    write_file(sums_path(path), sums.encoded, sync=False)


def put_sums(path: Path, file: FileEntry, sums: Sums) -> None:
    """Write the sums file of a data file in the place of one that is missing or wrong; do nothing when it is right.

    A reader may have the data file open: it sees the old sums file or the new one, never a part of one.
    """
    found = read_sums(path, file.bytes, file.checksum)
    if found is not None and found.encoded == sums.encoded:
        return
    target = sums_path(path)
    # The process's id: two processes may make the same sums file at once, and the last rename wins with the same bytes.
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    write_file(draft, sums.encoded)
    rename(draft, target)


def has_sums(path: Path, file: FileEntry) -> bool:
    """Tell whether a data file needs no sums file, or has one that is undamaged and its own."""
    return not is_summed(file.bytes) or read_sums(path, file.bytes, file.checksum) is not None


def link_sums(source: Path, target: Path) -> None:
    """Give the sums file of a data file, if there is one, a second name beside a link of that file."""
    # A part of an earlier version has no sums files; the check of parts makes them.
    with suppress(FileNotFoundError):
        link_file(sums_path(source), sums_path(target))


def move_sums(source: Path, target: Path) -> None:
    """Rename the sums file of a data file, if there is one, as that file was renamed."""
    with suppress(FileNotFoundError):
        rename(sums_path(source), sums_path(target))


def sums_files(folder: Path, manifest: PartManifest) -> Iterator[Path]:
    """Give the sums files that are beside a part's data files."""
    for file in manifest.files:
        if is_summed(file.bytes):
            path = sums_path(folder / file.name)
            if file_bytes(path) is not None:
                yield path


def unsummed_files(folder: Path, manifest: PartManifest) -> int:
    """Count the data files in a part's folder that should have a sums file and have none.  Reads nothing."""
    if manifest.share_id is not None:
        return 0
    summed = (folder / file.name for file in manifest.files if is_summed(file.bytes))
    return sum(file_bytes(sums_path(path)) is None for path in summed)


__all__ = ["has_sums", "link_sums", "move_sums", "put_sums", "sums_files", "unsummed_files", "write_sums"]
