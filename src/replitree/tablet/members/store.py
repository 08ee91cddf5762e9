"""A member of a blob group on an object store: `replitree.tablet.group.store`, performed.

::

    <prefix>/state                                                  its identity, fences, barriers (`state`)
    <prefix>/blobs/<tablet>/<channel>/<generation>/<step>.<cookie>  a blob in a frame (`frames`); numbers in hexadecimal

* Several requests may run at once; one read of `state` that begins after an object was stored serves all that wait for one.
* The store must honour conditions and list every object it has: `probe` and `probe_replacing` check this when a member is made,
  and when a process opens one on this store for the first time.
* Where the member is the only one of its group, an opening is recorded with the first request (`store_state`), and the end of
  the log is read while a fence is raised (`ahead`).
* `state` is never deleted.  Deleting objects by other means, such as a bucket's life-cycle rules, loses data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from replitree.errors import StoreError
from replitree.procedures import run
from replitree.storage.objects import ObjectExists, ObjectStore, probe, probe_replacing
from replitree.tablet.group import store
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import LOG, NOTHING, BlobId, Channel, Cookie, Generation, Step, TabletId, first_of
from replitree.tablet.group.member import AskFence, Done, Failed, Holdings, Raise, Reply, Request, Sweep, Write
from replitree.tablet.group.quorum import end_of
from replitree.tablet.members.ahead import Ahead
from replitree.tablet.members.frames import frame_of, scan
from replitree.tablet.members.member import Admission, Rules, Standing, Streams
from replitree.tablet.members.state import DirectoryState, admitted, decode_state, encode_state
from replitree.tablet.members.store_state import STATE_KEY, KnownState, StoredState, no_answer, outcome_of

BLOBS_PREFIX = "blobs"
REQUESTS_AT_ONCE = 64
"""Objects of one request that are on their way at once: a store answers late, and a log has an object for each entry."""

BLOB_BYTES_MAX = 32 << 20
"""Largest blob: an object that travels in one piece, for pieces have no conditions."""

_PROBED = set[str]()
"""The stores that have shown in this process that they can be used."""

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


def _probe_once(objects: ObjectStore) -> bool:
    """Find out whether a store can be used, unless this process knows it: once for each URL, but for those of one process."""
    if objects.name not in _PROBED:
        with ThreadPoolExecutor(1, thread_name_prefix="blob-store-probe") as pool:
            replacing = pool.submit(probe_replacing, objects)
            probe(objects)
            replacing.result()
        if not objects.name.startswith("memory:"):
            _PROBED.add(objects.name)
    return True


@dataclass(frozen=True, slots=True)
class _Listing:
    """A listing from a blob on to the end of its channel, made for the candidate that set a fence."""

    first: BlobId
    since: Fence
    names: tuple[BlobId, ...]


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
        self._state = StoredState(objects)
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="blob-store")
        self._known = Holdings()
        self._listing: _Listing | None = None
        self._ahead: Ahead | None = None

    # --- the port -------------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        """Carry out a request durably and answer it."""
        return self._serve(request, None)

    def answer_as(self, admission: Admission, request: Request) -> Reply:
        """Carry out a request if this is the place that was admitted: every read of `state` tells whether it is."""
        return self._serve(request, admission)

    def _serve(self, request: Request, admission: Admission | None) -> Reply:
        if not isinstance(request, Raise | AskFence) and isinstance(owing := self._state.pay(), Failed):
            return owing
        if isinstance(request, Write | Sweep):
            # A listing for a fence serves the take-over only: with the first write others may have written, too.
            self._listing = self._ahead = None
        serving = store.serve(request, self._known, is_alone=self._state.is_alone)
        return run(serving, lambda asked: outcome_of(partial(self._reply, asked, admission)))

    def standing(self) -> Standing | Failed:
        """Return what it knows of openings."""
        # While the store is probed: both take as long as a request to it does.
        reading = self._pool.submit(outcome_of, self._state.read)
        if self._probes:
            probed = outcome_of(partial(_probe_once, self._objects))
            if probed is not True:
                return no_answer(probed)
            self._probes = False
        read = reading.result()
        state = outcome_of(partial(self._state.with_owed, read)) if isinstance(read, KnownState) else read
        if not isinstance(state, DirectoryState):
            return no_answer(state)
        return Standing(state.incarnation, state.session, state.seen)

    def admit(self, session: int, stood: Admission | None = None) -> Done | Failed:
        """Remember that it takes part in an opening; if it is alone, with the first request."""
        return self._state.promise(lambda state: admitted(state, session, stood), session)

    def remember(self, seen: tuple[int, ...]) -> Done | Failed:
        """Remember each member's last session; a member that is alone writes it with its first request."""
        return self._state.promise(lambda state: state.with_seen(seen))

    def fence_seen(self, tablet: TabletId) -> Fence | None:
        """Return a tablet's fence as last seen, without a request; None if it was not seen."""
        return self._state.fence_seen(tablet)

    def streams(self) -> Streams | Failed:
        """Return of which tablets it has blobs in which channels; a store whose listing is ordered is asked once for each."""
        found = outcome_of(self._listed_streams)
        return found if isinstance(found, Streams) else no_answer(found)

    def rules(self) -> Rules | Failed:
        """Return what it refuses to take."""
        found = outcome_of(self._state.read)
        if not isinstance(found, KnownState):
            return no_answer(found)
        held = found.state.holdings()
        return Rules(held.fences, held.barriers)

    def close(self) -> None:
        """End the threads, when what was asked is done."""
        self._pool.shutdown()

    def _listed_streams(self) -> Streams:
        found, after, is_more = set[tuple[TabletId, Channel]](), "", True
        while is_more:
            is_more = False
            for info in self._objects.list(BLOBS_PREFIX, after):
                blob = blob_of(info.key)
                if blob is None:
                    continue
                found.add((blob.tablet, blob.channel))
                # On to the first key that is none of this channel's: "0" comes after "/".
                if self._objects.is_ordered:
                    after, is_more = f"{BLOBS_PREFIX}/{blob.tablet:016x}/{blob.channel:02x}0", True
                    break
        return Streams(tuple(sorted(found)))

    # --- requests to the store --------------------------------------------------------------------------------------------

    def _reply(self, request: store.StoreRequest, admission: Admission | None) -> store.StoreReply:
        match request:
            case store.CreateBlobs(blobs):
                before = self._each(self._create, blobs)
                return store.Created(tuple(each for each in before if each is not None))
            case store.MendBlobs(blobs):
                self._each(self._mend, blobs)
                return store.Persisted()
            case store.ReadState(is_fresh):
                found = self._state.read_as(admission, is_fresh=is_fresh)
                if isinstance(found, Failed):
                    return found
                self._known = found[1]
                return store.StateIs(found[1], found[0])
            case store.ReplaceState(held, tag):
                assert isinstance(tag, KnownState)
                return self._replace_by(held, tag)
            case store.List(first, last, since):
                if since is None:
                    return store.Listed(self._names(first, last))
                # To the end of the channel, once for each fence.
                known, place = self._listing, (first.tablet, first.channel)
                if known is None or known.since != since or known.first[:2] != place or known.first > first:
                    known = self._listing = _Listing(first, since, self._names(first, end_of(first)))
                return store.Listed(tuple(blob for blob in known.names if blob >= first))
            case store.Read(blobs):
                ahead = self._ahead
                data = self._each(lambda blob: (ahead and ahead.blob(blob)) or self._fetch(blob), blobs)
                return store.Found(tuple(each for each in data if each is not None))
            case store.DeleteBlobs(blobs):
                self._objects.delete([key_of(blob) for blob in blobs])
                return store.Persisted()

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
            # An object that is there and can't be read counts as unreadable: its bytes are given again.
            return self._fetch(blob) or (blob, None)
        return None

    def _mend(self, item: tuple[BlobId, bytes]) -> None:
        blob, data = item
        found = self._objects.get_tagged(key_of(blob))
        if found is None:
            self._objects.create(key_of(blob), frame_of(blob, data))
        elif payload_of(blob, found.data) is None:
            self._objects.replace(key_of(blob), frame_of(blob, data), found.tag)

    def _fetch(self, blob: BlobId) -> tuple[BlobId, bytes | None] | None:
        data = self._objects.get(key_of(blob))
        return None if data is None else (blob, payload_of(blob, data))

    def _names(self, first: BlobId, last: BlobId) -> tuple[BlobId, ...]:
        return tuple(blob for blob, _ in self._sizes(first, last))

    def _sizes(self, first: BlobId, last: BlobId) -> list[tuple[BlobId, int]]:
        """List from just before the first one: a key without its last character comes before it, and after all that do."""
        found, end = list[tuple[BlobId, int]](), key_of(last)
        for info in self._objects.list(f"{BLOBS_PREFIX}/{first.tablet:016x}/{first.channel:02x}", key_of(first)[:-1]):
            blob = blob_of(info.key)
            if blob is not None and first <= blob <= last:
                found.append((blob, info.bytes))
            if info.key > end and self._objects.is_ordered:
                break
        return sorted(found)

    def _replace_by(self, held: Holdings, read: KnownState) -> store.Persisted | store.Changed:
        before = read.state.holdings()
        fenced = [tablet for tablet, fence in held.fences if before.fence(tablet) != fence]
        if self._state.is_alone and len(fenced) == 1:
            first = first_of(fenced[0], LOG, NOTHING)
            self._ahead = Ahead(self._pool, lambda: self._sizes(first, end_of(first)), self._fetch)
        reply = self._state.replace_by(held, read)
        if isinstance(reply, store.Persisted):
            self._known = held
        return reply


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
