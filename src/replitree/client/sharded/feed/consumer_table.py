"""Consumers of the change feed of a sharded table: named cuts, from which on every shard keeps everything.

A replica of each shard holds what the consumer has not read there, and the client makes, moves and drops the consumer in all
shards at once (`replitree.protocol.upkeep.cut_consumers`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.command import COMMAND_S, check_id
from replitree.client.change.consuming import HOLD, check_limits, expired_error, make_consumer
from replitree.client.read.as_of import AsOf
from replitree.client.read.table_log import as_time
from replitree.client.sharded.cut_reads import CutOptions
from replitree.client.sharded.feed.feed_table import ShardedFeedTable
from replitree.client.sharded.shard_table import ShardTable, left_s
from replitree.client.sharded.sharded_catalog import read_map
from replitree.client.sharded.whole_table import told_of
from replitree.errors import BadInput, SnapshotExpired
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId
from replitree.protocol.sharded.cut import Cut, CutLevel, parse_cut
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.upkeep.consumers import CONSUMERS_MAX, HOLD_BYTES_MAX, check_consumer_name, decode_consumer
from replitree.protocol.upkeep.cut_consumers import (
    CUT_CONSUMERS,
    CutConsumerValue,
    HoldOver,
    decode_cut_consumer,
    move_cut_consumer,
)
from replitree.protocol.upkeep.named_cuts import (
    SHARDS_CHANGED,
    CutName,
    KeepShard,
    KeptShard,
    TakeCut,
    delete_named_cut,
    make_named_cut,
)
from replitree.protocol.upkeep.named_nodes import TRIES_MAX
from replitree.wire.feed_errors import FeedOff

if TYPE_CHECKING:
    from replitree.client.sharded.union import ShardedSnapshot

LEVELS: Sequence[CutLevel] = ("consistent", "linearizable")

HELD_S = 600.0
"""How long the snapshot that a consumer reads first is kept until all shards hold it, in seconds."""


class CutConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A named cut in the change feed of a sharded table: every shard keeps everything from there on.

    Attributes
    ----------
    name
        As in ``changes(consumer=name)``.
    cut
        Its reader has read everything up to there.
    time
        When it was created or moved last, or when its hold ended, in UTC, by coordination's clock.
    hold_s, bytes_max
        Its hold ends when it has not moved for so many seconds although a shard has something to read, or when a replica of a
        shard keeps more bytes for it alone.
    snapshot
        The cut at which its reader reads the table first, equal to `cut`; None: it has been read, or there was none to read.
    expired
        Why its hold has ended, and in which shard; empty: it holds.
    shards
        (shard, index): the first entry of the log of each shard that its reader has not read.
    """

    name: str
    cut: str
    time: datetime
    hold_s: float
    bytes_max: int
    snapshot: str | None
    expired: str
    shards: tuple[tuple[str, int], ...]

    @property
    def position(self) -> str:
        """Where it stands, as people copy it into commands."""
        return self.cut


