"""Copies: small parts of a bucket as files of this machine, for Spark's JVM.

At the gateway, the JVM asks several times for each file that it opens, which takes longer than to read a small one.  So the
smallest parts of a frame are brought whole when the frame is made, several at once, and opened as files.

Guarantees:

* What is opened is whole, and has the checksums of its manifest.  What the store has not so is asked of a replica.
* There is a limit for one frame (`frame_bytes_max`), and one for all copies of a process (`COPIES_BYTES_MAX`).  What is above
  them, or finds no room on the disk, is read at the gateway.
* A copy stays as long as the JVM has a plan that reads it: that of a frame, of one made of it, of a view, of a running job.
  Then it goes when room is needed, the longest unused first; and all go with the process.

Absent on purpose: copies of single columns.  Of a table that is larger than the limit, the JVM reads what it needs.
"""

from __future__ import annotations

import shutil
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import xxhash
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # it has no types

from replitree import private
from replitree.client.read.part_cache import place_name, process_folder
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.transport.stored import StoredParts
from replitree.errors import BadInput, CorruptPart, ReplitreeError, StoreError
from replitree.storage.parts.manifest import FileEntry, PartManifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME_BYTES_OPTION = "spark.replitree.copies.bytesPerFrame"
"""Setting of a session: bytes that are copied for one frame at most; 0: nothing is."""

FRAME_BYTES_MAX = 64 << 20
COPIES_BYTES_MAX = 1 << 30
FETCHES_MAX = 8
"""Parts that are brought at once."""

FOLDER = "copies"


class WeakReference(Protocol):
    """A weak reference to something of the JVM."""

    def get(self) -> object | None:
        """Return it, or None when no reference to it is left."""


class Copies:
    """The copies of one process.  Any thread may use it.

    Parameters
    ----------
    folder
        Where they lie.  No other process writes there.
    bytes_max
        Size of all data files.
    """

    def __init__(self, folder: Path, bytes_max: int = COPIES_BYTES_MAX) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._claims: list[_ClaimRef] = []
        self._lock = threading.Lock()

    def claim(self, parts: Sequence[SnapshotPart], frame_bytes_max: int) -> Claim:
        """Choose which parts are copied for a frame: the smallest, as many as there is room for.

        Parameters
        ----------
        parts
            Those that the frame reads, all in a bucket.
        frame_bytes_max
            Size of the data files of those that are chosen.
        """
        ordered = sorted(parts, key=lambda part: (part.manifest.bytes, part.part))
        totals = accumulate(part.manifest.bytes for part in ordered)
        chosen = [part for part, total in zip(ordered, totals, strict=True) if total <= frame_bytes_max]
        with self._lock:
            while chosen and not self._make_room(_sizes(chosen)):
                chosen.pop()
            claim = Claim(self.folder, chosen)
            for place, size in _sizes(chosen).items():
                self._sizes[place] = size
                self._sizes.move_to_end(place)
            self._claims.append(_ClaimRef(claim))
        return claim

    def forget(self) -> None:
        """Remove all copies, also those that frames read."""
        with self._lock:
            for place in list(self._sizes):
                self._remove(place)
            self._claims.clear()

    def _make_room(self, wanted: Mapping[str, int]) -> bool:
        """Remove copies that are not read until all wanted ones have room; return whether they have."""
        excess = sum({**self._sizes, **wanted}.values()) - self._bytes_max
        if excess <= 0:
            return True
        # Only now: each look at a plan is a call of the JVM.
        self._claims = [held for held in self._claims if held.is_read()]
        kept = wanted.keys() | {place for held in self._claims for place in held.places}
        for place in [place for place in self._sizes if place not in kept]:
            excess -= self._remove(place)
            if excess <= 0:
                return True
        return False

    def _remove(self, place: str) -> int:
        shutil.rmtree(self.folder / place, ignore_errors=True)
        return self._sizes.pop(place)


