"""Feed parts: parts that the change feed needs, that have left the table, and that this replica has not got.

A replica that was away may get a merged part in place of the parts of inserts (`replitree.protocol.state.fetch`).  While the
feed is on, or a consumer holds them, it fetches these from replicas that keep them, some at a time, the newest first.  They are
old parts from the first moment on: no commit registers them.

A feed may need millions of parts, so they are looked at some at a time: a look does not hold up what pulls and executes.

Guarantee: no part that the table has, or that an entry of the queue still brings or takes, is touched.  A part that is gone
from the fold, and of which no entry of the queue speaks, is never registered again: names of parts never come back.

Absent on purpose: tables whose rows lie in an object store.  There a part comes with a share, which only a registered part has;
the feed is then read at another replica.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from replitree.protocol.core.effects import Fetched, FetchPart
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.fetch import others_of
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.exchange import Exchange

FETCHED_AT_ONCE = 64
"""Parts that one round fetches at most."""

LOOKED_AT_ONCE = 1_024
"""Parts that are looked at while nothing is pulled or executed."""

REST = 9
"""After a look, none comes for so many times as long as it took: a feed may need millions of parts."""

NOWHERE_S = 60.0
"""After how many seconds parts that no replica had are asked for again."""


class FeedParts:
    """Fetches what the feed of one table replica needs.

    Parameters
    ----------
    exchange
        Fetches parts.
    """

    def __init__(self, context: TableContext, parts: LocalParts, exchange: Exchange) -> None:
        self._context, self._exchange = context, exchange
        self._store, self._progress = parts.store, parts.progress
        self._old_parts, self._journal = parts.old_parts, parts.versions.journal
        self._nowhere: frozenset[Part] = frozenset()
        self._forget_at, self._look_at = 0.0, 0.0

    def look(self) -> None:
        """Fetch some parts that are missing.  Raises OSError when the disk refuses."""
        definition = self._context.definitions.current
        if definition.is_shared or not (definition.feed or self._old_parts.consumers.holding):
            return
        # What no replica has is asked for again only now and then: one that has it may have been away.
        if time.monotonic() >= self._forget_at:
            self._nowhere, self._forget_at = frozenset(), time.monotonic() + NOWHERE_S
        if time.monotonic() < self._look_at:
            return
        began = time.monotonic()
        some = [*islice((part for part in self.missing() if part not in self._nowhere), FETCHED_AT_ONCE)]
        # The look may have taken a while: what it has found first is looked at once more.
        wanted = self._missing_of(some)
        self._look_at = time.monotonic() + REST * (time.monotonic() - began)
        if not wanted:
            return
        left = dict.fromkeys(wanted)
        for other in self._context.performer.look_up(others_of(self._context.replica)):
            found = [(part, self._exchange.manifest_of(other.name, part.name)) for part in left]
            fetches = [FetchPart(part.name, each.content, (other.name,)) for part, each in found if each is not None]
            here = [each.part for each in self._exchange.fetch(fetches) if isinstance(each, Fetched)] if fetches else []
            self._old_parts.retire(here)
            left = {part: None for part in left if part.name not in here}
        # The replica that has taken rows a moment ago may still have to publish them.
        recently = self._journal.needed_recently([part.name for part in left])
        self._nowhere |= {part for part in left if part.name not in recently}
        if len(left) < len(wanted):
            self._context.log.info("fetched parts of the change feed", parts=len(wanted) - len(left))

    def missing(self) -> Iterator[Part]:
        """Give what the feed needs and this replica has not got, about the newest first.

        Raises
        ------
        OSError
            The disk refuses.
        """
        needed = map(parse_part, self._journal.needed(self._old_parts.feed_floor))
        while some := [*islice(needed, LOOKED_AT_ONCE)]:
            yield from self._missing_of(some)

    def _missing_of(self, needed: Sequence[Part]) -> list[Part]:
        with self._progress.changed:
            place, queue = self._progress.place, self._progress.queue()
            if place is None or self._progress.is_torn:
                return []
            busy = {part for item in queue for part in (*item.change.removed, *item.change.added)}
            held = self._progress.held
            return [
                part
                for part in needed
                if part not in held
                and part not in place.parts
                and part not in busy
                and not self._old_parts.is_old(part.name)
                and not self._store.has_part(part.name)
            ]


__all__ = ["FETCHED_AT_ONCE", "FeedParts"]