@check_arguments
class ShardedConsumerTable(ShardedFeedTable):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that knows the consumers of its change feed."""

    @override
    def consumers(self) -> tuple[CutConsumer, ...]:  # type: ignore[override]  # they stand at cuts
        """Return the consumers of the change feed, by name, with those whose hold has ended.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        names = self._consumer_names()
        found = (self._find_consumer(name) for name in names)
        return tuple(each for each in found if each is not None)

    @override
    def create_consumer(  # type: ignore[override]
        self,
        name: str,
        start: AsOf = "latest",
        *,
        hold: str = HOLD,
        bytes_max: int = HOLD_BYTES_MAX,
        command_id: str | None = None,
        timeout_s: float = COMMAND_S,
    ) -> CutConsumer:
        """Create a consumer: every shard keeps everything from its cut on, until it is moved or its hold ends.

        Parameters
        ----------
        name, hold, bytes_max, command_id, timeout_s
            As of `Table.create_consumer`; the limits hold in each shard.
        start
            Where it begins: ``latest``, ``earliest`` and ``snapshot`` as there, or a cut, a time or a tag, as of
            `ShardedTable.snapshot`.

        Raises
        ------
        BadInput
            There is a consumer of this name, the name can't be one, or a limit is wrong.
        FeedOff, OffsetExpired, SnapshotExpired
            As of `Table.create_consumer`.
        Unavailable
            There is no consumer: a shard can't be asked, or another client has dropped it before it was whole; try again.
        OutcomeUnknown
            There may be one: repeat it with the same id.
        """
        hold_s, known_as = check_limits(hold, bytes_max), EntryId(check_id(command_id))
        known = self._consumer_names()
        if check_consumer_name(name) not in known and len(known) >= CONSUMERS_MAX:
            raise BadInput(f"table {self.name} has {CONSUMERS_MAX} consumers: drop some first")
        if not self.refresh().feed:
            raise FeedOff(
                f"table {self.name} keeps no change feed, which a consumer reads: turn it on first, with"
                " `replitree table feed` or table.set_feed('24h')"
            )
        deadline, is_snapshot = time.monotonic() + timeout_s, start == "snapshot"

        def take(held: ExitStack) -> CutConsumerValue:
            if is_snapshot:
                wanted = CutOptions("linearizable", timeout_s=left_s(deadline), lease_s=HELD_S)
                taken: ShardedSnapshot = held.enter_context(self._taken(wanted))
                assert taken.cut is not None, "it is no eventual read"
                kept = tuple(KeptShard(each.definition.name, each.index, each.replica) for each in taken.shards)
                return CutConsumerValue(taken.cut, known_as, kept, hold_s, bytes_max, is_snapshot)
            cut = self._cut_of_start(start, left_s(deadline))
            places = self._positions(cut, self._shards_now(), deadline)
            return CutConsumerValue(
                cut, known_as, tuple(KeptShard(*each) for each in places.items()), hold_s, bytes_max
            )

        def keep(each: KeptShard) -> None:
            body = {"name": name, "id": known_as, "index": each.index, "snapshot": is_snapshot}
            body |= {"hold_s": hold_s, "bytes_max": bytes_max, "min_index": each.index}
            shard = self._shard(shard_number(each.shard))
            first = shard.replica(each.replica) if each.replica else shard
            left = max(1.0, left_s(deadline))
            make_consumer(first.commander, lambda name: shard.replica(name).commander, body, known_as, left)

        with ExitStack() as held:

            def perform(effect: fx.Effect) -> Any:
                match effect:
                    case TakeCut():
                        return take(held)
                    case KeepShard(shard):
                        return keep(shard)
                return self._catalog.perform(effect)

            names, at = [shard.name for shard in self._shards_now()], self._consumer_name(name)
            made = told_of(
                "consumer", run(make_named_cut(at, self._info.incarnation, known_as, names), perform), known_as
            )
        found = None if made is None else self._find_consumer(name)
        if made is None or found is None:
            raise BadInput(f"consumer {name!r} was made, and dropped by another client a moment later")
        if made.id != known_as:
            raise BadInput(
                f"there is a consumer {name!r} already, which stands at {found.cut}: drop it first, or give another name"
            )
        return found

    @override
    def move_consumer(self, name: str, index: AsOf, *, timeout_s: float = COMMAND_S) -> None:
        """Move a consumer forward, in all shards at once.

        Parameters
        ----------
        name, timeout_s
            As of `Table.move_consumer`.
        index
            A cut: `ShardedChanges.end` of what was read and stored; after a snapshot, the consumer's own cut.

        Raises
        ------
        BadInput
            There is no such consumer, it stands at a later cut, or the cut is not reached yet.
        ConsumerExpired
            Its hold has ended in a shard.
        Unavailable, OutcomeUnknown
            It is not moved, or may be moved; try again.
        """
        deadline, at = time.monotonic() + timeout_s, self._consumer_name(check_consumer_name(name))
        cut = parse_cut(self.cut_at(index))
        for _ in range(TRIES_MAX):
            found = self._consumer(name)
            self._check_move(found, cut, left_s(deadline))
            places: Mapping[str, int] = dict(found.shards)
            shards = self._shards_now()
            if found.cut != str(cut) or not places.keys() >= {each.name for each in shards}:
                places = self._positions(str(cut), shards, deadline)
            outcome = self._catalog.run(move_cut_consumer(at, cut, places))
            match outcome:
                case HoldOver(value, shard, why):
                    raise expired_error(
                        self.name, name, value.cut, f"in shard {shard}: {why}", datetime.now().astimezone()
                    )
                case _ if outcome is SHARDS_CHANGED:
                    continue
            moved = told_of("consumer", outcome, "")
            if moved is None:
                self._consumer(name)
            elif parse_cut(moved.cut).zxid > cut.zxid:
                raise self._moved_back(name, moved.cut, cut)
            return
        told_of("consumer", SHARDS_CHANGED, "")

    @override
    def drop_consumer(self, name: str, *, timeout_s: float = COMMAND_S) -> None:
        """Drop a consumer in all shards at once; also what was left of one that was cut off while it was made.

        Parameters and errors as of `Table.drop_consumer`.

        Raises
        ------
        OutcomeUnknown
            It may be dropped; try again.
        """
        del timeout_s
        names = [shard.name for shard in self._shards_now()]
        dropped = self._catalog.run(delete_named_cut(self._consumer_name(check_consumer_name(name)), names))
        if told_of("consumer", dropped, "") is None:
            raise BadInput(
                f"table {self.name} has no consumer {name!r}; it has {', '.join(self._consumer_names()) or 'none'}"
            )

    @override
    def tagged(self, cut: str) -> Sequence[tuple[ShardTable, int]] | None:
        kept = super().tagged(cut)
        if kept is not None:
            return kept
        held = next((each for each in self.consumers() if each.snapshot == cut and not each.expired), None)
        return None if held is None else [(self._shard(shard_number(shard)), index) for shard, index in held.shards]

    @override
    def _unread_from(self, consumer: str) -> str:
        found = self._consumer(consumer)
        if found.expired:
            raise expired_error(self.name, consumer, found.cut, found.expired, found.time)
        if found.snapshot is not None:
            raise BadInput(
                f"consumer {consumer} begins with a snapshot that it has not read: read the table as_of={found.snapshot!r}, and"
                " move it to that cut"
            )
        return found.cut

    @override
    def _held_at(self, cut: str) -> Mapping[str, int]:
        held = (each for each in self.consumers() if each.cut == cut and not each.expired)
        return {shard: index for each in held for shard, index in each.shards}

    def _shards_now(self) -> Sequence[ShardTable]:
        """Return the shards in the map as it is now."""
        self.refresh()
        return self.find(None).all

    def _cut_of_start(self, start: AsOf, timeout_s: float) -> str:
        """Return the cut at which a consumer begins."""
        if start == "earliest":
            return self.feed_from(timeout_s=timeout_s)
        return self.cut_now("linearizable", timeout_s=timeout_s) if start == "latest" else self.cut_at(start)

    def _positions(self, cut: str, shards: Sequence[ShardTable], deadline: float) -> Mapping[str, int]:
        """Return where a cut lies in the log of each shard."""
        held = self._held_at(cut)

        def ask(shard: ShardTable) -> int:
            return shard.feed_positions((cut,), max(1.0, left_s(deadline))).positions[0]

        asked = [each for each in shards if each.name not in held]
        told = dict(zip((each.name for each in asked), self._beside.each(ask, asked), strict=True))
        return {each.name: held[each.name] if each.name in held else told[each.name] for each in shards}

    def _check_move(self, found: CutConsumer, cut: Cut, timeout_s: float) -> None:
        """Refuse a move that certainly can't be."""
        stands = parse_cut(found.cut)
        if stands.ensemble != cut.ensemble:
            raise SnapshotExpired(
                f"consumer {found.name} stands at {stands}, and {cut} is of another ensemble of coordination, which was set up"
                " anew. Drop the consumer, and create it again with 'snapshot'"
            )
        if stands.zxid > cut.zxid:
            raise self._moved_back(found.name, found.cut, cut)
        if not any(cut.zxid <= parse_cut(self.cut_now(level, timeout_s=timeout_s)).zxid for level in LEVELS):
            raise BadInput(f"consumer {found.name} was not moved to {cut}: table {self.name} has not come so far")

    @staticmethod
    def _moved_back(name: str, stands: str, cut: Cut) -> BadInput:
        return BadInput(
            f"consumer {name} stands at {stands} and was not moved back to {cut}: what is up to {stands} may be gone. Another"
            " reader may use its name"
        )

    def _consumer_name(self, name: str) -> CutName[CutConsumerValue]:
        return CutName(CUT_CONSUMERS, self._catalog.root, self.name, name)

    def _consumer_names(self) -> tuple[str, ...]:
        """Return the names of all consumers.  Raises TableNotFound when there is no such table."""
        parent = layout.consumers(self._place)
        self._catalog.perform(fx.Sync(parent))
        names: tuple[str, ...] = self._catalog.perform(fx.Children(parent)) or ()
        if not names:
            read_map(self._catalog, self.name)
        return tuple(sorted(names))

    @override
    def _consumer(self, name: str) -> CutConsumer:  # type: ignore[override]
        """Return a consumer.  Raises BadInput when there is none."""
        found = self._find_consumer(check_consumer_name(name))
        if found is None:
            read_map(self._catalog, self.name)
            raise BadInput(f"table {self.name} has no consumer {name!r}: make it first (table.create_consumer)")
        return found

    def _find_consumer(self, name: str) -> CutConsumer | None:
        at = self._consumer_name(name)
        self._catalog.perform(fx.Sync(at.parent))
        node = self._catalog.perform(fx.Get(at.path))
        if node is None:
            return None
        value, ended = decode_cut_consumer(node.value, at.path), ""
        changed_ms, indexes = node.changed_ms, {each.shard: each.index for each in value.shards}
        shards = sorted({*indexes, *(each.name for each in self.find(None).all)}, key=shard_number)
        nodes = self._catalog.perform(fx.GetMany(tuple(at.of_shard(shard)[1] for shard in shards))).nodes
        for shard, its in zip(shards, nodes, strict=True):
            held = None if its is None else decode_consumer(its.value, at.of_shard(shard)[1])
            if held is None or held.id != value.id:
                # A shard that has come a moment ago, perhaps; or the consumer is being moved, or dropped and made anew.
                continue
            indexes.setdefault(shard, held.index)
            if held.expired and not ended:
                ended, changed_ms = f"in shard {shard} {held.expired}", its.changed_ms
        return CutConsumer(
            name=name,
            cut=value.cut,
            time=as_time(changed_ms),
            hold_s=value.hold_s,
            bytes_max=value.bytes_max,
            snapshot=value.cut if value.snapshot else None,
            expired=ended,
            shards=tuple((shard, indexes[shard]) for shard in shards if shard in indexes),
        )


__all__ = ["CutConsumer", "ShardedConsumerTable"]
