"""A member of a blob group in a directory.

::

    <directory>/state                                            incarnation, fences, barriers (`state`)
    <directory>/lock                                             held during each request, by one process at a time
    <directory>/blobs/<tablet>/<channel>/<generation>-<n>.seg    the blobs (`segments`)

* Whatever is answered with `Done` was synced before.
* The look at the fence and the writing of a blob happen under one lock: no blob slips by a fence, whichever process raises it.
* A writer that finds no change by another process (`lock`) does not read the directory again; a reader does.
* A write that goes to open files goes to the directory that was there the last time.  Before it is answered it is looked at
  whether that one is still in place; if not, it is written to the one that is, as if it had just been asked for.
* Damaged blobs are listed as damaged, or as an interval in doubt; they are never left out as if they had not been there.
* A directory that could not be synced is not used again, by no process: what it shows may differ from what is on the disk.  Its
  lock says so.  A disk that was full before anything was to be synced may be tried again.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from replitree import private
from replitree.errors import StoreError, UnsupportedFormat
from replitree.storage.files.durable import store_errors, sync_folder
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.ids import NOTHING, BlobId, Channel, TabletId, first_of, last_of
from replitree.tablet.group.member import (
    NO_BARRIER,
    Conflict,
    Contents,
    Done,
    Failed,
    Holdings,
    Look,
    Reply,
    Request,
    Scan,
    Sweep,
    Swept,
    Write,
    all_raised,
    answer,
    may_write,
    raised,
    visible_doubts,
)
from replitree.tablet.members.frames import framings_of
from replitree.tablet.members.lock import UNMARKED, DirectoryLock
from replitree.tablet.members.member import MEND_IT, Admission, Rules, Standing, Streams, refusal
from replitree.tablet.members.segments import SEGMENT_BYTES, Segments, folders_in
from replitree.tablet.members.state import NAME, DirectoryState, admitted, decode_state, write_state
from replitree.tablet.members.sync import SyncFailed, sync_names

LOCK = "lock"

CLOSE_S = 1.0
"""How long a request that is being answered is waited for when the directory is closed, in seconds."""

_HARMLESS = (errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EROFS)
"""A disk that is full, not there, or may not be written: nothing on it has become unclear, unless it was to be synced."""


def make_blob_directory(folder: Path, group: str, number: int, incarnation: str) -> None:
    """Make a new member's directory.

    Parameters
    ----------
    folder
        Must not exist, or be empty; its parent must exist.
    group, number
        Of which group it is which member.
    incarnation
        A fresh random id, to be written into the group's configuration.

    Raises
    ------
    StoreError
        There is something already, or the disk refused.
    """
    if (folder / NAME).exists():
        raise StoreError(f"{folder} is a blob directory already: name another one")
    try:
        private.make_folder(folder / "blobs", parents=True, exist_ok=True)
        private.write_file(folder / LOCK, UNMARKED)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(f"can't make {folder}: {error}; check the disk and the folder") from error
    write_state(folder, DirectoryState(group, number, incarnation))


class _CachedState(NamedTuple):
    """A state file: which it was, and what was in it."""

    stamp: tuple[int, int, int, int]
    state: DirectoryState
    held: Holdings


class _Hold:
    """Holds a directory against every other thread and process while a request lasts; few calls, for each request needs it.

    Entered, it tells whether nothing has changed, as far as the mark says that.

    Parameters
    ----------
    lock
        Against other processes.
    segments
        Forget what they have read when the request ends.

    Attributes
    ----------
    mutex
        Against other threads.
    """

    def __init__(self, lock: DirectoryLock, segments: Segments) -> None:
        self.mutex = threading.Lock()
        self._lock, self._segments = lock, segments

    def __enter__(self) -> bool:
        self.mutex.acquire()
        try:
            return self._lock.acquire()
        except BaseException:
            self.mutex.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._lock.forget()
            if isinstance(_cause(error), SyncFailed):
                self._lock.mark_failed()
        # Bytes that were read while the lock was held are not kept: another process may change them.
        self._segments.forget_bytes()
        try:
            self._lock.release()
        finally:
            self.mutex.release()


class BlobDirectory:
    """A member in a directory.  Any number of threads and processes of one machine may use it at once.

    Parameters
    ----------
    folder
        Where it is.
    segment_bytes
        Size from which on a segment gets no more frames.
    """

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._blobs = str(folder / "blobs")
        self._segments = Segments(folder / "blobs", segment_bytes)
        self._state_file = str(folder / NAME)
        self._known: _CachedState | None = None
        self._lock = DirectoryLock(str(folder / LOCK))
        self._hold = _Hold(self._lock, self._segments)

    # --- the port -------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """Carry out a request durably and answer it."""
        return self._reply(None, request)

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Carry out a request if this is the directory that was admitted."""
        return self._reply(admission, request)

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        try:
            with self._hold:
                state = self._state()
                # A directory whose blobs are gone must not take part: its "no" would prove nothing.
                folders_in(self._blobs)  # it is there
                return Standing(state.incarnation, state.session, state.seen)
        except (OSError, StoreError, UnsupportedFormat) as error:
            return self._failed(error)

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening."""
        return self._change(lambda state: admitted(state, session, stood))

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember each member's last session."""
        return self._change(lambda state: state.with_seen(seen))

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has, or had, blobs in which channels."""
        try:
            tablets = folders_in(self._blobs)
            places = [Path(channel) for tablet in tablets for channel in folders_in(tablet)]
            found = sorted((TabletId(int(path.parent.name, 16)), Channel(int(path.name, 16))) for path in places)
        except (OSError, StoreError, ValueError) as error:
            return Failed(str(error))
        return Streams(tuple(found))

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        try:
            with self._hold:
                held = self._state().holdings()
        except (OSError, StoreError, UnsupportedFormat) as error:
            return self._failed(error)
        return Rules(held.fences, held.barriers)

    def close(self) -> None:
        """Close its files; they are opened again when it is asked something.  While a request hangs they stay open."""
        # A request that hangs on the disk holds the mutex: its files stay open rather than be closed under it.
        if self._hold.mutex.acquire(timeout=CLOSE_S):
            try:
                self._segments.close()
                self._lock.close()
            finally:
                self._hold.mutex.release()

    # --- how ------------------------------------------------------------------------------------------------------------

    def _reply(self, admission: Admission | None, request: Request) -> Reply:
        try:
            with self._hold as is_unchanged:
                if is_unchanged and isinstance(request, Write) and self._is_written_at_once(admission, request):
                    return Done()
                state = self._state()
                if admission is not None and (state.incarnation, state.session) != admission:
                    refused = refusal(admission, state.incarnation, state.session)
                    assert refused is not None
                    return refused
                return self._answer(state, request)
        except (OSError, StoreError, UnsupportedFormat) as error:
            return self._failed(error)

    def _is_written_at_once(self, admission: Admission | None, request: Write) -> bool:
        """Write to files that are open, by the rules that are known, if they let it through; tell whether it counts.

        No path is looked up before it is written: so it can't get into another directory that is at this path by now.
        """
        known = self._known
        if known is None or not self._segments.are_open_for(request.blobs):
            return False
        if admission is not None and (known.state.incarnation, known.state.session) != admission:
            return False
        new = self._new_of(known.held, request)
        return isinstance(new, dict) and self._segments.append(new.items(), framings_of(request), self._is_in_place)

    def _is_in_place(self) -> bool:
        """Whether the state file is still the one that is known: another directory has another one."""
        assert self._known is not None
        try:
            return self._known.stamp == _stamp(self._state_file)
        except OSError:
            return False  # the opening of the directory says what is wrong

    def _state(self) -> DirectoryState:
        """Return what the directory at the path knows: read from the state file, unless it is the one that is known."""
        is_unchanged = self._lock.look()
        if not is_unchanged:
            self._segments.expire()
        known = self._known
        if is_unchanged and known is not None:
            try:
                if known.stamp == _stamp(self._state_file):
                    return known.state
            except OSError:
                pass  # it is read below, which says what is wrong
        with store_errors(f"read {self._state_file}"):
            stamp = _stamp(self._state_file)
            state = decode_state(Path(self._state_file).read_bytes(), self._state_file)
            if not is_unchanged and (known is None or (stamp, state) != known[:2]):
                # Its writer may have crashed between the rename and the sync of the name.
                sync_names(self._folder)
        # Another directory was put in this one's place: nothing that was read before is of it.
        if known is not None and known.state.incarnation != state.incarnation:
            self._segments.forget()
        self._known = _CachedState(stamp, state, state.holdings())
        return state

    def _failed(self, error: Exception) -> Failed:
        """Return what to say of an error; when it leaves unclear what is on the disk, the directory is not used again."""
        cause = _cause(error)
        if isinstance(cause, SyncFailed) or (isinstance(cause, OSError) and cause.errno not in _HARMLESS):
            self._lock.give_up(
                f"{self._folder} failed and is not used any more: {cause}; replace the disk, then {MEND_IT}"
            )
        return Failed(str(error))

    def _change(self, change: Callable[[DirectoryState], DirectoryState]) -> Done | Failed:
        try:
            with self._hold:
                self._put_state(change(self._state()))
        except (OSError, StoreError, UnsupportedFormat) as error:
            return self._failed(error)
        return Done()

    def _answer(self, state: DirectoryState, request: Request) -> Reply:
        assert self._known is not None
        held = self._known.held
        reply: Reply
        match request:
            case Write():
                if not self._segments.are_as_they_were():
                    self._segments.refresh(partial(_has_swept, held))
                new = self._new_of(held, request)
                if not isinstance(new, dict):
                    return new
                self._lock.mark()
                self._segments.append(new.items(), framings_of(request))
                return Done()
            case Look(blobs=blobs, fence=fence):
                held, reply = all_raised(held, {blob.tablet for blob in blobs}, fence)
            case Scan(first=first, fence=fence):
                held, reply = raised(held, first.tablet, fence)
            case _:
                held, reply = answer(held, request)
        after = state.with_holdings(held)
        if after != state:
            self._put_state(after)
        if isinstance(reply, Done) and isinstance(request, Look | Scan):
            return self._read(held, request)
        if isinstance(reply, Done) and isinstance(request, Sweep):
            # Files that only have blobs that are gone are deleted; a blob that is gone is never shown, file or no file.
            self._lock.mark()
            self._segments.refresh(partial(_has_swept, held))
            stream = request.collection.tablet, request.collection.channel
            barrier = held.barrier(*stream)
            names = self._segments.between(
                first_of(*stream, NOTHING), last_of(*stream, max(barrier.soft, barrier.hard))
            )
            self._segments.remove(
                frozenset(blob for blob in names if barrier.has_swept(blob)),
                partial(_has_swept, held),
                lambda first, last: first[:2] == stream and barrier.has_swept_all(first, last),
            )
        return reply

    def _put_state(self, state: DirectoryState) -> None:
        # Before the change: a crash in the middle of it makes every other process read everything again.
        self._lock.mark()
        write_state(self._folder, state)
        # Or a write would be let in by the rules of before.
        self._known = None

    def _new_of(self, held: Holdings, request: Write) -> dict[BlobId, bytes] | Overtaken | Conflict | Swept:
        """Return the blobs that are to be written and are not here, or why none may be."""
        new: dict[BlobId, bytes] = {}
        for blob, data in request.blobs:
            fence = held.fence(blob.tablet)
            if not may_write(fence, blob, request.restorer):
                assert fence is not None
                return Overtaken(fence.generation)
            barrier = held.barrier(blob.tablet, blob.channel)
            if barrier is not NO_BARRIER and barrier.has_swept(blob):
                return Swept(blob)
            known = self._segments.payload(blob) if blob in self._segments else new.get(blob)
            if known is not None and known != data:
                return Conflict(blob)
            if known is None:
                new[blob] = data
        return new

    def _read(self, held: Holdings, request: Look | Scan) -> Contents:
        self._segments.refresh(partial(_has_swept, held))
        if isinstance(request, Look):
            names = [blob for blob in sorted(request.blobs) if blob in self._segments]
            first, last = min(request.blobs), max(request.blobs)
        else:
            names, first, last = self._segments.between(request.first, request.last), request.first, request.last
        barriers = {each[:2]: held.barrier(*each[:2]) for each in held.barriers}
        if barriers:
            names = [blob for blob in names if not barriers.get(blob[:2], NO_BARRIER).has_swept(blob)]
        if isinstance(request, Scan) and request.newest:
            # After what was collected is left out: the newest blob that is shown, not the newest in the files.
            names = names[-1:]
        found = list(zip(names, self._segments.payloads(names), strict=True))
        return Contents(
            tuple((blob, data) for blob, data in found if data is not None),
            tuple(blob for blob, data in found if data is None),
            visible_doubts(held, self._segments.doubts(), first, last),
        )


def _cause(error: BaseException) -> BaseException | None:
    return error if isinstance(error, OSError) else error.__cause__


def _stamp(path: str) -> tuple[int, int, int, int]:
    """Return what changes with a file."""
    found = os.stat(path)  # noqa: PTH116 - for every request
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _has_swept(held: Holdings, blob: BlobId) -> bool:
    return held.barrier(blob.tablet, blob.channel).has_swept(blob)
