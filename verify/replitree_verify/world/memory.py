"""What one process remembers, as a value; a crash loses all of it.

The fields and what changes them mirror the running replica: `replica.perform.runner.EpochHolder`,
`replica.perform.progress.Progress`, the state and the trouble flag of `replica.table.table_replica.TableReplica`, and
the held staging ids of `replica.perform.store_performer.StorePerformer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from replitree.protocol.core.effects import Epoch, LogIndex, StagingId
from replitree.protocol.core.entries import MergeEntry, MutateEntry
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.execute.making import result_of
from replitree.protocol.shares.share import ShareId
from replitree.protocol.state.pull import Loaded, Place, Queued
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, Consumers
from replitree.protocol.upkeep.tags import NO_TAGS, Tags
from replitree_verify.world.moves import MovesKnown


class State(Enum):
    """What a process is able to do."""

    OFF = "off"
    STARTING = "starting"
    ACTIVE = "active"
    READ_ONLY = "read only"
    STOPPED = "stopped"


RUNNING = (State.STARTING, State.ACTIVE, State.READ_ONLY)


@dataclass(frozen=True, slots=True)
class SharesKnown:
    """What a process of a table on an object store knows of shares.

    Attributes
    ----------
    named
        The shares that were given to staged parts and are not put yet: staging id, partition, share.
    new
        The shares that this process writes: not registered yet, as far as it knows.
    count
        How many shares it has named: a name is used once.
    kept
        The numbers of what has left the disk and could not be let go of in this epoch, once for each time.
    incarnation
        Which replica of its name the process is, if not the first one.
    uploads
        What is staged next under an id has the objects of an upload: staging id, share.
    undecided
        The parts that it lacks and that the store may have: it gave no answer when they were looked for.
    """

    named: tuple[tuple[StagingId, str, ShareId], ...] = ()
    new: frozenset[ShareId] = frozenset()
    count: int = 0
    kept: tuple[str, ...] = ()
    incarnation: str = ""
    uploads: tuple[tuple[StagingId, ShareId], ...] = ()
    undecided: tuple[str, ...] = ()

    def put(self, staging: StagingId, *, is_done: bool) -> SharesKnown:
        """Name the shares of a staging id no longer: their objects are there, or it is not known which are.

        In the second case the process forgets them all, and the procedure gives them up.
        """
        named = tuple(each for each in self.named if each[0] == staging)
        left = replace(self, named=tuple(each for each in self.named if each not in named))
        return left if is_done else left.settled(tuple(share for _, _, share in named))

    def settled(self, shares: tuple[ShareId, ...]) -> SharesKnown:
        """Write these shares no more."""
        left = tuple(each for each in self.named if each[2] not in shares)
        return replace(self, named=left, new=self.new.difference(shares))

    def staged(self, staging: StagingId) -> SharesKnown:
        """Write the share of an upload, of which a part is staged."""
        mine = tuple(each for each in self.uploads if each[0] == staging)
        left = tuple(each for each in self.uploads if each not in mine)
        return replace(self, uploads=left, new=self.new.union(share for _, share in mine)) if mine else self


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one process.

    Attributes
    ----------
    incarnation, session
        Which process of its seat this is, and its present session with coordination.
    epoch
        The highest epoch that it adopted.
    state, trouble, reload, missed
        What it can do; whether it must activate again; whether its puller must load the replica's state again; the log entry
        that it could not find.
    loading
        The threads that load the state, no part having been shown or hidden since they began; in models of tables on local
        disks all count as one.
    torn
        Whether what was loaded last was read while a pull in doubt took place.
    place, queue, waiting, running, left
        Where it believes to stand, its queue, and the entries of it that were postponed, that are being executed, and that are
        being executed although they have left the queue already.
    held
        The parts that it believes to have registered.
    staging
        The staging ids of its running inserts and of the results that it is making.
    lacking
        The registered parts, with their content hashes, that are not whole on disk and must be fetched again.
    leads
        Whether it believes that it leads.
    lock
        Of a run of a restore: the replica whose data folder it holds, and the names of the parts that it has found there.
    shares, moves
        What it knows of shares, and of parts that move, if the table lies in an object store.
    paused
        Whether it merges nothing, because an operator said so.
    chosen, leased, tags
        The old parts that it is about to delete, those that it keeps for a tag or a snapshot, and the tags that it read last.
    feed_from, consumers
        From which index on it holds the feed for a consumer that is being made, and the consumers that it read last.
    """

    incarnation: int
    session: int
    epoch: Epoch | None = None
    state: State = State.STARTING
    trouble: bool = False
    reload: bool = False
    missed: LogIndex | None = None
    loading: tuple[str, ...] = ()
    torn: bool = False
    place: Place | None = None
    queue: tuple[Queued, ...] = ()
    waiting: tuple[LogIndex, ...] = ()
    running: tuple[LogIndex, ...] = ()
    left: tuple[LogIndex, ...] = ()
    held: PartSet = PartSet()  # noqa: RUF009 - immutable
    staging: tuple[StagingId, ...] = ()
    lacking: tuple[tuple[str, str], ...] = ()
    leads: bool = False
    lock: tuple[str, tuple[str, ...]] | None = None
    shares: SharesKnown = SharesKnown()
    paused: bool = False
    chosen: tuple[str, ...] = ()
    leased: tuple[str, ...] = ()
    tags: Tags = NO_TAGS
    feed_from: LogIndex | None = None
    consumers: Consumers = NO_CONSUMERS
    moves: MovesKnown = MovesKnown()  # noqa: RUF009 - immutable

    @property
    def is_there(self) -> bool:
        """Whether the process is there and has not stopped."""
        return self.state in RUNNING

    @property
    def visible(self) -> tuple[Part, ...]:
        """The parts that its reads show."""
        hidden = {name for name, _ in self.lacking}
        return tuple(part for part in self.held if part.name not in hidden)

    @property
    def results_in_work(self) -> tuple[str, ...]:
        """The names of the results that it is making, and of those that clients have made for it."""
        made = (item for item in self.queue if item.index in self.running and is_made(item))
        names = {part.name for item in made for part in item.change.added}
        uploaded = (result_of(staging) for staging, _ in self.shares.uploads)
        return tuple(sorted(names.union(name for name in uploaded if name is not None)))

    def with_trouble(self) -> Memory:
        """Something went wrong: read-only at once, until it has activated again."""
        if not self.is_there:
            return self  # a dead process has no trouble, which would only tell equal states apart
        state = State.READ_ONLY if self.state is State.ACTIVE else self.state
        return replace(self, trouble=True, state=state)

    def adopting(self, epoch: Epoch) -> Memory:
        """Take an epoch unless a higher one is known."""
        if self.epoch is not None and self.epoch >= epoch:
            return self
        # What earlier epochs had on its way is refused from now on.
        moves = replace(self.moves, doubtful=frozenset()) if self.moves.doubtful else self.moves
        shares = replace(self.shares, kept=()) if self.shares.kept else self.shares
        return replace(self, epoch=epoch, shares=shares, moves=moves)

    def revealing(self, parts: tuple[str, ...], gone: tuple[str, ...]) -> Memory:
        """Show parts and no longer show others, at once; a part that a shown one covers stays hidden.

        What is being loaded meanwhile does not count any more, even when nothing of this was known here.
        """
        # Nothing is shown or hidden, so a load that is under way still counts.
        if not parts and not gone:
            return self
        hidden = {parse_part(name) for name in gone}
        left = [part for part in self.held if part not in hidden]
        for part in sorted(map(parse_part, parts)):
            # A merge may have been revealed before its source, by another thread: the source stays hidden.
            if not any(each.covers(part) for each in left):
                left = [each for each in left if not part.covers(each)] + [part]
        held = PartSet.of(left)
        lacking = self.lacking
        if lacking:
            # A part that another one covers is not needed any more, so it is not lacking either.
            lacking = tuple(
                each
                for each in lacking
                if each[0] not in (*gone, *parts) and held.covering(own := parse_part(each[0])) in (None, own)
            )
        # The same object where nothing has changed: `parts` of it, and its hash, are worked out once.
        return replace(self, held=self.held if held == self.held else held, lacking=lacking, loading=())

    def lacks(self, parts: tuple[tuple[str, str], ...]) -> Memory:
        """Hide parts that are not whole on disk."""
        return replace(self, lacking=tuple(sorted({*self.lacking, *parts})))

    def begin_load(self, thread: str) -> Memory:
        """Let a thread begin to load the state."""
        return replace(self, loading=tuple(sorted({*self.loading, thread})))

    def loaded(self, loaded: Loaded, thread: str) -> Memory | None:
        """Take over what a thread has loaded, unless another thread knows something newer; None then.

        What runs stays in the queue until it is given back, with what it changes: of an entry that was executed just now
        nothing is left to change.
        """
        left_loading = tuple(each for each in self.loading if each != thread)
        if self.place is not None and self.place.pointer.version > loaded.place.pointer.version:
            return replace(self, loading=left_loading)  # a pull took place since it was read
        if thread not in self.loading:
            return None  # parts were shown or hidden since it was read
        queue = {item.index: item for item in loaded.queue}
        # A thread works on these: they may have left coordination's queue since, and are given back all the same.
        queue.update((item.index, item) for item in self.queue if item.index in self.running)
        waiting = tuple(index for index in self.waiting if index in queue)
        ordered = tuple(queue[index] for index in sorted(queue))
        still = {item.index for item in loaded.queue}
        left = tuple(index for index in self.running if index not in still)
        known = replace(self, place=loaded.place, torn=loaded.is_torn, queue=ordered, waiting=waiting, left=left)
        held = {part.name for part in loaded.held}
        lacking = tuple(each for each in self.lacking if each[0] in held)
        return replace(known, held=loaded.held, lacking=lacking, loading=left_loading)

    def pulled(self, place: Place, entries: tuple[Queued, ...]) -> Memory:
        """Take over what a pull brought, unless another thread has pulled further meanwhile: it knows these entries too."""
        # The pointer moves with every pull, so its version orders all readings of it, whatever thread brings them.
        if self.place is not None and self.place.pointer.version >= place.pointer.version:
            return self
        queue = {item.index: item for item in (*self.queue, *entries)}
        return replace(self, place=place, torn=False, queue=tuple(queue[index] for index in sorted(queue)))

    def executed(
        self, batch: tuple[LogIndex, ...], done: tuple[LogIndex, ...], postponed: tuple[LogIndex, ...]
    ) -> Memory:
        """Take a batch back: entries that are done leave the queue, those that were postponed wait, behind the others."""
        over = {*done, *(index for index in self.left if index in batch)}
        queue = tuple(item for item in self.queue if item.index not in over)
        # An entry that is put off again goes behind the others: each has its turn.
        waiting = tuple(index for index in self.waiting if index not in over and index not in postponed)
        waiting += tuple(index for index in postponed if index not in over)
        running = tuple(index for index in self.running if index not in batch)
        left = tuple(index for index in self.left if index not in batch)
        return replace(self, queue=queue, waiting=waiting, running=running, left=left)


def is_made(item: Queued) -> bool:
    """Whether an entry belongs into the lane of merges and mutations."""
    return isinstance(item.entry, MergeEntry | MutateEntry)
