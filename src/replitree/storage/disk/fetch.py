"""Parts that come from another replica: checked, made durable, and published.

Order of a part that comes piece by piece (`begin`, `finish`): verify every checksum → sync files → sync folder →
rename → sync ``parts``.

Order of a batch of small ones, which come whole (`receive` for each, then `publish` for all): verify manifest and
checksums in memory → write files → sync all files and the parts' folders → rename each → sync ``parts``.  The disk is waited
for twice for the batch, not for each part.

What a crash leaves of either is a begun fetch: the next try goes on with the first, and starts the second anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from replitree import private
from replitree.errors import CorruptPart, NotAuthorized, StoreError
from replitree.protocol.core.parts import parse_part
from replitree.storage.disk.folders import PartFolders, make_own_folder
from replitree.storage.files.durable import is_folder, store_errors, write_file
from replitree.storage.files.sums import is_summed, sums_of
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, read_manifest
from replitree.storage.parts.part_folder import DamagedFile, remove_folder, verify_files
from replitree.storage.parts.part_sync import sync_part, sync_parts
from replitree.storage.parts.sums_files import write_sums


@dataclass(frozen=True, slots=True)
class ReceivedPart:
    """A part whose checked files lie in a folder of its own; `is_synced`: and are durable."""

    part: str
    manifest: PartManifest
    folder: Path
    is_synced: bool = False


class FetchedParts:
    """Takes parts from other replicas.  May be used by several threads.

    Parameters
    ----------
    folders
        The table's.
    """

    def __init__(self, folders: PartFolders) -> None:
        self._folders = folders
        self._shared = folders.shared

    def begin(self, part: str) -> Path:
        """Give the folder into which a part's files are to be fetched; what an earlier try left is still in it."""
        folder = self._folders.fetch_path(part)
        with store_errors(f"begin to fetch {part}"):
            make_own_folder(folder)
        return folder

    def finish(self, part: str, content_hash: str | None = None, *, sync_names: bool = True) -> PartManifest:
        """Verify the fetched files, sync them, and publish the part.  A part that is there already stays.

        Parameters
        ----------
        content_hash
            What the log says of the part.
        sync_names
            Whether to sync the folders of parts; with False the caller says `sync_names` after a batch, and the part counts
            as published only then.

        Raises
        ------
        CorruptPart
            A file is missing, or is not what the manifest or the log says.  The damaged file (or, for a wrong manifest,
            everything) is removed, so that the next try fetches it again and keeps the rest.
        """
        folder = self._folders.fetch_path(part)
        with store_errors(f"finish to fetch {part}"):
            manifest = self._folders.present(part, content_hash)
            if manifest is not None:
                remove_folder(folder)
            else:
                try:
                    manifest = read_manifest(folder)
                    check_expected(manifest, part, content_hash)
                    check_local(manifest, part)
                except CorruptPart:
                    remove_folder(folder)
                    raise
                try:
                    verify_files(folder, manifest)
                except DamagedFile as error:
                    # Only the damaged file is fetched again by the next try.
                    error.path.unlink(missing_ok=True)
                    raise
                sync_part(folder, manifest)
                self._name_fetched(folder, part)
        # Also for a part that is there: an earlier try may have stopped between the rename and its sync.
        if sync_names:
            self._folders.sync_names()
        self._folders.remember(part, manifest)
        return manifest

    def receive(
        self, part: str, manifest: PartManifest, raw: bytes, content_hash: str | None, files: Sequence[bytes]
    ) -> ReceivedPart:
        """Check and write a small part that has arrived whole; `publish` makes it durable and publishes it.

        Parameters
        ----------
        manifest, raw
            The manifest, and the bytes that it was decoded from, which are what is written.
        files
            The data files, in the manifest's order.
        content_hash
            What the log says of the part.

        Raises
        ------
        CorruptPart
            It is not what the manifest or the log says; nothing was written.
        """
        received = ReceivedPart(part, manifest, self._folders.fetch_path(part))
        # Before anything is written: another replica's answer is not believed.
        check_expected(manifest, part, content_hash)
        check_local(manifest, part)
        check_received(part, manifest, files)
        with store_errors(f"write the fetched {part}"):
            write_received(received, raw, files)
        return received

    def receive_shared(self, part: str, manifest: PartManifest, raw: bytes, content_hash: str | None) -> ReceivedPart:
        """Check and write a part whose data files are objects: its manifest alone; `publish` does the rest.

        The share must be in this replica's store; the caller has looked (`can_take_over`).

        Raises
        ------
        CorruptPart
            The manifest is not what the log says.
        """
        received = ReceivedPart(part, manifest, self._folders.fetch_path(part))
        check_expected(manifest, part, content_hash)
        with store_errors(f"write the fetched {part}"):
            write_received(received, raw, ())
        return received

    def can_take_over(self, manifest: PartManifest) -> bool:
        """Whether the shares of a manifest can be read from here; also False when the store gives no answer.

        For callers that can do without: they are sent the rows.
        """
        try:
            return self.has_shares(manifest)
        except (StoreError, NotAuthorized):
            return False

    def has_shares(self, manifest: PartManifest) -> bool:
        """Whether the shares of a manifest can be read from here: same manifests, all data files, none found broken.

        Raises
        ------
        StoreError, NotAuthorized
            The store gives no answer.
        """
        objects = self._shared.objects
        if objects is None or manifest.share_id is None or self._shared.distrusts(manifest):
            return False
        return objects.is_here(manifest)

    def sync_received(self, received: ReceivedPart) -> ReceivedPart:
        """Make a part durable that was received; it is not published yet."""
        with store_errors(f"sync the fetched {received.part}"):
            sync_received((received,))
        return replace(received, is_synced=True)

    def publish(self, batch: Sequence[ReceivedPart]) -> None:
        """Sync what was received, publish it, and sync the names: all at once.  A part that is there already stays."""
        with store_errors(f"publish {len(batch)} fetched parts"):
            sync_received([each for each in batch if not each.is_synced])
            for each in batch:
                if self._folders.present(each.part, each.manifest.content) is not None:
                    remove_folder(each.folder)
                else:
                    self._name_fetched(each.folder, each.part)
            # Noted in memory only when the names are durable: a reader must not see a part that a crash takes away.
            self._folders.sync_names()
        for each in batch:
            self._folders.remember(each.part, each.manifest)

    def abandon(self, part: str) -> None:
        """Delete what was fetched of a part.  Idempotent."""
        with store_errors(f"abandon the fetch of {part}"):
            remove_folder(self._folders.fetch_path(part))

    def _name_fetched(self, folder: Path, part: str) -> None:
        """Give a fetched part its name; one that is there with other content makes way."""
        # A rename does not replace a folder that has files.
        if is_folder(self._folders.part_path(part)):
            self._folders.quarantine(part, "it did not have the content that the log says")
        self._folders.give_name(folder, part)


