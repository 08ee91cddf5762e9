"""A long life: how fast a long log is pulled and cleaned, and how soon a replica that was given up is equal again.

Keys::

    pull_entries_per_s     entries that a replica copies from the log into its queue, each an insert of one part
    clean_s                seconds to mark a replica lost that is `ENTRIES` behind, and to remove the entries
    clean_requests         requests to ZooKeeper for that
    recovery_s             seconds from the start of the lost replica's process until both show the same rows
    fetch_…, copy_s        see `replitree_bench.table.copying`

The first three run the protocol's procedures against the ZooKeeper, without replica processes.  The fourth one is a cluster: a
million rows on two replicas; one is killed, `BLOCKS` blocks of 1,000 rows make the log outrun it, three million rows are
inserted twice, and it is started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

from replitree.coordination.port import Coordination, make_root
from replitree.errors import ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.membership.activate import Activated, activate
from replitree.protocol.membership.table import NOT_LOST, TableOutcome, create_table, join_table
from replitree.protocol.state.start import CaughtUp, catch_up
from replitree.protocol.upkeep.clean_log import Cleaned, Keep, clean_log
from replitree.replica.perform.runner import Performer
from replitree_bench.kit.report import Measured

ENTRIES = 100_000
KEEP = Keep(100, 1000)
APPEND = 500
"""Entries appended in one commit."""

BLOCKS = 200
BLOCK_ROWS = 1000
FIRST_ROWS = 1_000_000
LATE_ROWS = 3_000_000
LOST_S_MAX = 60.0

Say = Callable[[str], None]
_numbers = count()


def measure_log(session: Coordination, root: str, say: Say, entries: int = ENTRIES) -> Measured:
    """Measure pulling and cleaning.

    Parameters
    ----------
    session
        With the ZooKeeper; nobody else uses it meanwhile, so that its requests can be counted.
    root
        A node of ours below which the table of the measurement goes.
    entries
        How long the log is.
    """
    table = TablePlace(f"{root}/bench/long-{time.time_ns():x}-{next(_numbers)}")
    make_root(session, table.path.rpartition("/")[0])
    performer = Performer(lambda: session, _no_store, lambda *_: None)
    first, second = Replica(table, "r1"), Replica(table, "r2")
    for outcome in (create_table(table, b"", b""), join_table(first), join_table(second)):
        assert performer.run(outcome) is TableOutcome.DONE
    epoch = _activated(performer.run(activate(first, b"bench")))
    say(f"appending {entries:,} entries")
    _append(session, table, entries)
    say("pulling them")
    pulled_s = _timed(performer, catch_up(first, epoch), CaughtUp)
    assert len(session.perform(fx.Children(layout.queue(first))) or ()) == entries
    say("cleaning the log")
    before = sum(session.requests.values())
    begin = time.perf_counter()
    cleaned = performer.run(clean_log(first, epoch, KEEP))
    seconds = time.perf_counter() - begin
    if not isinstance(cleaned, Cleaned) or cleaned.lost != ("r2",) or cleaned.removed != entries - KEEP.at_least:
        raise ReplitreeError(f"the log was not cleaned as expected: {cleaned}")
    requests = sum(session.requests.values()) - before
    _empty(session, layout.queue(first))  # what is left of it would burden the next round's ZooKeeper
    return {"pull_entries_per_s": entries / pulled_s, "clean_s": seconds, "clean_requests": float(requests)}


def _timed(performer: Performer, procedure: fx.Procedure[object], expected: type) -> float:
    begin = time.perf_counter()
    outcome = performer.run(procedure)
    if not isinstance(outcome, expected):
        raise ReplitreeError(f"expected {expected.__name__}, not {outcome}")
    return time.perf_counter() - begin


def _append(session: Coordination, table: TablePlace, entries: int) -> None:
    """Append inserts, each of one part."""
    for first in range(0, entries, APPEND):
        creates = (
            fx.Create(layout.log_create(table), encode_entry(_entry(index)), sequential=True)
            for index in range(first, min(first + APPEND, entries))
        )
        if not isinstance(session.perform(fx.Commit(*creates)), fx.Applied):
            raise ReplitreeError("entries could not be appended")


def _empty(session: Coordination, parent: str) -> None:
    names = session.perform(fx.Children(parent)) or ()
    for first in range(0, len(names), APPEND):
        session.perform(
            fx.Commit(*(fx.Delete(f"{parent}/{name}", fx.ANY_VERSION) for name in names[first : first + APPEND]))
        )


def _entry(index: int) -> GetEntry:
    part = fx.StagedPart(f"2018-{index % 12 + 1:02d}", 100, 4000, f"{index:032x}")
    return GetEntry("r2", fx.StagingId(f"s-{index}"), (part,), (), 1)


def _activated(outcome: object) -> fx.Epoch:
    if not isinstance(outcome, Activated):
        raise ReplitreeError(f"the replica could not be activated: {outcome}")
    return outcome.epoch


def _no_store(effect: fx.StoreEffect | fx.ProbeOwner) -> object:
    raise AssertionError(f"{effect} has nothing to do with a log")


class Recovering(Protocol):
    """What the measurement of a recovery asks of a system: two replicas, of which the second is killed and started."""

    def create(self, table: str) -> None:
        """Make an empty table on both replicas that keeps few log entries; later calls mean this one."""

    def load(self, first: int, rows: int) -> None:
        """Insert `rows` rows with the keys from `first` on at replica 1, in one statement."""

    def wait_equal(self) -> float:
        """Wait until both replicas show the same rows; return the seconds."""

    def kill_second(self) -> None:
        """Kill replica 2 (SIGKILL)."""

    def start_second(self) -> None:
        """Start replica 2 again; return as soon as its process answers."""

    def is_second_lost(self) -> bool:
        """Whether replica 2 is marked lost."""


def measure_recovery(system: Recovering, number: int) -> Measured:
    """Let a replica fall behind what the log keeps, and measure how long it takes until it is equal again."""
    system.create(f"lost_{number}")
    system.load(0, FIRST_ROWS)
    system.wait_equal()
    system.kill_second()
    for block in range(BLOCKS):
        system.load(2 * FIRST_ROWS + block * BLOCK_ROWS, BLOCK_ROWS)
    wait_lost(system)
    for late in range(2):
        system.load(10 * FIRST_ROWS + late * LATE_ROWS, LATE_ROWS)
    begin = time.perf_counter()
    system.start_second()
    started = time.perf_counter() - begin
    system.wait_equal()
    return {"restart_s": started, "recovery_s": time.perf_counter() - begin}


def wait_lost(system: Recovering) -> None:
    """Wait until replica 2 is marked lost.

    Raises
    ------
    ReplitreeError
        It was not in `LOST_S_MAX`.
    """
    deadline = time.monotonic() + LOST_S_MAX
    while not system.is_second_lost():
        if time.monotonic() > deadline:
            raise ReplitreeError(f"replica 2 was not marked lost in {LOST_S_MAX:.0f} s")
        time.sleep(0.1)


def is_marked_lost(session: Coordination, table: TablePlace, name: str) -> bool:
    """Return whether a replica of ours is marked lost."""
    node = session.perform(fx.Get(layout.is_lost(Replica(table, name))))
    return node is not None and node.value != NOT_LOST
