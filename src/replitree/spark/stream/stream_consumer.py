"""The consumer of a stream: what the stream has not read is kept for it, through pauses that are longer than the feed.

The stream makes the consumer when it begins, and moves it when Spark has finished a batch.  Spark says that of a batch when the
next one is planned; while nothing comes, the stream sees by itself that the last one is finished.

Guarantee: the consumer never stands above what the checkpoint can ask for again.  One that does was moved by another query, and
the stream is refused at its start.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from replitree.client.read.consumers import Consumer
from replitree.errors import BadInput, ReplitreeError
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
        self._index, self._moved_at = -1, float("-inf")
        self.is_checked = False
        """Whether it is known to agree with the checkpoint."""

    def find(self) -> Consumer | None:
        """Return the consumer as it is now; None: there is none.

        Raises
        ------
        ConsumerExpired
            Its hold has ended.
        """
        found = next((each for each in self._table.consumers() if each.name == self._name), None)
        if found is not None and found.expired:
            raise ConsumerExpired(
                f"the hold of consumer {self._name} of table {self._table.name} ended at {found.time:%Y-%m-%d %H:%M:%S} UTC,"
                f" where it stood at {found.index}, because {found.expired}. What the stream has not read may be gone: drop the"
                " consumer (replitree consumers drop), and begin with a new checkpoint and a new target; or go on without it,"
                " by leaving the option consumer out",
                found.index,
            )
        return found

    def make(self, index: int | None) -> int:
        """Make the consumer, which begins at an index, or with a snapshot; return where it stands.

        Raises
        ------
        ReplitreeError
            It is not made, or may be.
        """
        start = "snapshot" if index is None else index
        made = self._table.create_consumer(self._name, start, timeout_s=self._timeout_s)
        # A move to its own index says that the snapshot was read.
        self.is_checked, self._index = True, -1 if index is None else made.index
        return made.index

    def check(self, index: int) -> None:
        """When the query starts, see that the consumer holds what the checkpoint may ask for; make it when there is none.

        Parameters
        ----------
        index
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
            self.make(index)
            return
        if found.index > index:
            raise BadInput(
                f"the checkpoint of the stream stands at {index} in the log of table {self._table.name}, and its consumer"
                f" {self._name} at {found.index}: another query has moved it, and what is below {found.index} may be gone. Give"
                " each query a consumer of its own; or begin with a new checkpoint, at the consumer's place"
            )
        self.is_checked = True

    def move(self, index: int) -> None:
        """Say that everything below an index was read, now and then; a failure is logged only."""
        now = time.monotonic()
        if index == self._index or now < self._moved_at + MOVE_S:
            return
        self._moved_at = now
        try:
            self._table.move_consumer(self._name, index, timeout_s=self._timeout_s)
        except ReplitreeError as error:
            _log.warning("consumer %s was not moved to %d: %s", self._name, index, error)
            return
        self._index = index


__all__ = ["StreamConsumer"]
