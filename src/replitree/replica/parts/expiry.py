"""Expiry: the leader removes the rows of a table whose time is over, as the table's `ttl` says.

A table with ``ttl = "at + 90 days"`` loses the rows whose `at` is more than 90 days ago.  The replica that leads computes a
*bound* from its own clock::

    bound = (now - MARGIN_S - 90 days), rounded down to a multiple of `ttl_interval_s`, of a date column to whole days

and removes what is below it, by ordinary commands, which every replica executes alike:

1. Partitions whose *values* prove that every row that can ever be in them is below the bound: one drop each, at most
   `DROPS_MAX` at a look.  A partition whose rows are only known from the parts that are there is not dropped: an insert of
   newer rows may come into the log before the drop, and would be lost.
2. Rows elsewhere: one mutation ``DELETE WHERE at < bound``, if the bounds of some part allow such a row.

Guarantees: no row is removed whose value is not below a bound that the leader's clock gave; a row with null stays.  A bound is
worked at once: the ids of the commands are made of it, so a later leader, a repetition after a lost answer, and the leaders of
the other shards of a sharded table put nothing into the logs a second time.  While the last command is not executed here, no
other is given: removals can't pile up.

Nothing depends on there being one leader.  Two leaders with clocks that differ give two bounds, and the rows below either go.

Absent on purpose: any promise when rows go; and readers that hide what is past the bound before it is removed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from replitree.errors import BadInput, CorruptPart, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.replica.parts.commands import Appended, Commands, DropWish, MutationWish
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.storage.files.names import format_name
from replitree.storage.schema.definition import check_new
from replitree.storage.schema.retention import DAY_S, RowTtl, parse_ttl
from replitree.storage.schema.type_kinds import kind_of

if TYPE_CHECKING:
    from replitree.storage.parts.manifest import PartManifest
    from replitree.storage.schema.definition import TableDefinition

T = TypeVar("T")

MARGIN_S = 300
"""Seconds by which the leader's clock may be ahead without any row going too early."""

LOOK_S = 10.0
"""How often it is looked whether there is something to do, in seconds."""

DROPS_MAX = 100
"""Partitions that are dropped at one look: each is an entry of the log."""

NAMED_MAX = 20
"""Partitions that a status names."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What is to be removed below one bound.

    Attributes
    ----------
    bound_s
        Seconds since 1970.
    where
        The condition of a row that is below the bound.
    partitions
        Those of which every row goes, by id.
    dropped_rows
        How many rows the parts there have.
    parts
        How many parts elsewhere may have rows that go.
    unread
        How many parts could not be judged: they are not whole here.
    """

    bound_s: int
    where: str
    partitions: tuple[str, ...] = ()
    dropped_rows: int = 0
    parts: int = 0
    unread: int = 0

    def summary(self, partitions_max: int | None = None) -> dict[str, object]:
        """Return it as JSON, with so many of the partitions' names; None: with all."""
        return {
            "bound": _time(self.bound_s),
            "where": self.where,
            "partitions": list(self.partitions[:partitions_max]),
            "partitions_dropped": len(self.partitions),
            "rows_dropped": self.dropped_rows,
            "parts_touched": self.parts,
            "unread": self.unread,
        }


