"""The segments of a blob directory, and where in them each blob is.

Blobs of one tablet, channel and generation lie in files of their own, ``<tablet>/<channel>/<generation>-<number>.seg``, to
which frames are appended (`frames`).  Several processes may use a directory: the holder of its lock first reads what
others have appended, and syncs it before it answers that it is there.

Blobs leave by a barrier, segment by segment, and in no other way.  So a directory without its folder of blobs, or one that has
lost a blob which no barrier covers, is not one that never had it: nothing is read from it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from replitree import private
from replitree.errors import StoreError
from replitree.storage.files.durable import write_parts
from replitree.tablet.group.admission import MEND_IT
from replitree.tablet.group.ids import COOKIE_MAX, STEP_MAX, BlobId, Channel, Cookie, Generation, Step, TabletId
from replitree.tablet.members.frames import (
    HEADER_BYTES,
    NO_FRAMINGS,
    OVERHEAD_BYTES,
    Frame,
    Framing,
    framing_of,
    scan,
    whole_payload,
)
from replitree.tablet.members.lock import Descriptor
from replitree.tablet.members.sync import sync_data, sync_names

SEGMENT_BYTES = 64 << 20
"""Bytes of a segment from which on it gets no further frames."""

READ_BYTES = 1 << 20
"""Bytes that are read at once where many blobs are asked for."""

OPEN_MAX = 64
"""Segments that are kept open to be appended to."""

FRESH_BYTES = 256 << 20
"""Bytes of segments that are kept while the request lasts that found them, so that they are not read twice."""

_SUM_BYTES = 8
_PLACE = re.compile(r"([0-9a-f]{16})/([0-9a-f]{2})/([0-9a-f]{8})-[0-9a-f]{6}\.seg")

_Stream: TypeAlias = tuple[TabletId, Channel, Generation]

IsGone: TypeAlias = Callable[[BlobId], bool]
"""Whether a barrier covers a blob."""


@dataclass(slots=True)
class Segment:
    """One file: its place, also as a string, how far it was read, and whether something in it can't be told."""

    path: Path
    name: str
    tablet: TabletId
    channel: Channel
    generation: Generation
    end: int = 0
    is_in_doubt: bool = False

    @property
    def stream(self) -> _Stream:
        """The tablet, channel and generation of its blobs."""
        return self.tablet, self.channel, self.generation

    @property
    def ids(self) -> tuple[BlobId, BlobId]:
        """The first and the last id that may lie here."""
        first = BlobId(self.tablet, self.channel, self.generation, Step(0), Cookie(0))
        return first, first._replace(step=Step(STEP_MAX), cookie=Cookie(COOKIE_MAX))


