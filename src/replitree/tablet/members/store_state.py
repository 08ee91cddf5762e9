"""The object `state` of a member on an object store, and what a process knows of it.

* A process replaces it only if it is unchanged since it was read.  So a change may begin with the `state` that was read before:
  if another process was faster the store refuses, and this one reads it again.
* A place that is *alone*, the only member of its group, records an opening with the first request under that opening: in the
  replacement that raises a fence, or in one before any other request.  No other member remembers openings of it, and until then
the place has acknowledged nothing that it could lose.  Every read of `state` applies the opening that is not yet recorded:
  a place that is not the one that was opened refuses, as it would have at the opening.  If another process has opened the
  group later still, nothing is left to record: the request is answered with that opening.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from replitree.errors import NotAuthorized, StoreError, UnsupportedFormat
from replitree.storage.objects import ObjectChanged, ObjectStore, StoreInDoubt
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import TabletId
from replitree.tablet.group.member import Done, Failed, Holdings
from replitree.tablet.group.store import CHANGES_MAX, Changed, Persisted
from replitree.tablet.members.member import MEND_IT, Admission, refusal
from replitree.tablet.members.state import DirectoryState, decode_state, encode_state
from replitree.tablet.runtime.fresh import FreshReads

STATE_KEY = "state"

SEEN_S = 2.0
"""Age up to which a fence that was read is good enough to choose a generation, in seconds."""

T = TypeVar("T")
Change: TypeAlias = Callable[[DirectoryState], DirectoryState]


@dataclass(frozen=True, slots=True)
class KnownState:
    """`state` as it was read or written.

    Attributes
    ----------
    state
        What it says.
    tag
        Of its bytes; None: not known, for it was written.
    at_s
        When, by `time.monotonic`.
    """

    state: DirectoryState
    tag: str | None
    at_s: float


def outcome_of(request: Callable[[], T]) -> T | Failed | None:
    """Send a request; None when there was no answer and it may still take place."""
    try:
        return request()
    except StoreInDoubt:
        return None
    except (StoreError, NotAuthorized, UnsupportedFormat) as error:
        return Failed(str(error))


def no_answer(outcome: object) -> Failed:
    """Return what to say when there is no answer that says more."""
    return outcome if isinstance(outcome, Failed) else Failed("the object store does not answer")


def changed(state: DirectoryState, changes: Sequence[Change]) -> DirectoryState:
    """Return a state after some changes; raises `StoreError` if it is not the one that they are for."""
    for change in changes:
        state = change(state)
    return state


class StoredState:
    """The state of one place.  Any thread may use it.

    Parameters
    ----------
    objects
        The store, below the member's prefix.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._reads = FreshReads(self._read)
        self._seen: KnownState | None = None
        self._owed: tuple[Change, ...] = ()
        self._owed_session = 0
        self._owing = threading.Lock()

    # --- reading --------------------------------------------------------------------------------------------------------

    def read(self) -> KnownState:
        """Read it; raises `StoreError`, `NotAuthorized`, `UnsupportedFormat`."""
        return self._reads.read()

    def _read(self) -> KnownState:
        found = self._objects.get_tagged(STATE_KEY)
        if found is None:
            raise StoreError(
                f"{self._objects.name} has no object {STATE_KEY}: is it the place that the group was made with? If so,"
                f" bring the object back, or {MEND_IT}"
            )
        state = decode_state(found.data, f"{self._objects.name}, {STATE_KEY}")
        self._seen = read = KnownState(state, found.tag, time.monotonic())
        return read

    def read_as(self, admission: Admission | None, *, is_fresh: bool) -> tuple[KnownState, Holdings] | Failed:
        """Return the state if it is the one of the place that was admitted, and what it says of fences and barriers.

        Unless `is_fresh`, the last seen one suffices; but no request is refused because of it.
        """
        read = self._seen
        if is_fresh or read is None:
            read, is_fresh = self.read(), True
        who = self.with_owed(read)
        refused = None if admission is None else refusal(admission, who.incarnation, who.session)
        if refused is None:
            return read, who.holdings()
        # No request is refused because of an old look.
        return refused if is_fresh else self.read_as(admission, is_fresh=True)

    def with_owed(self, read: KnownState) -> DirectoryState:
        """Return what was read with the openings that are not written yet; raises `StoreError` if it is another place."""
        return changed(read.state, self._due(read.state, self._owed))

    def _due(self, state: DirectoryState, owed: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return the owed changes that are still to be written: none once a later opening was written."""
        return () if state.session > self._owed_session else owed

    @property
    def is_alone(self) -> bool:
        """Whether it is known that the group has no other member."""
        seen = self._seen
        return seen is not None and len(seen.state.seen) == 1

    def fence_seen(self, tablet: TabletId) -> Fence | None:
        """Return a tablet's fence as it was at most `SEEN_S` ago; None if that is not known."""
        seen = self._seen
        if seen is None or time.monotonic() - seen.at_s > SEEN_S:
            return None
        return seen.state.holdings().fence(tablet)

    # --- replacing ------------------------------------------------------------------------------------------------------

    def replace_by(self, held: Holdings, read: KnownState) -> Persisted | Changed:
        """Replace the state that was read by one with these fences and barriers, and with the changes that are owed."""
        owed = self._owed
        reply = self._replace(read, changed(read.state, self._due(read.state, owed)).with_holdings(held))
        if isinstance(reply, Persisted):
            self._paid(owed)
        return reply

    def _replace(self, read: KnownState, state: DirectoryState) -> Persisted | Changed:
        # After a replacement the new tag is not known: the next one reads first.
        if read.tag is None:
            return Changed()
        try:
            self._objects.replace(STATE_KEY, encode_state(state), read.tag)
        except ObjectChanged:
            # Another process was faster, or an earlier request of this one whose answer was lost: the state is read again.
            return Changed()
        self._seen = KnownState(state, None, time.monotonic())
        return Persisted()

    # --- openings -------------------------------------------------------------------------------------------------------

    def promise(self, change: Change, session: int = 0) -> Done | Failed:
        """Change what it knows of openings; a lone member writes it with the next request.  `session`: of a new opening."""
        seen = self._seen
        if seen is None or not self.is_alone:
            return self._change(change)
        state = outcome_of(lambda: change(self.with_owed(seen)))
        if not isinstance(state, DirectoryState):
            return no_answer(state)
        with self._owing:
            self._owed = (*self._owed, change)
            self._owed_session = max(self._owed_session, session)
        return Done()

    def pay(self) -> Done | Failed:
        """Write the changes that are owed, if there are any."""
        return self._change() if self._owed else Done()

    def _paid(self, owed: Sequence[Change]) -> None:
        with self._owing:
            # Another thread may have promised something meanwhile.
            self._owed = tuple(change for change in self._owed if change not in owed)

    def _change(self, *changes: Change) -> Done | Failed:
        """Change the state; after a change of another process, or a lost answer, the state is read again.

        What was seen before is good enough to begin with, unless nothing would be changed, or it is refused.
        """
        seen = self._seen
        for known in (*((seen,) if seen else ()), *(None,) * CHANGES_MAX):
            read = known or outcome_of(self.read)
            if not isinstance(read, KnownState):
                return no_answer(read)
            owed = self._owed
            state = outcome_of(partial(changed, read.state, (*self._due(read.state, owed), *changes)))
            if known is not None and (state == read.state or isinstance(state, Failed)):
                continue
            if not isinstance(state, DirectoryState):
                return no_answer(state)
            replaced = Persisted() if state == read.state else outcome_of(partial(self._replace, read, state))
            if isinstance(replaced, Failed):
                return replaced
            if isinstance(replaced, Persisted):
                self._paid(owed)
                return Done()
        return Failed(f"others were faster to change the state {CHANGES_MAX} times; try again")
