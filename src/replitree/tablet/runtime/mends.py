"""When a leader has to mend (`replitree.tablet.mending`): who asked for it, which members have missed something, what was done.

A member that missed a write lacks a blob of a step that had been sent by the time that was noticed.  So what is confirmed up to
there is mended, and not earlier than all of it is confirmed.  A member has what it missed when it answers after that, and
nothing was missed meanwhile.  A mend that did not help is tried again later and later: a disk may be full for long.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from replitree.tablet.ids import GroupId, Step
from replitree.tablet.runtime.performing import Groups

LOOKS_MAX = 8
"""So many looks are left out, at most, before a mend that did not help is tried again."""


@dataclass(frozen=True, slots=True)
class Mend:
    """What a mend is for: requests up to this number, what members had missed, and the last step then sent."""

    request: int
    missed: Mapping[tuple[GroupId, int], int]
    last: Step


class Mends:
    """What has to be mended, and what was.

    Parameters
    ----------
    groups
        Whose members may miss something.
    is_needed
        Whether there is something to be mended from the begin.
    """

    def __init__(self, groups: Groups, *, is_needed: bool) -> None:
        self._groups = groups
        self._lock = threading.Lock()
        self._requests = int(is_needed)
        self._done = 0
        self._repaired: dict[tuple[GroupId, int], int] = {}
        self._next: Mend | None = None
        self._looks = self._looks_last = 0

    def ask(self) -> None:
        """Let everything be mended once more, whatever is being done now."""
        with self._lock:
            self._requests += 1
            self._looks = self._looks_last = 0

    def is_whole(self) -> bool:
        """Return whether nobody waits for a mend, and no member that answers lacks something."""
        with self._lock:
            return self._requests == self._done and not self._lacking(self._groups.missed())

    def due(self, last: Step, confirmed: Step) -> Mend | None:
        """Return what is to be mended now, if anything.

        Parameters
        ----------
        last, confirmed
            The last step that was sent, and up to where all are confirmed.
        """
        with self._lock:
            if self._looks:
                self._looks -= 1
                return None
            if self._next is None:
                missed = dict(self._groups.missed())
                if self._requests > self._done or self._lacking(missed):
                    self._next = Mend(self._requests, missed, last)
            if self._next is None or confirmed < self._next.last:
                return None
            mend, self._next = self._next, None
            return mend

    def ended(self, mend: Mend, *, is_done: bool) -> None:
        """Take what became of a mend: whether all of it was done that members which answer could do."""
        with self._lock:
            if is_done:
                self._done = max(self._done, mend.request)
                now = self._groups.missed()
                self._repaired |= {who: count for who, count in mend.missed.items() if now.get(who) == count}
            has_helped = is_done and not self._lacking(self._groups.missed())
            is_asked_again = self._requests > mend.request
            self._looks = 0 if has_helped or is_asked_again else min(LOOKS_MAX, 2 * self._looks_last or 1)
            self._looks_last = self._looks

    def _lacking(self, missed: Mapping[tuple[GroupId, int], int]) -> bool:
        return any(count > self._repaired.get(who, 0) for who, count in missed.items())
