"""The consumer of a stream: what the stream has not read is kept for it, through pauses that are longer than the feed.

The stream makes the consumer when it begins, and moves it when Spark has finished a batch.  Spark says that of a batch when the
next one is planned; while nothing comes, the stream sees by itself that the last one is finished.

A position is an index of the log, or a cut of a sharded table.

Guarantee: the consumer never stands above what the checkpoint can ask for again.  One that does was moved by another query, and
the stream is refused at its start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replitree.client.read.consumers import Consumer
from replitree.client.sharded.feed.consumer_table import CutConsumer
from replitree.errors import BadInput, ReplitreeError
from replitree.protocol.sharded.cut import parse_cut
from replitree.wire.feed_errors import ConsumerExpired

if TYPE_CHECKING:
    from replitree.client.table import Table

MOVE_S = 1.0
"""How often a consumer is moved at most, in seconds."""

_log = logging.getLogger(__name__)


class StreamConsumer:
    """The consumer of one query.  One thread uses it.

    Parameters
    ----------
    name
        Its name.
    table
        The table that the stream reads.
    timeout_s
        How long to wait for replicas, in seconds.
    """

    def __init__(self, name: str, table: Table, timeout_s: float) -> None:
        self._name, self._table, self._timeout_s = name, table, timeout_s
        self._position: int | str | None = None
        self._moved_at = float("-inf")
        self.is_checked = False
        """Whether it is known to agree with the checkpoint."""

    def find(self) -> Consumer | CutConsumer | None:
        """Return the consumer as it is now; None: there is none.

        Raises
        ------
        ConsumerExpired
            Its hold has ended.
        """
        all_of_them: Sequence[Consumer | CutConsumer] = self._table.consumers()
        found = next((each for each in all_of_them if each.name == self._name), None)
        if found is not None and found.expired:
            raise ConsumerExpired(
                f"the hold of consumer {self._name} of table {self._table.name} ended at {found.time:%Y-%m-%d %H:%M:%S} UTC,"
                f" where it stood at {found.position}, because {found.expired}. What the stream has not read may be gone: drop"
                " the consumer (replitree consumers drop), and begin with a new checkpoint and a new target; or go on without"
                " it, by leaving the option consumer out",
                number_of(found.position),
            )
        return found

    def make(self, position: int | str | None) -> Any:
        """Make the consumer, which begins at a position, or with a snapshot; return where it stands.

        Raises
        ------
        ReplitreeError
            It is not made, or may be.
        """
        start = "snapshot" if position is None else position
        made: Consumer | CutConsumer = self._table.create_consumer(self._name, start, timeout_s=self._timeout_s)
        # A move to its own index says that the snapshot was read.
        self.is_checked, self._position = True, None if position is None else made.position
        return made.position

    def check(self, position: int | str) -> None:
        """When the query starts, see that the consumer holds what the checkpoint may ask for; make it when there is none.

        Parameters
        ----------
        position
            Where the next batch of the checkpoint begins.

        Raises
        ------
        BadInput
            The consumer stands above it.
        ConsumerExpired, OffsetExpired
            Its hold has ended; there is none, and the feed is not kept from there on.
        """
        found = self.find()
        if found is None:
            self.make(position)
            return
        if number_of(found.position) > number_of(position):
            raise BadInput(
                f"the checkpoint of the stream stands at {position} in the log of table {self._table.name}, and its consumer"
                f" {self._name} at {found.position}: another query has moved it, and what is up to there may be gone."
                " Give each query a consumer of its own; or begin with a new checkpoint, at the consumer's place"
            )
        self.is_checked = True

    def move(self, position: int | str) -> None:
        """Say that everything up to a position was read, now and then; a failure is logged only."""
        now = time.monotonic()
        if position == self._position or now < self._moved_at + MOVE_S:
            return
        self._moved_at = now
        try:
            to: Any = position
            self._table.move_consumer(self._name, to, timeout_s=self._timeout_s)
        except ReplitreeError as error:
            _log.warning("consumer %s was not moved to %s: %s", self._name, position, error)
            return
        self._position = position


def number_of(position: int | str) -> int:
    """Return what positions of one table are compared by.

    >>> number_of(41), number_of("5f0c@41")
    (41, 41)
    """
    return position if isinstance(position, int) else parse_cut(position).zxid


__all__ = ["StreamConsumer", "number_of"]
