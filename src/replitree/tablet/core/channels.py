"""Which group holds what a generation wrote to a channel.

A channel's *history* says from which generation on it lies in which group; the same group may come again.  A group that came
again may hold blobs of an earlier time: they do not belong to the interval that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from replitree.tablet.group.ids import GENERATION_MAX, LOG, Channel, Generation, GenStep, GroupId, TabletId

History: TypeAlias = tuple[tuple[Generation, GroupId], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of generations, both ends included, whose blobs of one channel lie in one group."""

    group: GroupId
    first: Generation
    last: Generation


@dataclass(frozen=True, slots=True)
class Channels:
    """A tablet and the histories of its channels, channel 0 first; each begins with generation 1 and ascends."""

    tablet: TabletId
    histories: tuple[History, ...]

    def __post_init__(self) -> None:
        assert self.histories, "a tablet has a log"
        for history in self.histories:
            firsts = [first for first, _ in history]
            assert firsts[:1] == [1], "a history begins with generation 1"
            assert firsts == sorted(set(firsts)), "a history ascends"

    def intervals(self, channel: Channel = LOG) -> tuple[Interval, ...]:
        """Return the intervals of a channel, oldest first."""
        history = self.histories[channel]
        ends = [Generation(first - 1) for first, _ in history[1:]] + [Generation(GENERATION_MAX)]
        return tuple(Interval(group, first, last) for (first, group), last in zip(history, ends, strict=True))

    def group(self, channel: Channel, generation: Generation) -> GroupId:
        """Return where a generation writes a channel's blobs."""
        # Histories are short: a channel moves a few times in a tablet's life.
        for first, group in reversed(self.histories[channel]):
            if first <= generation:
                return group
        raise AssertionError("a history begins with generation 1")

    def groups(self) -> tuple[GroupId, ...]:
        """Return every group that a generation ever wrote to, in order of appearance.

        A candidate fences all of them, not only those of its predecessor: a generation may have moved a channel and died before
        it fenced the group that the channel came from.
        """
        return tuple(dict.fromkeys(group for history in self.histories for _, group in history))


def in_one_group(tablet: TabletId, group: GroupId) -> Channels:
    """Return the channels of a tablet that lies in one group: log and data."""
    history = ((Generation(1), group),)
    return Channels(tablet, (history, history))


def overlapping(intervals: Sequence[Interval], first: GenStep, last: GenStep) -> tuple[Interval, ...]:
    """Return the intervals that have generations from `first` to `last`, cut to these."""
    return tuple(
        Interval(each.group, max(each.first, first.generation), min(each.last, last.generation))
        for each in intervals
        if each.first <= last.generation and each.last >= first.generation
    )
