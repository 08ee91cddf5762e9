"""Parts whose rows move between this disk and the object store: what is written on the disk, step by step.

Into the store: note (`note`) → put the objects (`put`) → … own them … → the manifest names the share (`to_share`).
The data files are copies from then on, which `shared` takes away when it likes.

Out of it: bring every file, verify and sync it (`bring`) → note → the manifest says that they are here (`to_disk`).

A note is a folder in ``leaving`` with the manifest that names the share, and nothing else.

Readers see the same files under the same names all the time: only the manifest changes, by one rename.

Absent on purpose: when what is owned (`replitree.protocol.shares.moving`).
"""

from __future__ import annotations

from replitree.errors import CorruptPart, StoreError
from replitree.storage.disk.folders import PartFolders
from replitree.storage.files.durable import file_bytes, store_errors
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.part_folder import DamagedFile, verify_files
from replitree.storage.parts.part_sync import sync_part

BRING_TRIES = 2
"""A copy that is damaged is brought again, once."""


class MovedParts:
    """Moves the rows of parts.  May be used by several threads, one for each part.

    Parameters
    ----------
    folders
        The table's.
    """

    def __init__(self, folders: PartFolders) -> None:
        self._folders = folders
        self._shared = folders.shared

    def has_files(self, part: str) -> bool:
        """Whether all data files of a part are here, as copies or for good."""
        folder = self._folders.part_path(part)
        try:
            return all(file_bytes(folder / file.name) == file.bytes for file in self._folders.manifest(part).files)
        except CorruptPart:
            return False

    def note(self, part: str, share: str) -> None:
        """Note durably that a part may own a share: what it has of it is let go of unless its manifest names the share.

        Of a part that has this share already, what it borrows is noted, too: it leaves all its shares.

        Raises
        ------
        CorruptPart
            The part is not here.
        StoreError
            The disk takes no more.
        """
        manifest = self._folders.manifest(part)
        # Before the share can be owned: a crash afterwards leaves a note that tells which mark to release.
        manifest = manifest if manifest.share_id == share else manifest.as_local().shared_as(share)
        self._shared.note(part, manifest, self._folders.removing)

    # --- into the store -------------------------------------------------------------------------------------------------

    def put(self, part: str, share: str) -> PartManifest:
        """Verify a part's files and put them as the objects of a share, durably; return the manifest of what was put.

        Raises
        ------
        CorruptPart
            The part is not here with its rows, or damaged.
        StoreError, NotAuthorized
            Some may be there, or come to be there.
        """
        manifest, folder = self._folders.manifest(part), self._folders.part_path(part)
        if manifest.share_id is not None:
            raise CorruptPart(f"the rows of {part} are in a share already")
        # A damaged file must not become the only copy that other replicas get.
        with store_errors(f"verify {part}"):
            verify_files(folder, manifest)
        self._shared.known_objects().put(share, folder, manifest.shared_as(share))
        return manifest.shared_as(share)

    def to_share(self, part: str, manifest: PartManifest) -> bool:
        """Let a part's manifest be this one, which names a share; False if just these files are not here (any more)."""
        return self._folders.replace_manifest(part, manifest.as_local(), manifest)

    # --- out of the store -----------------------------------------------------------------------------------------------

    def bring(self, part: str, share: str) -> None:
        """Bring all files of a part here, verify and sync them.  The caller pins the part until `to_disk` was said.

        Raises
        ------
        CorruptPart
            The part is not here with this share, or an object is not what the manifest says.
        StoreError
            The store gives no answer, or the disk takes no more.
        """
        manifest, folder = self._folders.manifest(part), self._folders.part_path(part)
        if manifest.share_id != share:
            raise CorruptPart(f"{part} does not have the share {share} any more")
        with store_errors(f"bring the rows of {part}"):
            for _ in range(BRING_TRIES):
                self._shared.bring_files(folder, manifest)
                try:
                    verify_files(folder, manifest)
                except DamagedFile as error:
                    # The size was right, the bytes were not: a copy that is not removed would count as brought.
                    error.path.unlink(missing_ok=True)
                else:
                    sync_part(folder, manifest.as_local())
                    return
        raise StoreError(f"a file of {part} was brought and is not what its checksum says; is the disk failing?")

    def to_disk(self, part: str, share: str) -> bool:
        """Let a part's manifest say that its files are here; False if the part does not have the share, or not all files."""
        try:
            manifest = self._folders.manifest(part)
        except CorruptPart:
            return False
        # Only of the share that was meant: another move may have been decided meanwhile.
        return manifest.share_id == share and self._folders.replace_manifest(part, manifest, manifest.as_local())

    def seal(self, part: str) -> bool:
        """Give a published part's manifest a checksum, if it has none; False when the part has changed meanwhile.

        The caller has verified the part (`verify`), and that it has the content with which it is registered.

        Raises
        ------
        CorruptPart
            The part is not there, or its manifest does not fit its rows.
        StoreError
            The store gives no answer, or the disk takes no more.
        """
        manifest, folder = self._folders.manifest(part), self._folders.part_path(part)
        if manifest.is_sealed:
            return True
        # Imported here, for it loads Arrow, which a replica that moves nothing does without.
        from replitree.storage.parts.sealing import sealed_manifest

        with self._shared.pinning((part,)):
            if manifest.share_id is not None:
                self._shared.bring_files(folder, manifest)
            with store_errors(f"read the keys of {part}"):
                sealed = sealed_manifest(folder, manifest)
            return self._folders.replace_manifest(part, manifest, sealed)


__all__ = ["MovedParts"]