class Segments:
    """All segments below a folder.

    Parameters
    ----------
    folder
        Where they lie.
    segment_bytes
        Size from which on a segment gets no more frames.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: dict[str, Segment] = {}
        self._places: dict[BlobId, tuple[Segment, Frame]] = {}
        self._ids: list[BlobId] = []
        self._lost: list[BlobId] = []
        self._last: dict[_Stream, Segment] = {}
        self._open: dict[str, Descriptor] = {}
        self._fresh: dict[str, tuple[int, bytes]] = {}
        self._is_current = False

    # --- reading --------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Take that others may have changed something."""
        self._is_current = False

    def are_as_they_were(self) -> bool:
        """Whether no process has reported a change, and the open segment has the size that this process left."""
        if not self._is_current:
            return False
        for path, file in self._open.items():
            found = os.fstat(file.number)
            # Another process has appended, or the file was removed while this one has it open.
            if found.st_size != self._segments[path].end or not found.st_nlink:
                return False
        return True

    def are_open_for(self, blobs: Iterable[tuple[BlobId, bytes]]) -> bool:
        """Whether nothing has changed and the segments that these blobs go to are open: no path is looked up to append them."""
        for blob, _ in blobs:
            last = self._last.get((blob.tablet, blob.channel, blob.generation))
            if last is None or not 0 < last.end < self._segment_bytes or last.name not in self._open:
                return False
        return self.are_as_they_were()

    def close(self) -> None:
        """Close what is appended to; it is looked at anew before it is opened again."""
        self._open.clear()
        self._is_current = False

    def forget(self) -> None:
        """Forget everything: another directory is in the place of the one that was here."""
        self.close()
        self._segments, self._places, self._ids, self._lost, self._last = {}, {}, [], [], {}

    def forget_bytes(self) -> None:
        """Forget the bytes that were read since the last time; where the blobs are is kept."""
        self._fresh.clear()

    def refresh(self, is_gone: IsGone) -> None:
        """Read what was appended by others, and forget segments that others removed.

        Parameters
        ----------
        is_gone
            Whether a barrier covers a blob.

        Raises
        ------
        StoreError
            The folder is not there, or blobs are not there any more that no barrier covers.
        OSError
            The disk refused.
        """
        self._open.clear()
        self._is_current = False
        sizes = _sizes(str(self._folder))
        known = self._lost
        # A file is shorter than it was, or gone: everything is read again, and what was there must be found.
        if any(sizes.get(path, -1) < each.end for path, each in self._segments.items()):
            known = sorted({*self._lost, *self._ids})
            self._segments, self._places, self._ids = {}, {}, []
        # Until all is read again: an error on the way must not forget what was there.
        self._lost = known
        if len(sizes) != len(self._segments):
            self._segments = {path: self._segments.get(path) or _segment(Path(path)) for path in sizes}
        for segment, size in zip(self._segments.values(), sizes.values(), strict=True):
            if size > segment.end:
                self._read_on(segment, size)
        self._last = {segment.stream: segment for segment in self._segments.values()}
        # An unreadable segment may hold what is missed: that is damage, which reads report, and no loss.
        doubts = tuple(self.doubts()) if known else ()
        missed = (blob for blob in known if blob not in self._places and not is_gone(blob))
        self._lost = [blob for blob in missed if not any(first <= blob <= last for first, last in doubts)]
        if self._lost:
            raise StoreError(
                f"{self._folder} has lost blobs that were there, such as {self._lost[0]}: bring back what was removed or cut, "
                f"or {MEND_IT}"
            )
        self._is_current = True

    def _read_on(self, segment: Segment, size: int) -> None:
        begin = segment.end
        with segment.path.open("rb") as file:
            file.seek(begin)
            data = file.read()
            # Or else the rest would count as never written.
            if begin + len(data) < size:
                raise StoreError(f"{segment.path}: a read ended at byte {begin + len(data)} of {size}; try again")
            scanned = scan(data, begin)
            if scanned.end > begin:
                # Its writer may have crashed before its sync: what is answered from now on must be on the disk.
                sync_data(file.fileno())
        for frame in scanned.frames:
            self._note(segment, frame)
        if sum(len(known) for _, known in self._fresh.values()) + len(data) <= FRESH_BYTES:
            self._fresh[segment.name] = (begin, data)
        segment.end = scanned.end
        segment.is_in_doubt |= scanned.is_in_doubt

    def _note(self, segment: Segment, frame: Frame) -> None:
        known = self._places.get(frame.blob)
        if known is None and (not self._ids or self._ids[-1] < frame.blob):
            self._ids.append(frame.blob)
        elif known is None:
            insort(self._ids, frame.blob)
        # A restored copy takes the place of the damaged one, never the other way round.
        if known is None or frame.is_whole:
            self._places[frame.blob] = (segment, frame)

    def between(self, first: BlobId, last: BlobId) -> list[BlobId]:
        """Return the ids from `first` to `last`, both included, that are here, whole or damaged."""
        return self._ids[bisect_left(self._ids, first) : bisect_right(self._ids, last)]

    def __contains__(self, blob: BlobId) -> bool:
        """Whether a blob is here, whole or damaged."""
        return blob in self._places

    def payload(self, blob: BlobId) -> bytes | None:
        """Read a blob; None when it is damaged.  It is checked every time."""
        return next(self.payloads((blob,)))

    def payloads(self, blobs: Sequence[BlobId]) -> Iterator[bytes | None]:
        """Read blobs, in the order given; None for damaged ones.  Neighbours in a segment are read together."""
        begin, end, own, data, is_fresh = 0, 0, None, b"", False
        ahead = READ_BYTES if len(blobs) > 1 else 0
        for blob in blobs:
            segment, (_, offset, size, is_whole) = self._places[blob]
            first, last = offset - HEADER_BYTES, offset + size + _SUM_BYTES
            if not is_whole:
                yield None
                continue
            if own is not segment or first < begin or last > end:
                own, (begin, data) = segment, self._fresh.get(segment.name, (0, b""))
                is_fresh = begin <= first and last <= begin + len(data)
                if not is_fresh:
                    begin = first
                    with segment.path.open("rb") as file:
                        file.seek(begin)
                        data = file.read(max(last - first, ahead))
                end = begin + len(data)
            if is_fresh:
                yield data[offset - begin : offset - begin + size]
            else:
                yield whole_payload(data[first - begin : last - begin])

    def doubts(self) -> Iterator[tuple[BlobId, BlobId]]:
        """Yield the intervals of ids whose blobs, if there were any, can't be told."""
        return (segment.ids for segment in self._segments.values() if segment.is_in_doubt)

    # --- writing --------------------------------------------------------------------------------------------------------

    def append(
        self,
        blobs: Iterable[tuple[BlobId, bytes]],
        framings: Mapping[BlobId, Framing] = NO_FRAMINGS,
        is_in_place: Callable[[], bool] | None = None,
    ) -> bool:
        """Append blobs and sync them; after an error none of them is here, unless a segment can't be cut either.

        Parameters
        ----------
        blobs
            Each with its bytes.
        framings
            Of some blobs, so that they need not be computed again.
        is_in_place
            Called after the sync: whether the directory is still the one that the caller meant.  If not, the blobs do not
            count as written.

        Returns
        -------
        bool
            Whether they are here.

        Raises
        ------
        OSError
            The disk refused.
        """
        batches: dict[str, list[tuple[BlobId, bytes]]] = {}
        for blob, data in blobs:
            batches.setdefault(self._open_segment(blob), []).append((blob, data))
        for path, batch in batches.items():
            segment = self._segments[path]
            parts: list[bytes] = []
            for blob, data in batch:
                header, checksum = framings.get(blob) or framing_of(blob, data)
                parts += header, data, checksum
            file = self._open.get(segment.name)
            if file is None:
                if len(self._open) >= OPEN_MAX:
                    self._open.clear()
                file = self._open[segment.name] = Descriptor(segment.name, os.O_WRONLY)
                if os.fstat(file.number).st_size != segment.end:
                    # Torn bytes go: they were never synced, so never acknowledged.
                    os.ftruncate(file.number, segment.end)
            try:
                write_parts(file.number, parts, segment.end)
            except OSError:
                # A part of a frame must not stay: the next one would be written behind it, and never be found.
                os.ftruncate(file.number, segment.end)
                raise
            sync_data(file.number)
        if is_in_place is not None and not is_in_place():
            return False
        # Noted after the sync: a blob that is here was acknowledged, or may be.
        for path, batch in batches.items():
            segment = self._segments[path]
            for blob, data in batch:
                self._note(segment, Frame(blob, segment.end + HEADER_BYTES, len(data)))
                segment.end += OVERHEAD_BYTES + len(data)
        return True

    def _open_segment(self, blob: BlobId) -> str:
        """Return the file that a blob goes to; make one when there is none, or the last one is full."""
        last = self._last.get((blob.tablet, blob.channel, blob.generation))
        if last is not None and last.end < self._segment_bytes:
            # Its maker may have crashed before it synced the name.
            if not last.end:
                _sync_way_to(last.path)
            return last.name
        begin = f"{self._folder}/{blob.tablet:016x}/{blob.channel:02x}/{blob.generation:08x}-"
        number = 0 if last is None else int(last.path.stem.partition("-")[2], 16) + 1
        path = Path(f"{begin}{number:06x}.seg")
        # These two and none above: a directory that was taken out meanwhile must not be made anew.
        for folder in reversed(path.parents[:2]):
            private.make_folder(folder, exist_ok=True)
        private.touch(path)
        _sync_way_to(path)
        made = _segment(path)
        self._segments = dict(sorted({**self._segments, str(path): made}.items()))
        self._last[made.stream] = made
        return str(path)

    def remove(self, gone: frozenset[BlobId], is_gone: IsGone, is_all_gone: Callable[[BlobId, BlobId], bool]) -> None:
        """Delete the segments in which every blob is gone; not synced: what a power failure brings back stays hidden.

        Parameters
        ----------
        gone
            The blobs here that are gone.
        is_gone
            As of `refresh`.
        is_all_gone
            Whether everything between two ids is: then a segment with unreadable ids goes, too.
        """
        left = {segment.path for blob, (segment, _) in self._places.items() if blob not in gone}
        dead = [
            each.path
            for each in self._segments.values()
            if each.path not in left and each.end and (not each.is_in_doubt or is_all_gone(*each.ids))
        ]
        for path in dead:
            # Another process may have collected at the same time.
            path.unlink(missing_ok=True)
        if dead:
            self.refresh(is_gone)


