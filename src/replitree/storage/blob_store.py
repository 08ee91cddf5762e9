"""A member of a blob group on an object store: `replitree.tablet.store`, performed.

::

    <prefix>/state                                                  who it is, fences, barriers (`blob_state`)
    <prefix>/blobs/<tablet>/<channel>/<generation>/<step>.<cookie>  a blob in a frame (`blob_frames`); numbers in hexadecimal

* Several requests at once are fine; a look at `state` that begins after an object was stored serves all that wait for one.
* The store must honour conditions and list what it has: `probe` and `probe_replacing` find out when a member is made or opened.
* `state` is never deleted.  Whoever deletes objects by other means, such as rules of a bucket's life cycle, loses data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from replitree.errors import NotAuthorized, StoreError, UnsupportedFormat
from replitree.storage.blob_frames import frame_of, scan
from replitree.storage.blob_member import MEND_IT, Admission, Rules, Standing, Streams, refusal
from replitree.storage.blob_state import DirectoryState, admitted, decode_state, encode_state
from replitree.storage.objects import (
    ObjectChanged,
    ObjectExists,
    ObjectStore,
    StoreInDoubt,
    probe,
    probe_replacing,
)
from replitree.tablet import store
from replitree.tablet.ids import BlobId, Channel, Cookie, Generation, Step, TabletId
from replitree.tablet.member import Done, Failed, Holdings, Reply, Request
from replitree.tablet.runtime.fresh import FreshReads

STATE_KEY = "state"
BLOBS_PREFIX = "blobs"
REQUESTS_AT_ONCE = 64
"""Objects of one request that are on their way at once: a store answers late, and a log has an object for each entry."""

BLOB_BYTES_MAX = 32 << 20
"""Largest blob: an object that travels in one piece, for pieces have no conditions."""

_KEY = re.compile(r"blobs/([0-9a-f]{16})/([0-9a-f]{2})/([0-9a-f]{8})/([0-9a-f]{8})\.([0-9a-f]{6})")


def make_blob_store(objects: ObjectStore, group: str, number: int, incarnation: str) -> None:
    """Make a new member's place on a store.

    Parameters
    ----------
    objects
        The store, below a prefix that nothing else uses.
    group, number
        Of which group it is which member.
    incarnation
        A fresh random id, to be written into the group's configuration.

    Raises
    ------
    StoreError
        There is something already, or the store can't be used for this, or does not answer.
    NotAuthorized
        It refuses us.
    """
    probe(objects)
    probe_replacing(objects)
    try:
        objects.create(STATE_KEY, encode_state(DirectoryState(group, number, incarnation)))
    except ObjectExists:
        raise StoreError(f"{objects.name} has a blob group's member already: name another prefix") from None


def state_on(objects: ObjectStore) -> DirectoryState | None:
    """Return the state of the member that is on a store; None if there is none.

    Raises
    ------
    StoreError, NotAuthorized, UnsupportedFormat
        It can't be read.
    """
    found = objects.get_tagged(STATE_KEY)
    return None if found is None else decode_state(found.data, f"{objects.name}, {STATE_KEY}")


def open_blob_store(objects: ObjectStore) -> BlobStore:
    """Open a member's place, if the store can be used.

    Raises
    ------
    StoreError, NotAuthorized
        As of `make_blob_store`.
    """
    probe(objects)
    probe_replacing(objects)
    return BlobStore(objects)


@dataclass(frozen=True, slots=True)
class _ReadState:
    """`state` as it was read: what it says, and the tag of its bytes."""

    state: DirectoryState
    tag: str


class BlobStore:
    """A member on an object store.  Any number of threads and processes, wherever they are, may use it at once.

    Parameters
    ----------
    objects
        The store, below the member's prefix.
    at_once
        How many objects are stored or read at once.
    probes
        Whether the store must show that it can be used before the member says how it stands, and so takes part.
    """

    is_concurrent = True
    """Requests need not wait for each other."""

    def __init__(self, objects: ObjectStore, at_once: int = REQUESTS_AT_ONCE, *, probes: bool = False) -> None:
        self._objects = objects
        self._probes = probes
        self._states = FreshReads(self._read_state)
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="blob-store")
        self._known = Holdings()

    # --- the port -------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """Do what is asked, durably, and say so."""
        return self._serve(request, None)

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Do what is asked if it is the place that was admitted: every look at `state` says whether it is."""
        return self._serve(request, admission)

    def _serve(self, request: Request, admission: Admission | None) -> Reply:
        serving = store.serve(request, self._known)
        outcome: Any = None
        try:
            while True:
                outcome = self._perform(serving.send(outcome), admission)
        except StopIteration as stop:
            reply: Reply = stop.value
            return reply

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        if self._probes:
            probed = self._outcome(self._probed)
            if probed is not True:
                return _no_answer(probed)
            self._probes = False
        found = self._outcome(self._states.read)
        if not isinstance(found, _ReadState):
            return _no_answer(found)
        return Standing(found.state.incarnation, found.state.session, found.state.seen)

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening."""
        return self._change(lambda state: admitted(state, session, stood))

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember who takes part."""
        return self._change(lambda state: state.with_seen(seen))

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has blobs in which channels; a store whose listing is ordered is asked once for each."""
        found = self._outcome(self._listed_streams)
        return found if isinstance(found, Streams) else _no_answer(found)

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        found = self._outcome(self._states.read)
        if not isinstance(found, _ReadState):
            return _no_answer(found)
        held = found.state.holdings()
        return Rules(held.fences, held.barriers)

    def close(self) -> None:
        """End the threads, when what was asked is done."""
        self._pool.shutdown()

    def _probed(self) -> bool:
        probe(self._objects)
        probe_replacing(self._objects)
        return True

    def _listed_streams(self) -> Streams:
        found, after, is_more = set[tuple[TabletId, Channel]](), "", True
        while is_more:
            is_more = False
            for info in self._objects.list(BLOBS_PREFIX, after):
                blob = blob_of(info.key)
                if blob is None:
                    continue
                found.add((blob.tablet, blob.channel))
                if self._objects.is_ordered:  # on to the first key that is none of this channel's: "0" comes after "/"
                    after, is_more = f"{BLOBS_PREFIX}/{blob.tablet:016x}/{blob.channel:02x}0", True
                    break
        return Streams(tuple(sorted(found)))

    # --- requests to the store --------------------------------------------------------------------------------------------

    def _outcome(self, request: Callable[[], Any]) -> Any:
        """Send a request; None when there was no answer and it may still take place."""
        try:
            return request()
        except StoreInDoubt:
            return None
        except (StoreError, NotAuthorized, UnsupportedFormat) as error:
            return Failed(str(error))

    def _perform(self, request: store.StoreRequest, admission: Admission | None) -> store.StoreReply | None:
        reply: store.StoreReply | None = self._outcome(lambda: self._reply(request, admission))
        return reply

    def _reply(self, request: store.StoreRequest, admission: Admission | None) -> store.StoreReply:
        match request:
            case store.Create(blobs):
                found = self._each(self._create, blobs)
                return store.Created(tuple(each for each in found if each is not None))
            case store.Mend(blobs):
                self._each(self._mend, blobs)
                return store.Made()
            case store.ReadState():
                state = self._states.read()
                who = state.state
                if admission is not None and (refused := refusal(admission, who.incarnation, who.session)) is not None:
                    return refused
                self._known = who.holdings()
                return store.StateIs(self._known, state)
            case store.ReplaceState(held, tag):
                assert isinstance(tag, _ReadState)
                return self._replace_by(held, tag)
            case store.List(first, last):
                return store.Listed(self._names(first, last))
            case store.Read(blobs):
                data = self._each(self._read, blobs)
                return store.Found(tuple(each for each in data if each is not None))
            case store.Delete(blobs):
                self._objects.delete([key_of(blob) for blob in blobs])
                return store.Made()

    def _each(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Do something for each item, many at once; in this thread if it is only one."""
        return [work(items[0])] if len(items) == 1 else list(self._pool.map(work, items))

    def _create(self, item: tuple[BlobId, bytes]) -> tuple[BlobId, bytes | None] | None:
        """Create an object; return what was there before, if anything."""
        blob, data = item
        if len(data) > BLOB_BYTES_MAX:
            raise StoreError(f"blob {blob} has {len(data)} bytes, more than {BLOB_BYTES_MAX}: write it in several")
        try:
            self._objects.create(key_of(blob), frame_of(blob, data))
        except ObjectExists:
            return self._read(blob) or (blob, None)
        return None

    def _mend(self, item: tuple[BlobId, bytes]) -> None:
        blob, data = item
        found = self._objects.get_tagged(key_of(blob))
        if found is None:
            self._objects.create(key_of(blob), frame_of(blob, data))
        elif payload_of(blob, found.data) is None:
            self._objects.replace(key_of(blob), frame_of(blob, data), found.tag)

    def _read(self, blob: BlobId) -> tuple[BlobId, bytes | None] | None:
        data = self._objects.get(key_of(blob))
        return None if data is None else (blob, payload_of(blob, data))

    def _names(self, first: BlobId, last: BlobId) -> tuple[BlobId, ...]:
        """List from just before the first one: a key without its last character comes before it, and after all that do."""
        found, end = list[BlobId](), key_of(last)
        for info in self._objects.list(f"{BLOBS_PREFIX}/{first.tablet:016x}/{first.channel:02x}", key_of(first)[:-1]):
            blob = blob_of(info.key)
            if blob is not None and first <= blob <= last:
                found.append(blob)
            if info.key > end and self._objects.is_ordered:
                break
        return tuple(sorted(found))

    # --- the state --------------------------------------------------------------------------------------------------------

    def _read_state(self) -> _ReadState:
        found = self._objects.get_tagged(STATE_KEY)
        if found is None:
            raise StoreError(
                f"{self._objects.name} has no object {STATE_KEY}: is it the place that the group was made with? If so,"
                f" bring the object back, or {MEND_IT}"
            )
        return _ReadState(decode_state(found.data, f"{self._objects.name}, {STATE_KEY}"), found.tag)

    def _replace_by(self, held: Holdings, read: _ReadState) -> store.Made | store.Changed:
        reply = self._replace(read, read.state.with_holdings(held))
        if isinstance(reply, store.Made):
            self._known = held
        return reply

    def _replace(self, read: _ReadState, state: DirectoryState) -> store.Made | store.Changed:
        try:
            self._objects.replace(STATE_KEY, encode_state(state), read.tag)
        except ObjectChanged:
            return store.Changed()
        return store.Made()

    def _change(self, change: Callable[[DirectoryState], DirectoryState]) -> Done | Failed:
        """Replace the state by what is made of it; who was faster, or an answer that was lost, lets us look again."""
        for _ in range(store.CHANGES_MAX):
            read = self._outcome(self._states.read)
            if not isinstance(read, _ReadState):
                return _no_answer(read)
            state = self._outcome(partial(change, read.state))
            if isinstance(state, Failed):
                return state
            if state == read.state:
                return Done()
            changed = self._outcome(partial(self._replace, read, state))
            if isinstance(changed, store.Made):
                return Done()
            if isinstance(changed, Failed):
                return changed
        return Failed(f"others were faster to change the state {store.CHANGES_MAX} times; try again")


