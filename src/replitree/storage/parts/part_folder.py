"""One folder that is a part: what it may be called, whether it is whole, and how it is checked, linked and deleted.

Guarantees: no name that is accepted here leaves the folder it is joined to; a symbolic link is never followed; `whole_manifest`
gives a manifest only when every file is there in its full size; `link_part_folder` leaves either a whole part or a folder
without a manifest, which is none.

A part whose data files are objects of a share needs nothing in its folder but the manifest: files beside it are copies, which
may go.

Data files are never written again once their part is sealed.  That is why one file may lie in several folders by hard links (a
part, its clone under another name, a frozen snapshot): deleting a folder removes names, not the rows of the other folders.

Absent on purpose: which folders there are and what they mean; see `replitree.storage.disk.store`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from replitree import private
from replitree.errors import CorruptPart, InvalidName
from replitree.storage.files.durable import (
    file_bytes,
    file_checksum,
    file_sums,
    is_folder,
    link_file,
    store_errors,
    sync_folder,
    write_file,
)
from replitree.storage.files.sums import is_summed
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, is_data_file, is_partition_id, read_manifest
from replitree.storage.parts.sums_files import has_sums, link_sums, put_sums

NAME_CHARACTERS_MAX = 200
FETCH_PREFIX = "fetch-"
PART_NAME = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]*(?:_[0-9]+){3,4}")
STAGING_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~=+-]*")
FOLDER_NAME = re.compile(r"[A-Za-z0-9_.~=+-]+")


class DamagedFile(CorruptPart):
    """One file of a part is missing or has changed."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


# --- names --------------------------------------------------------------------------------------------------------------


def check_part_name(part: str) -> str:
    """Return the name if it can be a part's.  Raises `BadInput` otherwise."""
    if len(part) > NAME_CHARACTERS_MAX or PART_NAME.fullmatch(part) is None:
        raise InvalidName(f"{part!r} can't be a part's name")
    return part


def check_staging_id(staging: str) -> str:
    """Return the id if it can be a staging id.  Raises `InvalidName` otherwise."""
    fine = len(staging) <= NAME_CHARACTERS_MAX and STAGING_ID.fullmatch(staging) is not None
    if not fine or staging.startswith(FETCH_PREFIX):
        raise InvalidName(f"{staging!r} can't be a staging id: use letters, digits and . _ ~ = + -")
    return staging


def check_file_name(file: str) -> str:
    """Return the name if a part can have such a file.  Raises `InvalidName` otherwise."""
    if file != MANIFEST_FILE and not is_data_file(file):
        raise InvalidName(f"{file!r} is not the name of a part's file")
    return file


def folders(root: Path, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Names of the real folders in a folder that match a pattern, ascending."""
    with store_errors(f"list {root}"), os.scandir(root) as entries:
        return tuple(sorted(e.name for e in entries if pattern.fullmatch(e.name) and e.is_dir(follow_symlinks=False)))


def is_staged_name(name: str) -> bool:
    """Whether a part may be staged under a name: a partition's id, or of the result of a rewrite its source's name.

    >>> is_staged_name("2024-01"), is_staged_name("2024-01_0_3_1"), is_staged_name("..")
    (True, True, False)
    """
    return is_partition_id(name) or PART_NAME.fullmatch(name) is not None


def staged_in(folder: Path) -> tuple[str, ...]:
    """Names of the folders in a folder under which parts may be staged, ascending."""
    return tuple(filter(is_staged_name, folders(folder, FOLDER_NAME)))


# --- what is in a folder ------------------------------------------------------------------------------------------------


def whole_manifest(folder: Path) -> PartManifest | None:
    """Manifest of a part whose files are there in their full size, or in a share, or None.  Reads no data."""
    if not is_folder(folder):
        return None
    try:
        manifest = read_manifest(folder)
    except CorruptPart:
        return None
    # The data files are objects in a store: copies beside the manifest may be missing.
    if manifest.share_id is not None:
        return manifest
    whole = all(file_bytes(folder / file.name) == file.bytes for file in manifest.files)
    return manifest if whole else None


def verify_files(folder: Path, manifest: PartManifest, *, keep_sums: bool = False) -> None:
    """Read every byte of a part's data files and compare the checksums.  A sums file that is missing or wrong is made again.

    Parameters
    ----------
    keep_sums
        A sums file that belongs to its data file stays: its blocks are not compared, which takes three times as long.

    Raises
    ------
    DamagedFile
        A file is missing or has changed; names it.
    """
    for file in manifest.files:
        path = folder / file.name
        size = file_bytes(path)
        if size != file.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise DamagedFile(f"{path} {found}, its manifest says {file.bytes} bytes; fetch the part again", path)
        if not is_summed(file.bytes) or (keep_sums and has_sums(path, file)):
            checksum, sums = file_checksum(path), None
        else:
            checksum, sums = file_sums(path)
        if checksum != file.checksum:
            raise DamagedFile(f"{path} is not what its checksum says; fetch the part again", path)
        if sums is not None:
            put_sums(path, file, sums)


# --- changes ------------------------------------------------------------------------------------------------------------


def link_part_folder(source: Path, manifest: PartManifest, target: Path) -> None:
    """Make a folder with the same files, by hard links where the disk can, the manifest last; durable on return.

    The target's own name is durable after a sync of its parent.  What an earlier try left there is deleted first.
    """
    # A crash in the middle of an earlier try has left names here, and `os.link` replaces none.
    remove_folder(target)
    private.make_folder(target)
    for file in manifest.files:
        if manifest.share_id is None or file_bytes(source / file.name) == file.bytes:
            link_file(source / file.name, target / file.name)
            # The manifest is linked after the data files: a crash before it leaves a folder that is no part.
            link_sums(source / file.name, target / file.name)
    link_file(source / MANIFEST_FILE, target / MANIFEST_FILE)
    # The rows have moved meanwhile: the same files, with another manifest.
    if read_manifest(target) != manifest:
        # Not written in place: the bytes belong to the source's name, too.
        (target / MANIFEST_FILE).unlink()
        write_file(target / MANIFEST_FILE, manifest.encode())
    sync_folder(target)


def remove_folder(folder: Path) -> None:
    """Delete a folder of ours; a link is not followed, only what it is called is checked.

    Several may delete the same one at the same time: what another one has deleted is no error.
    """
    if is_folder(folder):
        shutil.rmtree(folder, onerror=_unless_gone)


def _unless_gone(
    _function: object, _path: str, found: tuple[type[BaseException], BaseException, TracebackType]
) -> None:
    if not isinstance(found[1], FileNotFoundError):
        raise found[1]
