"""Consumers of the change feed at one replica: make, move and drop one, and mark those whose hold is over.

The replica holds the feed from the consumer's index on, checks that it has all of it, and commits the consumer
(`replitree.protocol.upkeep.consumers`).

The hold of a consumer is over when it has not moved for longer than its `hold_s` although there was something to read for as
long, or when this replica keeps more than its `bytes_max` for it alone.  The time is coordination's: this machine's clock only
says when to ask for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from replitree.errors import BadInput, CorruptPart, ReplitreeError, SnapshotExpired, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.program.stages import MemoryEffect, Then
from replitree.protocol.program.tagger import (
    HeldFeed,
    HoldFeed,
    JudgeHold,
    ReleaseFeed,
    drop_consumer,
    expire_consumer,
    make_consumer,
    move_consumer,
)
from replitree.protocol.upkeep.consumers import (
    CONSUMERS_MAX,
    ConsumerChanged,
    ConsumerNode,
    ConsumerValue,
    OtherConsumer,
    check_consumer_name,
    read_consumers,
)
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.table.feeds import Feeds
from replitree.replica.table.snapshots import Snapshots
from replitree.replica.table.tagging import Naming
from replitree.wire.consumer_status import ConsumerStatus
from replitree.wire.feed_errors import ConsumerExpired, FeedOff

LOOK_S = 10.0
"""How often the consumers are read and judged, in seconds."""


@dataclass(frozen=True, slots=True)
class ConsumerWish:
    """A consumer that a client wants.

    Attributes
    ----------
    name, id
        Its name, and the id of the command: a consumer of this name that was made with it before is the answer.
    index, is_snapshot
        The first entry that it reads; whether it reads the version there first.
    hold_s, bytes_max
        Its limits, in seconds and bytes.
    """

    name: str
    id: fx.EntryId
    index: LogIndex
    is_snapshot: bool
    hold_s: float
    bytes_max: int


class Consuming:
    """Makes, moves, expires and drops the consumers of one table.

    Parameters
    ----------
    parts, snapshots
        The parts on this disk, and what takes snapshots of them.
    naming
        Commits the changes.
    feeds
        Returns the change feed as it is now.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        snapshots: Snapshots,
        naming: Naming,
        feeds: Callable[[], Feeds],
    ) -> None:
        self._context, self._naming, self._snapshots, self._feeds = context, naming, snapshots, feeds
        self._old_parts, self._store, self._versions = parts.old_parts, parts.store, parts.versions
        self._looked_at = float("-inf")
        self.seen: tuple[ConsumerStatus, ...] = ()
        """The consumers, as they were seen last."""

    def make(self, wish: ConsumerWish) -> ConsumerValue:
        """Make a consumer, whose index is executed here; return it.

        Raises
        ------
        BadInput
            There is another one of the name, or too many, or the name can't be one.
        FeedOff, OffsetExpired, FeedGap, SnapshotExpired
            The feed, or the snapshot, is not here from the index on.
        ReadOnly, Unavailable
            There is certainly no such consumer.
        OutcomeUnknown
            There may be one; repeat it with the same id.
        """
        context, name, table = self._context, check_consumer_name(wish.name), self._context.replica.table
        known = context.performer.look_up(read_consumers(table))
        if len(known.all) >= CONSUMERS_MAX and all(each.name != name for each in known.all):
            raise BadInput(f"table {table.name} has {CONSUMERS_MAX} consumers: drop some first")
        # The entry that has turned it on or off may be newer than the definition that is known here.
        context.definitions.catch_up()
        if not context.definitions.current.feed:
            raise FeedOff(
                f"table {table.name} keeps no change feed, which a consumer reads: turn it on first, with"
                " `replitree table feed` or table.set_feed('24h')"
            )
        with ExitStack() as held:
            hold = self._old_parts.hold_feed(wish.index)
            held.callback(self._old_parts.release_feed, hold)
            # After the hold began: what is here now stays.
            self._feeds().check_from(wish.index)
            parts: tuple[str, ...] = ()
            if wish.is_snapshot:
                taken = self._snapshots.take(wish.index, LEASE_S_MAX)
                assert taken.lease is not None, "a lease was asked for"
                held.callback(self._old_parts.release, taken.lease)
                parts = tuple(sorted(taken.parts))
                try:
                    for part in parts:
                        self._store.manifest(part)
                except CorruptPart as error:
                    raise SnapshotExpired(f"{error}; try again, or ask another replica") from error
            snapshot = wish.index if wish.is_snapshot else None
            value = ConsumerValue(
                wish.index, wish.id, context.replica.name, wish.hold_s, wish.bytes_max, snapshot, parts
            )
            release = held.pop_all()

        def remember(effect: MemoryEffect, epoch: fx.Epoch) -> HeldFeed | None:
            match effect:
                case HoldFeed():
                    return HeldFeed(context.identity.encode(), epoch, value)
                case ReleaseFeed():
                    release.close()
            return None

        begins = "snapshot" if wish.is_snapshot else "feed"
        stage = Then(make_consumer, (context.replica, name, wish.index, begins))
        match self._naming.change(stage, f"consumer {name}", remember, release.close):
            case ConsumerChanged(made):
                self._looked_at = float("-inf")
                return made
            case OtherConsumer(ConsumerValue(index=index)):
                raise BadInput(
                    f"there is a consumer {name!r} already, which stands at {index}: drop it first, or give another name"
                )
        raise BadInput(f"consumer {name!r} was made, and dropped by another client a moment later")

    def move(self, name: str, index: LogIndex) -> ConsumerValue:
        """Say that a consumer has read everything below an index, and its snapshot; return it.

        Raises
        ------
        BadInput
            There is no such consumer, or it stands above the index.
        ConsumerExpired
            Its hold has ended.
        ReadOnly, Unavailable, OutcomeUnknown
            As `make`; a move may be repeated.
        """
        stage = Then(move_consumer, (self._context.replica, check_consumer_name(name), index))
        match self._naming.change(stage, f"consumer {name}"):
            case ConsumerChanged(moved):
                return moved
            case OtherConsumer(ConsumerValue(expired=why)) if why:
                raise ConsumerExpired(
                    f"consumer {name} was not moved to {index}: its hold has ended, because {why}", index
                )
            case OtherConsumer(ConsumerValue(index=stands)):
                raise BadInput(
                    f"consumer {name} stands at {stands} and was not moved back to {index}: what is below {stands} may be gone."
                    " Another reader may use its name"
                )
        raise BadInput(f"there is no consumer {name!r}: make it first (replitree consumers create)")

    def drop(self, name: str) -> bool:
        """Drop a consumer; False when there is none of the name.  Raises as `make`."""
        stage = Then(drop_consumer, (self._context.replica, check_consumer_name(name)))
        return isinstance(self._naming.change(stage, f"consumer {name}"), ConsumerChanged)

    # --- the end of a hold ---

    def are_there(self) -> bool:
        """Whether a consumer holds the feed.  Raises ReplitreeError when coordination does not answer."""
        if not self._old_parts.consumers.holding:
            self._read()
        return bool(self._old_parts.consumers.holding)

    def _read(self) -> None:
        old = self._old_parts
        old.consumers = self._context.performer.look_up(read_consumers(self._context.replica.table, old.consumers))

    def look(self) -> None:
        """Now and then read the consumers, and mark the first one whose hold is over.

        Raises
        ------
        ReplitreeError, OSError
            Something is in the way; it is done again.
        """
        old, now = self._old_parts, time.monotonic()
        is_watched = self._context.definitions.current.feed or old.consumers.all
        if not is_watched or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._read()
        # One at a time, that furthest behind first: what it alone has kept may be all that is too much.
        behind = sorted(old.consumers.all, key=lambda each: each.value.index)
        now_ms = round(time.time() * 1_000)
        self.seen = tuple(self._status(each, now_ms) for each in behind)
        over = next((each for each, seen in zip(behind, self.seen, strict=True) if self._over(seen)), None)
        if over is None:
            return

        def judge(effect: MemoryEffect, _epoch: fx.Epoch) -> str:
            assert isinstance(effect, JudgeHold), "nothing else is asked for"
            return self._over(self._status(effect.consumer, self._now_ms()))

        stage = Then(expire_consumer, (self._context.replica, over.name))
        outcome = self._naming.change(stage, f"consumer {over.name}", judge)
        if isinstance(outcome, ConsumerChanged):
            self._context.log.warning("a consumer's hold has ended", consumer=over.name, reason=outcome.value.expired)

    def _status(self, consumer: ConsumerNode, now_ms: int) -> ConsumerStatus:
        """Return how a consumer stands at a time of coordination's, in milliseconds since 1970."""
        value = consumer.value
        since_ms = now_ms if value.expired else max(consumer.moved_ms, self._readable_ms(value))
        return ConsumerStatus(
            name=consumer.name,
            index=value.index,
            idle_s=max(0, now_ms - since_ms) / 1_000,
            hold_s=value.hold_s,
            bytes=0 if value.expired else self._old_parts.bytes_for(value),
            bytes_max=value.bytes_max,
            expired=value.expired,
        )

    def _over(self, seen: ConsumerStatus) -> str:
        """Return why the hold of a consumer is over; "": it is not, or is marked already."""
        if seen.expired:
            return ""
        if seen.idle_s > seen.hold_s:
            return f"it had not moved from {seen.index} for {seen.idle_s:,.0f} s, and holds for {seen.hold_s:,.0f} s"
        if seen.bytes > seen.bytes_max:
            return (
                f"replica {self._context.replica.name} kept {seen.bytes:,} bytes for it alone, from {seen.index} on, and"
                f" {seen.bytes_max:,} is its limit"
            )
        return ""

    def _readable_ms(self, value: ConsumerValue) -> int:
        """Return since when there is something to read, in milliseconds since 1970; 0: the snapshot, or it is not known."""
        journal, index = self._versions.journal, LogIndex(value.index)
        journal.read()
        if value.snapshot is not None or index < journal.first:
            return 0
        if index >= journal.end:
            # Nothing came: a reader that is there has nothing to move for.
            return round(time.time() * 1_000)
        try:
            first = next(journal.entries(index, journal.end), None)
        except ReplitreeError:
            return 0
        return 0 if first is None else first.timestamp_us // 1_000

    def _now_ms(self) -> int:
        """Ask for coordination's time.  Raises Unavailable when it does not say."""
        performer, root = self._context.performer, layout.root_of(self._context.replica.table)
        made = performer.perform(fx.Commit(fx.Create(f"{root}/now-", ephemeral=True, sequential=True)))
        if not isinstance(made, fx.Applied):
            raise Unavailable("coordination did not say what time it is; try again")
        node = performer.perform(fx.Get(made.created[0]))
        performer.perform(fx.Commit(fx.Delete(made.created[0], fx.ANY_VERSION)))
        if not isinstance(node, fx.Node):
            raise Unavailable("the session with coordination ended meanwhile; try again")
        return int(node.changed_ms)


__all__ = ["ConsumerWish", "Consuming"]