def _no_answer(outcome: Failed | None) -> Failed:
    return outcome or Failed("the object store does not answer")


# --- keys and objects -------------------------------------------------------------------------------------------------------


def key_of(blob: BlobId) -> str:
    """Return the key of a blob's object; keys are ordered as ids are.

    >>> key_of(BlobId(TabletId(7), Channel(0), Generation(2), Step(255), Cookie(0)))
    'blobs/0000000000000007/00/00000002/000000ff.000000'
    """
    return (
        f"{BLOBS_PREFIX}/{blob.tablet:016x}/{blob.channel:02x}/{blob.generation:08x}/{blob.step:08x}.{blob.cookie:06x}"
    )


def blob_of(key: str) -> BlobId | None:
    """Return the blob whose object has a key; None for a key that no blob's object has."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    tablet, channel, generation, step, cookie = (int(number, 16) for number in found.groups())
    return BlobId(TabletId(tablet), Channel(channel), Generation(generation), Step(step), Cookie(cookie))


def payload_of(blob: BlobId, data: bytes) -> bytes | None:
    """Return the blob in an object's bytes; None when they are damaged, or another blob's."""
    found = scan(data)
    if len(found.frames) != 1 or found.end != len(data):
        return None
    (frame,) = found.frames
    return data[frame.offset : frame.offset + frame.bytes] if frame.is_whole and frame.blob == blob else None
