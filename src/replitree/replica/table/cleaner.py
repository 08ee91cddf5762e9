"""The cleaner's thread: it keeps the log short, and forgets deduplication ids that are too many or too old, and old streams.

A shard also forgets the tokens of its sharded table, if it is the one to do that for all shards.

The leader cleans.  If no replica stands for leader, because merges are paused everywhere or each replica waits for results
of others, any replica does.  Two at once are safe, so nothing depends on knowing that for sure.  Pauses are jittered: replicas
that were started together do not clean together.

What a turn does, and in which order, is decided by the stages of `replitree.protocol.program.cleaner`.
"""

from __future__ import annotations

import random
import threading
import time

from replitree.errors import ReplitreeError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import BlockId, Children, Epoch
from replitree.protocol.program import cleaner
from replitree.protocol.program.sharded import token_cleaner
from replitree.protocol.program.stages import End, Then
from replitree.protocol.upkeep.clean_blocks import Block, BlocksCleaned, Window
from replitree.protocol.upkeep.clean_log import Cleaned, Keep
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.leader import Leader


class Cleaner:
    """Cleans now and then, while this replica is the one to do it."""

    def __init__(self, context: TableContext, availability: Availability, leader: Leader) -> None:
        self._context, self._availability, self._leader = context, availability, leader
        self._wake = threading.Event()
        self._known: tuple[tuple[BlockId, Block], ...] = ()
        self._known_tokens: tuple[tuple[BlockId, Block], ...] = ()
        self.first: int | None = None
        config = context.config
        self._keep = Keep(config.min_replicated_logs_to_keep, config.max_replicated_logs_to_keep)
        self._window = Window(config.deduplication_window, round(config.deduplication_window_s * 1000))
        self._retention_ms = round(config.stream_retention_s * 1000)
        self._thread = threading.Thread(target=self._run, name=f"clean-{context.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Clean now, if it is this replica's turn."""
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        config = self._context.config
        while not self._availability.is_stopping():
            jitter = random.uniform(0.0, config.clean_log_delay_random_s)  # noqa: S311 - not a secret
            self._wake.wait(config.clean_log_delay_s + jitter)
            self._wake.clear()
            if self._availability.is_stopping():
                return
            try:
                self.turn()
            except ReplitreeError as error:
                self._context.log.warning("cleaner", problem=str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the replica live
                self._context.log.defect("cleaner failed")

    def turn(self) -> bool:
        """Clean once, if it is this replica's turn; say whether it was.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had.
        """
        epoch = self._availability.active_epoch()
        if epoch is None:
            return False
        if self._leader.leader is not None:
            is_due = self._leader.is_leading
        else:
            # This replica does not know who leads; when no replica stands for election, the log would grow without an end.
            election = layout.leader_election(self._context.replica.table)
            is_due = not self._context.performer.perform(Children(election))
        if is_due:
            self.clean(epoch)
        return is_due

    def clean(self, epoch: Epoch) -> None:
        """Clean the deduplication ids and the log."""
        driver, replica = Driver(self._context.performer, lambda _: epoch), self._context.replica
        then = driver.run(Then(cleaner.clean_ids, (replica, self._window, self._keep, self._known)))
        assert isinstance(then, Then), "the log is cleaned after the ids"
        assert isinstance(then.outcome, BlocksCleaned), "the first stage finds out which ids are left"
        ids, metrics, log, name = then.outcome, self._context.metrics, self._context.log, replica.table.name
        self._known = tuple(ids.blocks.items())
        if ids.removed or ids.notes:
            metrics.cleaned_blocks.labels(name).inc(ids.removed)
            log.info("block ids cleaned", removed=ids.removed, left=len(ids.blocks), drops=len(ids.notes))
        # The newest id tells the present, too: a table with one stream forgets it while others insert.
        now_ms = max((each.changed_ms for _, each in self._known), default=0)
        streams = driver.run(Then(cleaner.clean_streams, (replica, self._retention_ms, now_ms)))
        assert isinstance(streams, End), "streams are forgotten in one stage"
        if streams.outcome:
            log.info("streams forgotten", streams=list(streams.outcome))
        self._clean_tokens(driver)
        begun = time.monotonic()
        ended = driver.run(then)
        assert isinstance(ended, End), "a turn of the cleaner ends with the log"
        outcome, seconds = ended.outcome, round(time.monotonic() - begun, 3)
        if outcome.lost:
            metrics.marked_lost.labels(name).inc(len(outcome.lost))
            log.warning("replicas marked lost", replicas=list(outcome.lost), keep=self._keep.at_most)
        if not isinstance(outcome, Cleaned):
            log.info("log not cleaned", reason="replicas or the log have changed meanwhile")
            return
        self.first = outcome.first
        place = self._context.progress.place
        if place is not None:
            metrics.log_entries.labels(name).set(max(0, place.pointer.index - outcome.first))
        if outcome.removed:
            metrics.cleaned.labels(name).inc(outcome.removed)
            log.info("log cleaned", removed=outcome.removed, first=outcome.first, seconds=seconds)

    def _clean_tokens(self, driver: Driver) -> None:
        """Clean the tokens of the sharded table that this one is a shard of, if it is one."""
        replica = self._context.replica
        if "~" not in replica.table.name:
            return
        ended = driver.run(Then(token_cleaner.clean_joint_tokens, (replica, self._window, self._known_tokens)))
        assert isinstance(ended, End), "tokens are forgotten in one stage"
        assert isinstance(ended.outcome, BlocksCleaned)
        self._known_tokens = tuple(ended.outcome.blocks.items())
        if ended.outcome.removed:
            removed, left = ended.outcome.removed, len(ended.outcome.blocks)
            self._context.log.info("tokens of joint inserts cleaned", removed=removed, left=left)
