"""When a leader has to mend (`tablet.core.mending`): requests for it, members that have missed something, mends that were made.

A member that missed a write lacks a blob of a step that had been sent by the time that was noticed.  So what is confirmed up to
there is mended, and not earlier than all of it is confirmed.  A member has what it missed, or what was asked for, when it has
answered a mend that began after that, and nothing was missed meanwhile; a member that failed or was silent then is mended when
it answers again.  A mend that did not help is tried again later and later: a disk may be full for long.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from replitree.tablet.group.ids import GroupId, Step
from replitree.tablet.runtime.performing import Groups

LOOKS_MAX = 8
"""Looks that are left out at most, before a mend that did not help is tried again."""

Who: TypeAlias = tuple[GroupId, int]
"""A group, and the number of one of its members."""


@dataclass(frozen=True, slots=True)
class Mend:
    """The reason of a mend: requests up to this number, what members had missed, and the last step then sent."""

    request: int
    missed: Mapping[Who, int]
    last: Step


class _Mended(NamedTuple):
    """Up to which request a member was mended, and how much of what it had missed."""

    request: int = 0
    missed: int = 0


class Mends:
    """The mends that are due, and those that were made.

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
        self._mended: dict[Who, _Mended] = {}
        self._next: Mend | None = None
        self._looks = self._looks_last = 0

    def ask(self) -> None:
        """Let everything be mended once more, whatever is being done now."""
        with self._lock:
            self._requests += 1
            self._looks = self._looks_last = 0

    def is_whole(self) -> bool:
        """Return whether no member that answers lacks something, or waits for a mend."""
        with self._lock:
            return not self._is_lacking(self._groups.missed())

    def due(self, missed: Mapping[Who, int], last: Step, confirmed: Step) -> Mend | None:
        """Return what is to be mended now, if anything.

        Parameters
        ----------
        missed
            What members had missed (`Groups.missed`) before it was looked what was sent.
        last, confirmed
            The last step that was sent, and up to where all are confirmed.
        """
        with self._lock:
            if self._looks:
                self._looks -= 1
                return None
            if self._next is None and self._is_lacking(missed):
                self._next = Mend(self._requests, dict(missed), last)
            # What was sent when a miss was noticed must be confirmed: until then it may not count.
            if self._next is None or confirmed < self._next.last:
                return None
            mend, self._next = self._next, None
            return mend

    def ended(self, mend: Mend, lacking: Sequence[Who] | None) -> None:
        """Take what became of a mend.

        Parameters
        ----------
        mend
            Which.
        lacking
            The members that did not say that they have everything now; None: it was not done to its end.
        """
        with self._lock:
            now = self._groups.missed()
            if lacking is not None:
                self._mended |= {
                    member: _Mended(mend.request, count)
                    for member, count in mend.missed.items()
                    # Unless it has missed more meanwhile.
                    if member not in lacking and now.get(member) == count
                }
            has_helped = lacking is not None and not self._is_lacking(now)
            is_asked_again = self._requests > mend.request
            self._looks = 0 if has_helped or is_asked_again else min(LOOKS_MAX, 2 * self._looks_last or 1)
            self._looks_last = self._looks

    def _is_lacking(self, missed: Mapping[Who, int]) -> bool:
        """Whether one of these members is to be mended."""
        mended = ((count, self._mended.get(who, _Mended())) for who, count in missed.items())
        return any(self._requests > each.request or count > each.missed for count, each in mended)