def _sync_way_to(path: Path) -> None:
    """Make the names of a segment and of the folders above it durable, which are made for it."""
    for folder in path.parents[:3]:
        sync_names(folder)


def _sizes(folder: str) -> dict[str, int]:
    """Return the sizes of all segments, in bytes, in order of their paths: done for every request, so without `glob`."""
    found = dict[str, int]()
    for tablet in folders_in(folder):
        for channel in folders_in(tablet):
            with os.scandir(channel) as entries:
                found |= {entry.path: entry.stat().st_size for entry in entries if entry.name.endswith(".seg")}
    return dict(sorted(found.items()))


def folders_in(folder: str) -> list[str]:
    """Return the folders in one that a member was made with, or has made.

    Raises
    ------
    StoreError
        It is not there.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        raise StoreError(f"{folder} is not there any more, with what was in it: bring it back, or {MEND_IT}") from None


def _segment(path: Path) -> Segment:
    found = _PLACE.fullmatch("/".join(path.parts[-3:]))
    if found is None:
        raise StoreError(
            f"{path} is not a segment, or was renamed: give it its old name back, or move it out of the folder of blobs"
        )
    tablet, channel, generation = (int(number, 16) for number in found.groups())
    return Segment(path, str(path), TabletId(tablet), Channel(channel), Generation(generation))