def bound_of(ttl: RowTtl, type_text: str, now_s: float, interval_s: int) -> int:
    """Return the bound below which rows go, in seconds since 1970.

    Parameters
    ----------
    type_text
        Type of the column.
    now_s
        The clock, in seconds since 1970.
    interval_s
        What it is rounded down to.

    Examples
    --------
    >>> bound_of(RowTtl("at", "1h"), "timestamp[us,UTC]", 1_000_000.0, 3600)
    993600
    >>> bound_of(RowTtl("day", "1d"), "date", 1_000_000.0, 3600)
    864000
    """
    bound = int((now_s - MARGIN_S - ttl.seconds) // interval_s * interval_s)
    return bound // DAY_S * DAY_S if kind_of(type_text) == "date" else bound


def plan_expiry(definition: TableDefinition, ttl: RowTtl, bound_s: int, parts: Iterable[PartManifest]) -> ExpiryPlan:
    """Say what is to be removed of the parts with these manifests."""
    from replitree.storage.parts.partition_bounds import bounds_manifest
    from replitree.storage.sql.mutation import check_mutation, delete_where

    is_date = kind_of(definition.column(ttl.column).type) == "date"
    literal = f"DATE '{_time(bound_s)[:10]}'" if is_date else f"TIMESTAMP '{_time(bound_s)[:-1].replace('T', ' ')}'"
    where = f"{format_name(ttl.column)} < {literal}"
    bound = bound_s // DAY_S if is_date else bound_s * 1_000_000
    predicate = check_mutation(delete_where(where, definition), definition).predicate
    ends, rows, touched = dict[str, bool](), 0, 0
    for part in parts:
        if part.partition not in ends:
            # The bounds of the partition, not of its parts: they hold for the rows of any insert that is on its way, too.
            of_all = bounds_manifest(definition, part.partition, part.partition_values).columns.get(ttl.column)
            high = None if of_all is None else of_all.max
            ends[part.partition] = isinstance(high, int) and high < bound
        if ends[part.partition]:
            rows += part.rows
        elif part.rows and predicate.may_match(part):
            touched += 1
    gone = tuple(sorted(partition for partition, is_over in ends.items() if is_over))
    return ExpiryPlan(bound_s, where, gone, rows, touched)


class Expiry:
    """Removes the rows of one table whose time is over, while this replica leads.

    Parameters
    ----------
    leader
        Which replica leads, as far as this one knows.
    commands
        Appends the drops and the mutation.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        leader: Callable[[], str | None],
        commands: Commands,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._context, self._parts, self._availability = context, parts, availability
        self._leader, self._commands, self.clock = leader, commands, clock
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._done: tuple[RowTtl, int] | None = None
        self._given: fx.LogIndex | None = None
        self._last: dict[str, object] | None = None
        self._idle = self._fault = ""
        self._thread = threading.Thread(target=self._run, name=f"expire-{context.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    def status(self) -> dict[str, object] | None:
        """Return what was removed last, and why nothing is; None for a table whose rows stay."""
        ttl = self._context.definitions.current.ttl
        if ttl is None:
            return None
        return {
            "ttl": ttl.text,
            "interval_s": self._interval_s,
            "reason": self._idle or self._fault,
            "last": self._last,
        }

    def plan(self, text: str) -> ExpiryPlan:
        """Say what would be removed now if the table had this `ttl`; nothing is changed.

        Raises
        ------
        BadInput
            The table can't have it.
        """
        ttl = parse_ttl(text)
        if ttl is None:
            raise BadInput("rows are never removed without a ttl: say one, as in 'at + 90 days'")
        return self._plan(check_new(replace(self._context.definitions.refresh(), ttl=ttl)), ttl)

    def look(self) -> None:
        """Do what there is to do now."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        definition = self._context.definitions.current
        if definition.ttl is None:
            self._done = None
            return
        self._idle = self._why_idle()
        if self._idle or self._done == (definition.ttl, self._bound(definition, definition.ttl)):
            return
        self._fault = ""
        try:
            self._work()
        except ReplitreeError as error:
            # The next look gives the same command with the same id, also after `OutcomeUnknown`.
            self._fault = str(error)

    def _run(self) -> None:
        while not self._availability.is_stopping():
            self._wake.wait(LOOK_S)
            self._wake.clear()
            if self._availability.is_stopping():
                return
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the replica live
                self._fault = "the removal of rows failed; the log of this server has the reason"
                self._context.log.defect("removing rows past their ttl failed")

    @property
    def _interval_s(self) -> int:
        return self._context.config.ttl_interval_s

    def _why_idle(self) -> str:
        """Say why this replica removes nothing now; empty: it may."""
        leader, me = self._leader(), self._context.replica.name
        if not self._interval_s:
            return "ttl_interval_s is 0 on this server"
        if leader != me:
            return (
                f"{leader} leads, and removes them" if leader else "no replica is known to lead: merges may be paused"
            )
        if self._availability.active_epoch() is None:
            return self._availability.reason or "this replica is not active"
        if self._given is not None and self._context.progress.index <= self._given:
            return (
                f"the last removal, at log index {self._given}, is not executed here yet (`replitree table mutations`)"
            )
        return ""

    def _bound(self, definition: TableDefinition, ttl: RowTtl) -> int:
        # A server that never removes rows still says what another one would remove.
        return bound_of(ttl, definition.column(ttl.column).type, self.clock(), self._interval_s or 1)

    def _plan(self, definition: TableDefinition, ttl: RowTtl) -> ExpiryPlan:
        found, unread = list["PartManifest"](), 0
        for part in self._parts.progress.visible()[1]:
            try:
                found.append(self._parts.store.manifest(part))
            except CorruptPart:
                # It is fetched again; its rows go in a later round.
                unread += 1
        return replace(plan_expiry(definition, ttl, self._bound(definition, ttl), found), unread=unread)

    def _work(self) -> None:
        """Remove what is below the bound."""
        context = self._context
        # An operator may have changed the ttl a moment ago: this read is not older than this moment.
        context.performer.perform(fx.Sync(layout.metadata(context.replica.table)))
        definition = context.definitions.refresh()
        ttl = definition.ttl
        if ttl is None:
            return
        plan = self._plan(definition, ttl)
        # With the column's id: another column's ttl may give the same bound.
        command = f"ttl-{plan.bound_s}-{definition.column(ttl.column).id}"
        now = plan.partitions[:DROPS_MAX]
        for partition in now:
            self._give(self._commands.drop, DropWish(partition), f"{command}-{partition}")
        if len(now) == len(plan.partitions):
            if plan.parts:
                self._give(self._commands.mutate, MutationWish(kind="delete", where=plan.where), command)
            self._done = (ttl, plan.bound_s)
        if plan.partitions or plan.parts or self._last is None:
            self._last = {"at": _time(int(self.clock())), **plan.summary(NAMED_MAX), "index": self._given}
        if plan.partitions or plan.parts:
            context.log.info(
                "rows past their ttl are removed",
                ttl=ttl.text,
                partitions=list(now),
                where=plan.where,
                parts=plan.parts,
            )

    def _give(self, append: Callable[[T, str], Appended], wish: T, command: str) -> None:
        """Append a command, unless it is in the log."""
        try:
            given = append(wish, command)
        except BadInput as error:
            # As a rule: it was done so long ago that its entry is gone.  A real fault comes again at the next bound.
            self._context.log.warning("rows past their ttl were not removed", command=command, reason=str(error))
            self._fault = str(error)
            return
        self._given = given.index


def _time(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat().removesuffix("+00:00") + "Z"


__all__ = ["Expiry", "ExpiryPlan", "bound_of", "plan_expiry"]
