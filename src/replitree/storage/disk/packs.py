"""Packs: many small old parts in one file each, and the way back.

::

    <root>/packs/<first>-<last>[~<n>].zip       blocks of the parts in it; ``n`` where two packs have the same blocks
    <root>/staging/pack-<pack>                  begun, not finished; swept
    <root>/staging/unpack-<part>/…              begun, not finished; swept

A pack is a plain ZIP file, which `unzip` and Python's `zipfile` read.  Its members are stored, not compressed, each with its
CRC-32: ``parts.json`` first (`PackIndex`; it alone is compressed), then the files of each part as ``<part>/<file>``.  The index
comes first so that one short read finds the names: the central directory of 1,000 parts takes `zipfile` milliseconds.

Order of packing: `stage` (write → sync) → `publish` (rename → sync ``packs``); only then the caller removes the folders.  So a
part is in its folder, or in a pack, or in both with the same bytes, after any crash.

An unpacked folder is a copy: it is renamed into place when it is whole, and not synced, because the pack has it.  With `synced`
it is made durable first, for a caller that lets the pack go.

Absent on purpose: which parts are packed, when, and which copies go (`replitree.replica.kit.packed_parts`).
"""

from __future__ import annotations

import errno
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec

from replitree import private
from replitree.decoding import json_decoder
from replitree.errors import CorruptPart, InvalidName, StoreError
from replitree.storage.disk.detached import BROKEN, free_name
from replitree.storage.disk.folders import PartFolders, make_own_folder
from replitree.storage.files.durable import (
    is_folder,
    make_folder,
    rename,
    store_errors,
    sync_files,
    sync_folder,
    write_file,
)
from replitree.storage.files.formats import refuse_newer
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.storage.parts.part_folder import (
    FOLDER_NAME,
    check_file_name,
    folders,
    remove_folder,
    whole_manifest,
)
from replitree.storage.parts.part_sync import sync_part

FORMAT = 1
INDEX_FILE = "parts.json"
PACKING_PREFIX, UNPACKING_PREFIX = "pack-", "unpack-"
_PACK = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?:~[0-9]+)?\.zip")
_HEADER = struct.Struct("<4s5H3I2H")
"""The header before a member: signature, …, method, …, CRC-32, bytes as written, bytes, length of the name, of what follows."""

_SIGNATURE = b"PK\x03\x04"
INDEX_BYTES_MAX = 16 << 20
"""Of an index, compressed or not: a header that says more is damaged."""

_DAMAGE = (
    BadZipFile,
    EOFError,
    InvalidName,
    KeyError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    msgspec.MsgspecError,
    struct.error,
    zlib.error,
)
"""What `zipfile` and the decoders raise for bytes that are not what they were."""


class PackedPart(NamedTuple):
    """A part in a pack, and the bytes of its data files."""

    name: str
    bytes: int


class PackIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``parts.json``.

    Attributes
    ----------
    since
        From when on all of them are old, in seconds since 1970.
    parts, bytes
        Names of the parts in the order of their blocks, and the bytes of the data files of each.
    """

    format: int = FORMAT
    since: float
    parts: tuple[str, ...]
    bytes: tuple[int, ...]


_decoder = json_decoder(PackIndex)


class Unpacked(NamedTuple):
    """The parts that have their folders again, and those that are damaged in the pack, each with the problem."""

    parts: tuple[str, ...]
    damaged: Mapping[str, str]


class PartPacks:
    """The packs of one table on one disk.  May be used by several threads, for different parts.

    Parameters
    ----------
    folders
        The table's.
    """

    def __init__(self, folders: PartFolders) -> None:
        self._folders = folders
        self.root = folders.root / "packs"

    # --- looking ---

    def names(self) -> tuple[str, ...]:
        """Names of the packs, in the order of their first blocks."""
        if not is_folder(self.root):
            return ()
        with store_errors(f"list {self.root}"), os.scandir(self.root) as entries:
            found = [
                each.name for each in entries if _PACK.fullmatch(each.name) and each.is_file(follow_symlinks=False)
            ]
        return tuple(sorted(found, key=lambda name: (blocks_of(name), name)))

    def path(self, pack: str) -> Path:
        """Path of a pack, whether it is there or not."""
        return self.root / pack

    def index(self, pack: str) -> PackIndex:
        """Read which parts a pack has.

        Raises
        ------
        CorruptPart
            It is damaged, or gone.
        UnsupportedFormat
            A newer replitree has written it.
        StoreError
            The disk refuses.
        """
        with self._reading(pack), self.path(pack).open("rb") as file:
            return _read_index(file)

    def verify(self, pack: str) -> None:
        """Read every byte of a pack and compare the checksums.  Raises as `index`."""
        index = self.index(pack)
        with self._reading(pack), ZipFile(self.path(pack)) as packed:
            bad = packed.testzip()
            if bad is not None:
                raise BadZipFile(f"{bad} is not what its checksum says")
            there = {member.partition("/")[0] for member in packed.namelist()}
        lacking = next((part for part in index.parts if part not in there), None)
        if lacking is not None:
            raise CorruptPart(f"pack {pack} has no files of {lacking}")

    # --- packing ---

    def free_name(self, blocks: tuple[int, int]) -> str:
        """Return a name for a pack with these first and last blocks that no pack has."""
        stem, number = f"{blocks[0]}-{blocks[1]}", 1
        name = f"{stem}.zip"
        while self.path(name).exists():
            number += 1
            name = f"{stem}~{number}.zip"
        return name

    def can_pack(self, part: str) -> bool:
        """Whether the folder of a part is whole, and has its rows: those of a share are objects."""
        manifest = whole_manifest(self._folders.part_path(part))
        return manifest is not None and manifest.share_id is None

    def stage(self, pack: str, parts: Sequence[PackedPart], since: float) -> None:
        """Write a pack of whole parts into the staging folder, and sync it; parameters as of `PackIndex`.

        Raises
        ------
        StoreError
            A file is gone, or the disk takes no more; nothing was removed.
        """
        with self._staging(pack, _index_of(parts, since)) as packed:
            for part, _ in parts:
                folder = self._folders.part_path(part)
                for file in _files(folder):
                    packed.writestr(_member(f"{part}/{file}"), (folder / file).read_bytes())

    def stage_rest(self, pack: str, parts: Sequence[PackedPart], since: float) -> Mapping[str, str]:
        """Write some parts of a pack into the staging folder as a pack of the same name, and sync it.

        Returns
        -------
        mapping
            The parts that are damaged in the pack, each with its problem: they are left out.

        Raises
        ------
        CorruptPart
            The pack is damaged as a whole.
        StoreError
            The disk refuses.
        """
        with self._reading(pack), ZipFile(self.path(pack)) as source:
            members = _members(source)
            damaged = {part: problem for part, _ in parts if (problem := _damage(source, members.get(part, ())))}
            whole = [each for each in parts if each.name not in damaged]
            with self._staging(pack, _index_of(whole, since)) as packed:
                for part, _ in whole:
                    for info in members[part]:
                        packed.writestr(_member(info.filename), source.read(info))
        return damaged

    def publish(self, pack: str) -> None:
        """Give what was staged its name, in place of a pack of that name; durable on return."""
        with store_errors(f"publish the pack {pack}"):
            if make_folder(self.root):
                sync_folder(self._folders.root)
            rename(self._staged(pack), self.path(pack))
            sync_folder(self.root)

    def remove(self, packs: Iterable[str]) -> None:
        """Delete packs.  Idempotent."""
        with store_errors("delete packs"):
            for pack in packs:
                self.path(pack).unlink(missing_ok=True)
            sync_folder(self.root)

    def set_aside(self, pack: str, reason: str, *, keep: bool = False) -> None:
        """Put a damaged pack among what is detached, for people to look at.

        Parameters
        ----------
        reason
            Kept beside it as ``reason.txt``.
        keep
            The pack stays in its place, too.
        """
        detached = self._folders.root / "detached"
        with store_errors(f"set the damaged pack {pack} aside"):
            target = free_name(detached, f"{BROKEN}_{pack.removesuffix('.zip')}")
            make_own_folder(target)
            write_file(target / "reason.txt", f"{reason}\n".encode(), sync=False)
            if keep:
                os.link(self.path(pack), target / pack)
            else:
                rename(self.path(pack), target / pack)
            for changed in (target, detached, self.root):
                sync_folder(changed)

    def sweep(self) -> int:
        """Delete what a crash has left of packing and unpacking; return how many files and folders."""
        with store_errors("sweep what was packed in part"):
            begun = [each for each in folders(self._folders.staging, FOLDER_NAME) if each.startswith(UNPACKING_PREFIX)]
            for name in begun:
                remove_folder(self._folders.staging / name)
            staged = [
                path
                for path in self._folders.staging.iterdir()
                if path.name.startswith(PACKING_PREFIX) and path.is_file()
            ]
            for path in staged:
                path.unlink()
        return len(begun) + len(staged)

    # --- unpacking ---

    def unpack(self, pack: str, parts: Sequence[str], *, synced: bool = False) -> Unpacked:
        """Give parts of a pack their folders again, in one pass over the pack; a folder that is whole stays.

        Parameters
        ----------
        synced
            Whether the folders are durable on return.

        Raises
        ------
        CorruptPart
            The pack is damaged as a whole, or gone.
        StoreError
            The disk takes no more, or does not let the pack be read.
        """
        done, damaged = list[str](), dict[str, str]()
        with self._reading(pack), ZipFile(self.path(pack)) as packed:
            members = _members(packed)
            for part in parts:
                problem, target = None, self._folders.part_path(part)
                with store_errors(f"unpack {part}"):
                    manifest = whole_manifest(target)
                    if manifest is None:
                        problem = self._extract(packed, part, members, synced=synced)
                    elif synced:
                        sync_part(target, manifest)
                if problem:
                    damaged[part] = problem
                else:
                    done.append(part)
        if synced:
            self._folders.sync_names()
        return Unpacked(tuple(done), damaged)

    def extract(self, pack: str, part: str, folder: Path) -> None:
        """Write the files of a part in a pack into a folder, in place of what is in it; nothing is synced.

        Raises
        ------
        CorruptPart
            The pack is damaged or gone, or does not have the part as a whole.
        StoreError
            The disk takes no more, or does not let the pack be read.
        """
        with self._reading(pack), ZipFile(self.path(pack)) as packed:
            members = _members(packed).get(part, ())
            with store_errors(f"unpack {part}"):
                problem = _write_members(packed, members, folder)
        if problem:
            raise CorruptPart(f"{part} is damaged in pack {pack}: {problem}")

    def _extract(
        self, packed: ZipFile, part: str, members: Mapping[str, Sequence[ZipInfo]], *, synced: bool
    ) -> str | None:
        """Give a part its folder; return what is wrong with it in the pack, or None."""
        staged, target = self._folders.staging / f"{UNPACKING_PREFIX}{part}", self._folders.part_path(part)
        problem = _write_members(packed, members.get(part, ()), staged)
        manifest = whole_manifest(staged)
        if problem or manifest is None:
            remove_folder(staged)
            return problem or "its files are not all there"
        if synced:
            sync_part(staged, manifest)
        # What is there and not whole was left by a crash of an earlier removal; a rename does not replace it.
        remove_folder(target)
        self._folders.give_name(staged, part)
        return None

    # --- steps ---

    def _staged(self, pack: str) -> Path:
        return self._folders.staging / f"{PACKING_PREFIX}{pack}"

    @contextmanager
    def _staging(self, pack: str, index: PackIndex) -> Iterator[ZipFile]:
        """Give a ZIP file in the staging folder that begins with the index; it is synced at the end."""
        staged = self._staged(pack)
        with store_errors(f"write the pack {pack}"):
            # Of an earlier try.
            staged.unlink(missing_ok=True)
            with private.open_file(staged, "wb") as file, ZipFile(file, "w", ZIP_STORED) as packed:
                packed.writestr(_member(INDEX_FILE), msgspec.json.encode(index), ZIP_DEFLATED)
                yield packed
            sync_files([staged])

    @contextmanager
    def _reading(self, pack: str) -> Iterator[None]:
        """Tell a damaged pack from a disk that refuses."""
        try:
            yield
        except _DAMAGE as error:
            raise CorruptPart(f"pack {pack} is damaged: {error}") from error
        except FileNotFoundError as error:
            raise CorruptPart(f"pack {pack} is gone") from error
        except OSError as error:
            if error.errno == errno.EIO:
                raise CorruptPart(f"pack {pack} can't be read: {error}") from error
            raise StoreError(f"can't read the pack {pack}: {error}") from error


def blocks_of(pack: str) -> tuple[int, int]:
    """Return the first and the last block of the parts in a pack, by its name.

    >>> blocks_of("12-90.zip"), blocks_of("12-90~2.zip")
    ((12, 90), (12, 90))
    """
    match = _PACK.fullmatch(pack)
    assert match is not None, pack
    return int(match[1]), int(match[2])


def _index_of(parts: Sequence[PackedPart], since: float) -> PackIndex:
    return PackIndex(since=since, parts=tuple(part.name for part in parts), bytes=tuple(part.bytes for part in parts))


def _member(name: str) -> ZipInfo:
    info = ZipInfo(name)  # without a time: the same parts give the same bytes
    info.external_attr = private.PRIVATE_FILE << 16
    return info


def _files(folder: Path) -> list[str]:
    """Return the names of the files of a part, the manifest last."""
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if each.is_file(follow_symlinks=False)]
    return sorted(names, key=lambda name: (name == MANIFEST_FILE, name))


def _members(packed: ZipFile) -> dict[str, list[ZipInfo]]:
    """Return the members of each part, in the order in which they lie in the file."""
    found: dict[str, list[ZipInfo]] = {}
    for info in packed.infolist():
        part, slash, _ = info.filename.partition("/")
        if slash:
            found.setdefault(part, []).append(info)
    return found


def _read(packed: ZipFile, info: ZipInfo) -> bytes:
    """Read a member and compare its checksum.  Raises what `_DAMAGE` has."""
    try:
        return packed.read(info)
    except OSError as error:
        # The disk has lost these bytes, and may have the others.
        if error.errno == errno.EIO:
            raise BadZipFile(f"{info.filename} can't be read: {error}") from error
        raise


def _damage(packed: ZipFile, members: Sequence[ZipInfo]) -> str:
    """Return what is wrong with the members of a part, or ""."""
    try:
        for info in members:
            _read(packed, info)
    except _DAMAGE as error:
        return str(error)
    return "" if members else "the pack has no files of it"


def _write_members(packed: ZipFile, members: Sequence[ZipInfo], folder: Path) -> str:
    """Write the files of a part into a new folder; return what is wrong with them, or ""."""
    remove_folder(folder)
    mode = private.make_folder(folder)
    for info in members:
        try:
            name, data = check_file_name(info.filename.partition("/")[2]), _read(packed, info)
        except _DAMAGE as error:
            return str(error)
        write_file(f"{folder}/{name}", data, sync=False, mode=mode)
    return "" if members else "the pack has no files of it"


def _read_index(file: BinaryIO) -> PackIndex:
    """Read the first member of a pack.  Raises what `_DAMAGE` has."""
    signature, _, _, method, _, _, crc, size, full, length, extra = _HEADER.unpack(file.read(_HEADER.size))
    if signature != _SIGNATURE or file.read(length) != INDEX_FILE.encode() or max(size, full) > INDEX_BYTES_MAX:
        raise BadZipFile("it does not begin with the index of its parts")
    file.read(extra)
    data = file.read(size)
    if method == ZIP_DEFLATED:
        data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, full)
    if zlib.crc32(data) != crc:
        raise BadZipFile("the index of its parts is not what its checksum says")
    refuse_newer(data, "pack of old parts", FORMAT)
    index = _decoder.decode(data)
    if len(index.bytes) != len(index.parts):
        raise BadZipFile("the index of its parts contradicts itself")
    return index


__all__ = ["PackIndex", "PackedPart", "PartPacks", "Unpacked", "blocks_of"]