class Claim:
    """The copies of one frame: they stay as long as this, or a plan that reads them.

    Parameters
    ----------
    folder
        Of all copies.
    parts
        Those that are copied.
    """

    def __init__(self, folder: Path, parts: Iterable[SnapshotPart]) -> None:
        self._folder = folder
        self._places = {part.part: place_name(part.part, part.manifest) for part in parts}
        self.plans: list[WeakReference] = []

    def __contains__(self, part: SnapshotPart) -> bool:
        """Whether a part is copied."""
        return part.part in self._places

    @property
    def places(self) -> frozenset[str]:
        """The names of the folders."""
        return frozenset(self._places.values())

    def bring(self, snapshot: Snapshot, parts: Sequence[SnapshotPart]) -> list[str] | None:
        """Bring parts that are in this claim; return the paths of their files, or None when the disk has no room for them.

        Raises
        ------
        SnapshotExpired, CorruptPart
            A part is gone, or damaged in the store and at every replica.
        ReplicaUnavailable
            Neither the store nor a replica answers.
        """
        if not parts:
            return []

        def fetch(part: SnapshotPart) -> Path:
            folder = self._folder / self._places[part.part]
            private.make_folder(folder, exist_ok=True)
            for file in part.manifest.files:
                target = folder / file.name
                # One request for each file; a part of which one file does not come so is fetched as any other.
                if not target.exists() and not _bring(snapshot.stored, part.manifest, file, target):
                    return snapshot.source.into(self._folder).fetch(part)
            return folder

        try:
            private.make_folder(self._folder, exist_ok=True)
            with ThreadPoolExecutor(min(FETCHES_MAX, len(parts)), thread_name_prefix="replitree-copy") as pool:
                folders = list(pool.map(fetch, parts))
        except CorruptPart:
            raise
        except (StoreError, OSError):
            # The disk is full: the gateway needs none.
            return None
        return [
            str(folder / file.name) for folder, part in zip(folders, parts, strict=True) for file in part.manifest.files
        ]

    def read_by(self, frame: DataFrame) -> None:
        """Note that a frame of one relation reads what was brought."""
        jvm = frame.sparkSession.sparkContext._jvm  # noqa: SLF001 - there is no other way
        leaf = frame._jdf.queryExecution().analyzed().collectLeaves().head()  # noqa: SLF001 - as above
        # Of the relation: Spark copies plans, and not the relation that they read.
        try:
            self.plans.append(jvm.java.lang.ref.WeakReference(leaf.relation()))  # type: ignore[union-attr]
        # The session has another reader of Parquet files, whose plans are not known: the copies stay.
        except Py4JError:
            self.plans.append(_Always())


class _Always:
    """A reference to an object that lives as long as the process."""

    def get(self) -> object:
        return self


class _ClaimRef:
    """A weak reference to a claim, for `Copies`: when only plans are left, the caller has dropped the frame."""

    def __init__(self, claim: Claim) -> None:
        self.places = claim.places
        self._claim = weakref.ref(claim)
        self._plans = claim.plans

    def is_read(self) -> bool:
        """Whether a reader may still use what it has."""
        if self._claim() is not None:
            return True
        for plan in self._plans:
            # When the JVM has ended, so have its plans.
            with suppress(Py4JNetworkError):
                if plan.get() is not None:
                    return True
        return False


def _bring(stored: StoredParts | None, manifest: PartManifest, file: FileEntry, target: Path) -> bool:
    """Copy one file from the store, if that has it as the manifest says; tell whether it has."""
    if stored is None:
        return False
    try:
        data = stored.objects.store.get_range(
            stored.objects.key(str(manifest.share_of(file)), file.name), 0, file.bytes
        )
    except ReplitreeError:
        # The part is fetched as any other, which repeats requests and says what is wrong.
        return False
    # What the store does not have as the manifest says, a replica is asked for.
    if data is None or xxhash.xxh3_128_hexdigest(data) != file.checksum:
        return False
    # Renamed when it is whole: frames of other threads may bring the same file, and open it as soon as it exists.
    draft = target.with_name(f".{uuid.uuid4().hex}")
    try:
        private.write_file(draft, data)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _sizes(parts: Iterable[SnapshotPart]) -> dict[str, int]:
    return {place_name(part.part, part.manifest): part.manifest.bytes for part in parts}


_guard = threading.Lock()
_found: dict[Path, Copies] = {}


def these_copies() -> Copies:
    """Return this process's copies; a forked process has others."""
    with _guard:
        # By the process's folder: a fork must not delete the copies of its parent.
        folder = process_folder() / FOLDER
        if folder not in _found:
            _found[folder] = Copies(folder)
        return _found[folder]


def frame_bytes_max(spark: SparkSession) -> int:
    """Return how many bytes a session copies for one frame.

    Raises
    ------
    BadInput
        It is no number.
    """
    text = spark.conf.get(FRAME_BYTES_OPTION, str(FRAME_BYTES_MAX))
    if text is None or not text.isdecimal():
        raise BadInput(f"{FRAME_BYTES_OPTION} is a number of bytes, 0 or more, not {text!r}")
    return int(text)


__all__ = ["FRAME_BYTES_MAX", "FRAME_BYTES_OPTION", "Claim", "Copies", "frame_bytes_max", "these_copies"]
