"""What one process remembers, as a value; a crash loses all of it.

The fields and what changes them mirror the running replica: `replica.runner.EpochHolder`, `replica.progress.Progress`, the
state and the trouble flag of `replica.table_replica.TableReplica`, and the held staging ids of
`replica.store_performer.StorePerformer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from replitree.protocol.effects import Epoch, LogIndex, StagingId
from replitree.protocol.entries import part_names
from replitree.protocol.pull import Pointer, Queued


class State(Enum):
    """What a process is able to do."""

    OFF = "off"
    STARTING = "starting"
    ACTIVE = "active"
    READ_ONLY = "read only"
    STOPPED = "stopped"
    HALTED = "halted"


RUNNING = (State.STARTING, State.ACTIVE, State.READ_ONLY)


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one process.

    Attributes
    ----------
    incarnation, session
        Which process of its seat this is, and its present session with coordination.
    epoch
        The highest epoch that it adopted.
    state, trouble, reload
        What it can do; whether it must activate again; whether its puller must read the queue again.
    pointer, queue, waiting
        Where it believes to stand in the log, its queue, and the entries of the queue that were postponed.
    revealed
        The parts that its reads show, ascending.
    held
        The staging ids of its running inserts.
    lacking
        The registered parts, with their content hashes, that are not whole on disk and must be fetched again.
    """

    incarnation: int
    session: int
    epoch: Epoch | None = None
    state: State = State.STARTING
    trouble: bool = False
    reload: bool = False
    pointer: Pointer | None = None
    queue: tuple[Queued, ...] = ()
    waiting: tuple[LogIndex, ...] = ()
    revealed: tuple[str, ...] = ()
    held: tuple[StagingId, ...] = ()
    lacking: tuple[tuple[str, str], ...] = ()

    @property
    def running(self) -> bool:
        """Whether the process is there and has not stopped."""
        return self.state in RUNNING

    def with_trouble(self) -> Memory:
        """Something went wrong: read-only at once, until it has activated again."""
        if not self.running:
            return self
        state = State.READ_ONLY if self.state is State.ACTIVE else self.state
        return replace(self, trouble=True, state=state)

    def adopting(self, epoch: Epoch) -> Memory:
        """Take an epoch unless a higher one is known."""
        return self if self.epoch is not None and self.epoch >= epoch else replace(self, epoch=epoch)

    def revealing(self, parts: tuple[str, ...]) -> Memory:
        """Make parts visible."""
        return replace(self, revealed=tuple(sorted({*self.revealed, *parts}))) if parts else self

    def hiding(self, part: str) -> Memory:
        """Make a part invisible: it is broken."""
        return replace(self, revealed=tuple(name for name in self.revealed if name != part))

    def reloaded(self, pointer: Pointer, queue: tuple[Queued, ...]) -> tuple[Memory, tuple[str, ...]]:
        """Take over pointer and queue as coordination has them, unless another thread knows newer ones by now.

        Returns
        -------
        tuple
            The memory after it, and the parts of the entries that left the queue unnoticed.
        """
        if self.pointer is not None and self.pointer.version > pointer.version:
            return self, ()
        now = {item.index for item in queue}
        gone = tuple(
            name for item in self.queue if item.index not in now for _, name in part_names(item.entry, item.index)
        )
        waiting = tuple(index for index in self.waiting if index in now)
        return replace(self, pointer=pointer, queue=queue, waiting=waiting), gone

    def pulled(self, pointer: Pointer, entries: tuple[Queued, ...]) -> Memory:
        """Take over what a pull brought."""
        queue = {item.index: item for item in (*self.queue, *entries)}
        return replace(self, pointer=pointer, queue=tuple(queue[index] for index in sorted(queue)))

    def executed(self, done: tuple[LogIndex, ...], postponed: tuple[LogIndex, ...]) -> Memory:
        """Entries that are done leave the queue, those that were postponed wait."""
        queue = tuple(item for item in self.queue if item.index not in done)
        waiting = tuple(sorted({*self.waiting, *postponed} - {*done}))
        return replace(self, queue=queue, waiting=waiting)