def check_expected(manifest: PartManifest, part: str, content_hash: str | None) -> None:
    """Raise `CorruptPart` unless a manifest is of this part, with the content that the log says (None: it does not say)."""
    if content_hash not in (None, manifest.content):
        raise CorruptPart(f"the fetched {part} has content {manifest.content}, the log says {content_hash}")
    if manifest.partition != parse_part(part).partition:
        raise CorruptPart(f"the fetched {part} is of partition {manifest.partition}")


def check_local(manifest: PartManifest, part: str) -> None:
    """Raise `CorruptPart` if a part that was sent with its data files says that they are somewhere else."""
    if manifest.share_id is not None:
        raise CorruptPart(f"the fetched {part} came with its data files and names a share")


def check_received(part: str, manifest: PartManifest, files: Sequence[bytes]) -> None:
    """Raise `CorruptPart` unless the bytes of every data file are those of the manifest."""
    for file, data in zip(manifest.files, files, strict=True):
        if len(data) != file.bytes or xxhash.xxh3_128_hexdigest(data) != file.checksum:
            raise CorruptPart(f"{file.name} of {part} did not arrive as its checksum says; fetch the part again")


def write_received(received: ReceivedPart, raw: bytes, files: Sequence[bytes]) -> None:
    """Write a part's files and, last, its manifest; what an earlier try left is deleted first."""
    try:
        mode = private.make_folder(received.folder)
    # Of an earlier try, whose files may be of another content.
    except FileExistsError:
        remove_folder(received.folder)
        mode = private.make_folder(received.folder)
    for file, data in zip(received.manifest.files, files, strict=bool(files)):
        write_file(f"{received.folder}/{file.name}", data, sync=False, mode=mode)
        if is_summed(len(data)):
            write_sums(received.folder / file.name, sums_of(data))
    write_file(f"{received.folder}/{MANIFEST_FILE}", raw, sync=False, mode=mode)


def sync_received(batch: Sequence[ReceivedPart]) -> None:
    """Make the files of parts and their names durable."""
    sync_parts([(each.folder, each.manifest) for each in batch])
