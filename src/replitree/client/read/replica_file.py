"""Data files that replicas send by ranges, verified as they are read: a reader brings only what it needs.

Guarantees: those of `replitree.storage.parts.verified`.  A replica that does not answer is passed over.  When bytes do not have
their checksum, the replicas that have sent bytes of this file verify the part, and fetch it again if it is damaged there; the
read goes on with the whole file, from a replica that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from replitree.client.read.part_cache import FETCH_S_MAX, PartCache
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.errors import ReplicaUnavailable, ReplitreeError, RowsUnavailable
from replitree.storage.files.sums import Sums, decode_sums
from replitree.storage.parts.checked_bytes import damaged, keep_sums, kept_sums
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.parts.verified import CheckedFile, Problem, StoredFile


@dataclass(frozen=True, slots=True)
class ReplicaBytes:
    """See `replitree.storage.parts.checked_bytes.ByteSource`.

    Attributes
    ----------
    http, addresses
        How replicas are asked, and whom, in this order.
    route
        The file's path in a replica's API.
    path, entry
        What messages call it, and what the manifest says of it.
    senders
        Gets the addresses of replicas that have sent bytes of it.
    """

    http: HttpClient
    addresses: tuple[str, ...]
    route: str
    path: Path
    entry: FileEntry
    senders: dict[str, None]

    @property
    def is_remote(self) -> bool:
        """Whether reading again may help."""
        return True

    def read(self, first: int, count: int) -> pa.Buffer:
        """Read exactly `count` bytes from byte `first` on; raises as the protocol says, or what the last replica answered."""

        def ask(address: str) -> bytes:
            found = self.http.read_range(address, self._file(""), first, count, timeout_s=FETCH_S_MAX)
            self.senders[address] = None
            return found

        data = self._ask(ask)
        if len(data) != count:
            raise damaged(self.path, f"has other bytes at {first} there than the manifest says")
        return pa.py_buffer(data)

    def sums(self) -> Sums:
        """Return the sums of the file; raises as the protocol says, or what the last replica answered."""
        found = kept_sums(self.entry)
        if found is None:
            data = self._ask(
                lambda address: self.http.request(address, "GET", self._file("/sums"), timeout_s=FETCH_S_MAX).content()
            )
            found = decode_sums(data, self.entry.bytes, self.entry.checksum)
            if found is None:
                raise damaged(self.path, "has other checksums there than the manifest says")
            keep_sums(self.entry, found)
        return found

    def close(self) -> None:
        """Nothing is open."""

    def _file(self, what: str) -> str:
        return f"{self.route}{what}?checksum={self.entry.checksum}"

    def _ask(self, ask: Callable[[str], bytes]) -> bytes:
        """Ask one replica after the other; raise what the last one answered."""
        problem: ReplitreeError = RowsUnavailable("no replica is known")
        for address in self.addresses:
            try:
                return ask(address)
            except AnswerLost as error:
                # Reading changes nothing, so a lost answer leaves nothing in doubt.
                problem = ReplicaUnavailable(f"{error}; try again")
            except ReplitreeError as error:
                problem = error
        raise problem


def replica_files(cache: PartCache, http: HttpClient, table: str, part: SnapshotPart) -> tuple[StoredFile, ...]:
    """Return the data files of a part as replicas send them, in the manifest's order.

    Parameters
    ----------
    cache
        Knows the replicas' addresses, and brings a good copy of a file whose bytes arrive damaged.
    http
        How replicas are asked.
    table, part
        Whose files.
    """

    def file(entry: FileEntry) -> StoredFile:
        route = f"/v1/tables/{quote(table)}/parts/{quote(part.part)}/files/{quote(entry.name)}"
        path = Path(part.part) / entry.name
        senders: dict[str, None] = {}

        def replaced(file: CheckedFile, problem: Problem) -> Path:
            for address in senders:
                cache.report(part.part, address)
            return cache.good_copy(part, file, problem)

        source = partial(ReplicaBytes, http, cache.addresses, route, path, entry, senders)
        return StoredFile(path, entry, source, replaced)

    return tuple(map(file, part.manifest.files))


__all__ = ["ReplicaBytes", "replica_files"]
