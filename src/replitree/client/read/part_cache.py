"""Parts that a client brings to its own machine: those that lie elsewhere, and good copies of files that are damaged here.

Guarantees: a file counts as brought only when its bytes have the checksum of its manifest.  What comes from a replica that has
a damaged copy is refused, and the next replica is asked.

A damaged file is reported to the replica that it belongs to, or that has sent it.  That replica verifies the
part, sets it aside and fetches it again (`replitree.replica.table.mending`), whatever becomes of the read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec
import xxhash

from replitree import private
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.client.transport.stored import StoredParts
from replitree.errors import (
    CorruptPart,
    ReplicaUnavailable,
    ReplitreeError,
    RowsUnavailable,
    SnapshotExpired,
    StoreError,
    TableNotFound,
)
from replitree.storage.files.durable import file_checksum, file_sums
from replitree.storage.files.sums import is_summed, sums_path
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest, decode_manifest
from replitree.storage.parts.verified import CheckedFile, CheckedPart, Problem
from replitree.tls import NO_FILES, TlsFiles

if TYPE_CHECKING:
    from replitree.client.read.snapshot import SnapshotPart, UnreadPart

FETCH_S_MAX = 60.0
"""Longest silence of a replica while it sends a file, in seconds."""

MANIFESTS_MAX, MANIFESTS_AT_ONCE = 64, 8
"""Manifests that one read asks other replicas for, in all and at once."""

MANIFEST_S_MAX = 5.0
"""How long a replica may take to send a manifest, in seconds."""

PATIENCE_S = 5.0
"""How long replicas that start, or make a part whole, are asked again for its files, in seconds."""

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 1.0
"""Pause between two rounds; it doubles from round to round."""

REPORT_S_MAX = 2.0
"""How long a report may take, in seconds; the replica goes on with its check when the client waits no longer."""


class NoGoodFile(CorruptPart):
    """A data file is damaged, and no copy with the same bytes is to be had; `part`: the part that it belongs to."""

    def __init__(self, message: str, part: SnapshotPart) -> None:
        super().__init__(message)
        self.part = part


class ReplicaAccess(NamedTuple):
    """What a task needs to ask replicas for files: the address of each, the one of the snapshot first, a ticket, and paths."""

    addresses: tuple[str, ...]
    ticket: str
    tls: TlsFiles = NO_FILES


class PartCache:
    """Parts of one table that were brought here, kept for further reads.

    Parameters
    ----------
    http
        How to ask.
    table
        The table's name.
    addresses
        Whom to ask, in this order.
    folder
        Where they go, made when something is brought; by default a folder that is removed when this process ends.
    stored
        Brings what is in the table's object store, if that is reached from here.
    owner
        Address of the replica whose files are opened where they are; what is wrong with them is reported to it.
    others
        Returns the addresses of all replicas, for the case that the reader is bound to one and a file of that is damaged.
    """

    def __init__(
        self,
        http: HttpClient,
        table: str,
        addresses: Sequence[str],
        folder: Path | None = None,
        stored: StoredParts | None = None,
        owner: str = "",
        others: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._others = others
        self._stored = stored
        self._owner = owner
        self._http = http
        self._table = table
        self.addresses = tuple(addresses)
        self._folder = folder

    def fetch(self, part: SnapshotPart) -> Path:
        """Bring a part's files here; return their folder.

        Raises
        ------
        SnapshotExpired
            No replica has the part any more.
        ReplicaUnavailable
            No replica answers.
        """
        try:
            for file in part.manifest.files:
                self.fetch_file(part, file.name)
        except ReplitreeError:
            cache = self._everyone()
            if not set(cache.addresses) - set(self.addresses):
                raise
            for file in part.manifest.files:
                cache.fetch_file(part, file.name)
        folder = self._place(part)
        private.write_file(folder / MANIFEST_FILE, part.manifest.encode())
        return folder

    def from_replicas(self) -> PartCache:
        """Return what brings everything from replicas, and nothing from an object store."""
        return PartCache(self._http, self._table, self.addresses, self._folder, owner=self._owner, others=self._others)

    def access(self) -> ReplicaAccess:
        """Return what a task needs to ask the replicas for files."""
        addresses = tuple(filter(None, dict.fromkeys((self._owner, *self.addresses))))
        return ReplicaAccess(addresses, self._http.ticket(self._table, reads=True), self._http.tls)

    def into(self, folder: Path) -> PartCache:
        """Return what brings everything into this folder, a folder for each part (`place_name`)."""
        return PartCache(self._http, self._table, self.addresses, folder, self._stored, self._owner, self._others)

    def fetch_file(self, part: SnapshotPart, name: str) -> Path:
        """Bring one data file of a part here; return its path.  Errors as `fetch`."""
        entry = next(file for file in part.manifest.files if file.name == name)
        target = self._place(part) / name
        if target.exists():
            return target
        descriptor, draft = tempfile.mkstemp(prefix="draft-", dir=target.parent)
        os.close(descriptor)
        try:
            if self._stored is None or not self._stored.bring(part.manifest, entry, Path(draft)):
                self._fetch_file(part, name, entry.checksum, Path(draft))
            if is_summed(entry.bytes):
                private.write_file(sums_path(target), file_sums(Path(draft))[1].encoded)
            Path(draft).replace(target)
        finally:
            Path(draft).unlink(missing_ok=True)
        return target

    def good_copy(self, part: SnapshotPart, file: CheckedFile, problem: Problem) -> Path:
        """Bring a good copy of a data file that is missing or damaged where it lies; report that to its replica.

        Raises
        ------
        NoGoodFile
            It is damaged, and neither the store nor a replica has the same bytes.
        SnapshotExpired
            It is gone, and no replica has the part any more.
        ReplicaUnavailable
            It is gone, and no replica answers.
        """
        brought = self._place(part) / file.entry.name
        if file.path == brought:
            brought.unlink(missing_ok=True)
        try:
            return self._everyone().fetch_file(part, file.entry.name)
        except ReplitreeError as error:
            if isinstance(problem, FileNotFoundError) and not file.path.parent.is_dir():
                # The whole part is gone: it has left the table, or leaves it now.
                raise
            raise NoGoodFile(self._no_copy(part, problem, error), part) from error
        finally:
            if file.path != brought:
                self.report(part.part)

    def good_part(self, part: SnapshotPart) -> CheckedPart:
        """Bring a part with the same rows, in the files that another replica has made of them.

        Raises
        ------
        CorruptPart
            No replica has one.
        """
        problem: ReplitreeError = ReplicaUnavailable("no replica is known")
        path = f"/v1/tables/{quote(self._table)}/parts/{quote(part.part)}/manifest"
        for address in filter(None, self._everyone().addresses):
            try:
                raw = self._http.request(address, "GET", path, timeout_s=FETCH_S_MAX).content()
                found = decode_manifest(raw, f"the manifest of {part.part} at {address}").as_local()
                if found.content != part.manifest.content or found.files == part.manifest.files:
                    continue
                cache = PartCache(self._http, self._table, (address,), self._folder)
                there = msgspec.structs.replace(part, manifest=found)
                return CheckedPart(cache.fetch(there), found)
            except ReplitreeError as error:
                problem = error
        raise CorruptPart(self._no_copy(part, None, problem)) from problem

    def find_manifests(self, unread: Sequence[UnreadPart]) -> dict[str, PartManifest]:
        """Ask the replicas for the manifests of parts that the first one knows nothing of; return those that were found.

        Of more than `MANIFESTS_MAX` parts the first ones are looked for.
        """
        from concurrent.futures import ThreadPoolExecutor

        wanted = [each for each in unread if each.content][:MANIFESTS_MAX]
        if not wanted:
            return {}
        addresses = [address for address in self._everyone().addresses if address and address != self._owner]

        def find(unread: UnreadPart) -> PartManifest | None:
            path = f"/v1/tables/{quote(self._table)}/parts/{quote(unread.part)}/manifest"
            for address in addresses:
                with suppress(ReplitreeError):
                    raw = self._http.request(address, "GET", path, timeout_s=MANIFEST_S_MAX).content()
                    manifest = decode_manifest(raw, f"the manifest of {unread.part} at {address}")
                    # Only the registered content: a part of that name may have other rows on a replica that lags or is broken.
                    if manifest.content == unread.content:
                        return manifest
            return None

        with ThreadPoolExecutor(MANIFESTS_AT_ONCE, thread_name_prefix="replitree-manifest") as pool:
            found = pool.map(find, wanted)
        return {each.part: manifest for each, manifest in zip(wanted, found, strict=True) if manifest is not None}

    def _everyone(self) -> PartCache:
        """Return what asks all replicas, the one with the damaged file last; fewer when coordination does not answer."""
        known = dict.fromkeys(self.addresses)
        with suppress(ReplitreeError):
            known |= dict.fromkeys(self._others())
        known.pop(self._owner, None)
        return PartCache(self._http, self._table, [*known, self._owner], self._folder, self._stored, self._owner)

    def _no_copy(self, part: SnapshotPart, found: Problem | None, why: ReplitreeError) -> str:
        what = f"part {part.part} of table {self._table} is damaged{'' if found is None else f' ({found})'}"
        return (
            f"{what}, and no replica or store sent a good copy of it ({why}). Start the replicas that are not running, then"
            f" run: replitree check {self._table}; it fetches the part as soon as a replica has it"
        )

    def report(self, part: str, address: str = "") -> bool:
        """Let a replica check its copy of a part; it moves a damaged one aside and fetches another.

        False: the replica does not have the part any more, and will not fetch it.

        Parameters
        ----------
        part
            Its name.
        address
            Of the replica; by default of the one whose files are read here, if there is one.
        """
        owner = address or self._owner
        if owner:
            path = f"/v1/tables/{quote(self._table)}/parts/{quote(part)}/check"
            try:
                self._http.request(owner, "POST", path, timeout_s=REPORT_S_MAX)
            except (CorruptPart, SnapshotExpired, TableNotFound):
                return False
            except ReplitreeError:
                # A replica that did not answer still checks its parts by itself.
                return True
        return True

    def _place(self, part: SnapshotPart) -> Path:
        folder = (self._folder or process_folder()) / place_name(part.part, part.manifest)
        private.make_folder(folder, parents=True, exist_ok=True)
        return folder

    def _fetch_file(self, part: SnapshotPart, name: str, checksum: str, target: Path) -> None:
        """Bring a data file from the first replica that sends it whole; try again while one may send it soon."""
        deadline, pause = time.monotonic() + PATIENCE_S, PAUSE_S_MIN
        while True:
            problems = self._fetch_from_any(part, name, checksum, target)
            if not problems:
                return
            # A replica without the part has executed the entry that removed it from the table: no other replica will have it
            # long.  After `RowsUnavailable` the replica has searched its disk in vain.  One that starts or repairs the part may
            # send it soon.
            is_gone = any(isinstance(each, SnapshotExpired) for each in problems)
            may_come = any(
                isinstance(each, ReplicaUnavailable) and not isinstance(each, RowsUnavailable) for each in problems
            )
            if is_gone or not may_come or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            pause = min(PAUSE_S_MAX, 2 * pause)
        problem = next((each for each in problems if isinstance(each, RowsUnavailable)), problems[-1])
        # `CorruptPart` is a `StoreError`, and means that another copy may be read.
        if isinstance(problem, ReplicaUnavailable) or type(problem) is StoreError:
            raise problem
        raise SnapshotExpired(f"part {part.part} can't be had any more ({problem}); take a new snapshot") from problem

    def _fetch_from_any(self, part: SnapshotPart, name: str, checksum: str, target: Path) -> list[ReplitreeError]:
        """Ask one replica after the other; return why none has sent the file, and nothing when one has."""
        path = f"/v1/tables/{quote(self._table)}/parts/{quote(part.part)}/files/{quote(name)}"
        problems: list[ReplitreeError] = []
        for address in filter(None, self.addresses):
            try:
                with private.open_file(target, "wb") as out:
                    self._http.download(address, path, out, timeout_s=FETCH_S_MAX)
                if file_checksum(target) == checksum:
                    return []
                problems.append(CorruptPart(f"{part.part}/{name} arrived from {address} with another checksum"))
                self.report(part.part, address)
            except AnswerLost as error:
                # A download changes nothing, so a lost answer leaves nothing in doubt.
                problems.append(ReplicaUnavailable(f"{error}; try again"))
            except ReplitreeError as error:
                problems.append(error)
        return problems or [RowsUnavailable("no replica is known")]


def place_name(part: str, manifest: PartManifest) -> str:
    """Return the name of a folder for this part and these files."""
    # Equal rows may lie in different files on two replicas, so the content hash would not be enough.
    return f"{part}-{xxhash.xxh3_128_hexdigest(manifest.encode())}"


_lock = threading.Lock()
_root: dict[int, Path] = {}


def process_folder() -> Path:
    """Return this process's folder for fetched parts; a forked process has one of its own."""
    with _lock:
        process = os.getpid()
        if process not in _root:
            _root.clear()
            _root[process] = Path(tempfile.mkdtemp(prefix="replitree-parts-"))
            atexit.register(_remove_cache, _root[process], process)
        return _root[process]


def is_brought(path: Path | str) -> bool:
    """Tell whether a path is in this process's folder for fetched parts."""
    folder = _root.get(os.getpid())
    return folder is not None and str(path).startswith(f"{folder}{os.sep}")


def _remove_cache(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["NoGoodFile", "PartCache", "ReplicaAccess", "is_brought", "place_name", "process_folder"]
