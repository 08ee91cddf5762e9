"""Copies: what else on this disk has the bytes of a part that is broken or gone.

The folders that are searched, in this order: a part that is set aside meanwhile moves from the first one to a later one.

====================  =========================================================================================
`parts/`              old parts, copies of objects beside a manifest, equal rows under another name
`leaving/`            parts of shares that were set aside or have left, with the copies of objects that they had
`detached/`           parts that were taken out, also those that were taken out as broken
`frozen/`             the parts of frozen snapshots
`packs/`              small old parts, each in a pack with others (`replitree.storage.disk.packs`)
====================  =========================================================================================

A manifest counts when it has the content hash that is wanted; a file counts when its size and the checksum of all of its bytes
are those of a manifest's entry, whatever folder it lies in.  So one copy may be put together of files of several folders.
A pack has copies of the parts that its index names, each as a whole: nothing is put together of the files in it.

`search` reads every manifest and lists every file once.  It raises `StoreError` when a folder can't be read, so a search that
ends has looked everywhere.  A manifest that can't be decoded is passed over; its files are looked at all the same.  Of packs it
lists the names, which say what blocks are in them; `put_back_packed` reads the indexes of those that may have a part.

Absent on purpose: when a copy is used, and for what (`replitree.replica.parts.salvage`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.protocol.core.parts import parse_part
from replitree.storage.disk.fetch import check_expected
from replitree.storage.disk.packs import blocks_of
from replitree.storage.disk.store import PartStore
from replitree.storage.files.durable import file_bytes, file_checksum, is_folder, link_file, store_errors, write_file
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest, is_data_file, read_manifest
from replitree.storage.parts.part_folder import FOLDER_NAME, folders
from replitree.storage.parts.sums_files import link_sums

_NO_COPY = frozenset({errno.ENOENT, errno.EIO})
"""Errors for a file that has just left, and for one whose bytes the disk has lost."""

SEARCHED_FOLDERS = ("parts", "leaving", "detached", "frozen", "packs")
"""Where copies are searched, below the table's folder."""


@dataclass(frozen=True, slots=True)
class FoundCopies:
    """The result of one search.

    Attributes
    ----------
    manifests
        By content hash: the manifests, and their folders.
    files
        By size in bytes: paths of data files.
    unreadable
        Folders with a manifest of a newer format: whether they have a part is not known.
    damaged
        Folders whose manifest is missing or damaged.
    packs
        Names of the packs.
    """

    manifests: Mapping[str, Sequence[tuple[Path, PartManifest]]]
    files: Mapping[int, Sequence[Path]]
    unreadable: Sequence[Path] = ()
    damaged: Sequence[Path] = ()
    packs: Sequence[str] = ()

    def manifests_of(self, part: str, content_hash: str) -> tuple[PartManifest, ...]:
        """Return the different manifests with this content, in the order in which they were found."""
        found: list[PartManifest] = []
        for _, manifest in self.manifests.get(content_hash, ()):
            if manifest not in found:
                with suppress(CorruptPart):
                    check_expected(manifest, part, content_hash)
                    found.append(manifest)
        return tuple(found)

    def file(self, entry: FileEntry) -> Path | None:
        """Return a file that has all bytes of an entry; every byte is read.

        Raises
        ------
        StoreError
            A file that may have them can't be opened: whether it has is not known.
        """
        for path in self.files.get(entry.bytes, ()):
            with store_errors(f"read {path}"):
                try:
                    if file_bytes(path) == entry.bytes and file_checksum(path) == entry.checksum:
                        return path
                except OSError as error:
                    # A disk that fails in another way says nothing of the
                    # file: the search must not end with "there is no copy".
                    if error.errno not in _NO_COPY:
                        raise
        return None

    def files_of(self, manifest: PartManifest) -> dict[str, Path] | None:
        """Return a verified copy of each data file of a part, by name; None when one is missing."""
        found: dict[str, Path] = {}
        for entry in manifest.files:
            path = self.file(entry)
            # One file that is missing ends it before the others are read as a whole.
            if path is None:
                return None
            found[entry.name] = path
        return found

    def unusable(self, part: str, content_hash: str) -> dict[Path, str]:
        """Return the folders that look like copies of a part of which no whole copy was found, and why each is none."""
        found = {folder: _problem(folder, manifest) for folder, manifest in self.manifests.get(content_hash, ())}
        for folder in self.damaged:
            if part in (folder.name, *_stems(folder.name)):
                found[folder] = "its manifest is missing or damaged"
        return {folder: problem for folder, problem in found.items() if problem}

    def bare(self, part: str) -> tuple[tuple[Path, tuple[Path, ...]], ...]:
        """Return the folders that were named after a part and have data files and no manifest, each with its files."""
        found = []
        for folder in self.damaged:
            files = tuple(sorted(path for paths in self.files.values() for path in paths if path.parent == folder))
            if files and part in (folder.name, *_stems(folder.name)):
                found.append((folder, files))
        return tuple(found)

    def may_be_unreadable(self, part: str) -> bool:
        """Whether a folder that was named after the part has a manifest of a newer format."""
        return any(part in (folder.name, *_stems(folder.name)) for folder in self.unreadable)


def search(store: PartStore) -> FoundCopies:
    """Search all folders of a table for copies.

    Raises
    ------
    StoreError
        A folder can't be read: what it has is not known.
    """
    manifests: dict[str, list[tuple[Path, PartManifest]]] = {}
    files: dict[int, list[Path]] = {}
    unreadable: list[Path] = []
    damaged: list[Path] = []
    with store_errors(f"search {store.root} for copies"):
        for folder in copy_folders(store.root):
            try:
                manifest = read_manifest(folder)
            except CorruptPart:
                damaged.append(folder)
            except UnsupportedFormat:
                unreadable.append(folder)
            else:
                manifests.setdefault(manifest.content, []).append((folder, manifest))
            # A folder that has just left has no data files.
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if is_data_file(entry.name) and entry.is_file(follow_symlinks=False):
                        size = entry.stat(follow_symlinks=False).st_size
                        files.setdefault(size, []).append(Path(entry.path))
    # After the folders: what is packed meanwhile has its pack before its folder goes.
    return FoundCopies(manifests, files, unreadable, damaged, store.packs.names())


def copy_folders(root: Path) -> Iterator[Path]:
    """Yield the folders of a table that may have a copy of a part, in the order of `SEARCHED_FOLDERS`; packs are files."""
    for name in SEARCHED_FOLDERS:
        place = root / name
        if not is_folder(place):
            continue
        for each in folders(place, FOLDER_NAME):
            if name == "frozen":
                yield from (place / each / part for part in folders(place / each, FOLDER_NAME))
            else:
                yield place / each


def put_back(store: PartStore, part: str, manifest: PartManifest, files: Mapping[str, Path]) -> PartManifest:
    """Publish a part again whose files are copies on this disk: by hard links, verified, durable on return.

    Parameters
    ----------
    manifest
        Of the part; the published one has its files beside it.
    files
        A file for each of the manifest's, by name.

    Raises
    ------
    CorruptPart
        A file is not what the manifest says any more.
    StoreError
        The disk takes no more.
    """
    # An earlier try may have left links in the folder, which `os.link` does not replace.
    store.fetched.abandon(part)
    folder, local = store.fetched.begin(part), manifest.as_local()
    with store_errors(f"put {part} back"):
        for entry in local.files:
            link_file(files[entry.name], folder / entry.name)
            link_sums(files[entry.name], folder / entry.name)
        write_file(folder / MANIFEST_FILE, local.encode(), sync=False)
    return store.fetched.finish(part, local.content)


def put_back_packed(store: PartStore, packs: Sequence[str], part: str, content_hash: str) -> str | None:
    """Publish a part again that stands whole in a pack: verified, durable on return.

    Parameters
    ----------
    packs
        Names of the packs that are looked into.
    content_hash
        Of the part that is wanted.

    Returns
    -------
    str or None
        The pack; None: none of them has the part as it should be.

    Raises
    ------
    UnsupportedFormat
        A newer replitree has written a pack that may have it.
    StoreError
        The disk takes no more, or does not let a pack be read.
    """
    block = parse_part(part).block_min
    for pack in packs:
        first, last = blocks_of(pack)
        if not first <= block <= last:
            continue
        # A damaged pack, and one that has left meanwhile, have no copy.
        with suppress(CorruptPart):
            if part in store.packs.index(pack).parts:
                store.packs.extract(pack, part, store.fetched.begin(part))
                store.fetched.finish(part, content_hash)
                return pack
    return None


def _problem(folder: Path, manifest: PartManifest) -> str:
    """Say what is wrong with a folder that is no whole copy; empty: it is a part of a share, and has no data files."""
    sizes = {entry.name: file_bytes(folder / entry.name) for entry in manifest.files}
    missing = next((name for name, size in sizes.items() if size is None), None)
    # A part of a share needs no data files here: a folder with none of them is as it should be.
    if missing is not None:
        return "" if manifest.share_id is not None and not any(sizes.values()) else f"{missing} is missing"
    cut = next((entry for entry in manifest.files if sizes[entry.name] != entry.bytes), None)
    if cut is not None:
        return f"{cut.name} has {sizes[cut.name]} bytes instead of {cut.bytes}"
    return "a data file is not what its checksum says"


def _stems(name: str) -> tuple[str, ...]:
    """Return the names of parts that a folder in `leaving` or `detached` may be called after."""
    stem = name.rpartition("_")[0]
    return stem, stem.partition("_")[2]


__all__ = ["SEARCHED_FOLDERS", "FoundCopies", "copy_folders", "put_back", "put_back_packed", "search"]
