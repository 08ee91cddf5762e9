"""What the executions of all kinds of entries share: their outcomes, and the commits that register parts.

File first, node second, visible third; a removal goes the opposite way.  So a registered part is always on disk, and a read
never shows a part that the replica could lose by a crash.

A commit with an unknown outcome needs no new epoch: a queue entry can be deleted only once and never comes back, and so can
a part's node, so a late commit and a repeated one exclude each other.  The caller loads its state again and does what is left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import DropEntry, GetEntry, LostEntry, RewriteEntry
from replitree.protocol.core.fold import is_open, maximal
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.values import text_of
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Fenced, Queued


@dataclass(frozen=True, slots=True)
class View:
    """What an execution goes by: a recent state of the replica.  An older one only makes it be refused, or do too much.

    Attributes
    ----------
    parts
        The fold at the pointer: an entry whose result it does not cover is not worth executing.
    held
        What the replica has registered.
    blockers
        See `blockers`; only needed for an entry that removes.
    makes
        Whether this replica merges and mutates by itself now; otherwise it waits until it can fetch the result.
    kept, detached, fed
        See `to_be_kept`, `to_be_detached`, `to_be_fed`.
    broken
        What is held and not whole on disk: nothing can be made of it.
    opened
        The inserts whose quorum is open at the pointer, ascending.
    sharer
        This replica's identity where one replica makes a result for all (`protocol.execute.make_once`); None: each makes
        its own.
    is_overdue
        It has waited for the others long enough, and makes by itself what it can't have from them.
    """

    parts: PartSet
    held: PartSet
    blockers: tuple[Queued, ...] = ()
    makes: bool = True
    kept: PartSet = PartSet()  # noqa: RUF009 - immutable
    broken: frozenset[Part] = frozenset()
    opened: tuple[fx.LogIndex, ...] = ()
    sharer: Sharer | None = None
    is_overdue: bool = False
    detached: PartSet = PartSet()  # noqa: RUF009 - immutable
    fed: PartSet = PartSet()  # noqa: RUF009 - immutable

    def wants(self, part: Part) -> bool:
        """Whether the table still has a part's rows, and the replica has them neither as this part nor as a later one.

        What a detach takes out is gone from the table, also where a part reaches over it that was merged of its neighbours
        since.  Others may have it no more, and that part is not fetched in its place while a detach waits for it.  The same
        goes for what the change feed needs of it.
        """
        is_gone = any(gone and gone.covering(part) is not None for gone in (self.detached, self.fed))
        return not is_gone and self.parts.covering(part) is not None and self.held.covering(part) is None

    def can_make_of(self, sources: Iterable[Part]) -> bool:
        """Whether this replica makes results now, and has all these parts, whole."""
        return self.makes and self.has_whole(sources)

    def has_whole(self, parts: Iterable[Part]) -> bool:
        """Whether this replica has all these parts, whole."""
        return all(part in self.held and part not in self.broken for part in parts)

    def must_keep(self, part: Part) -> bool:
        """Whether a detach in the queue is to keep a part's rows aside, or the feed needs them, and they are not here yet."""
        is_needed = any(kept.covering(part) is not None for kept in (self.kept, self.fed))
        return is_needed and self.held.covering(part) is None

    def hides_kept(self, result: Part) -> bool:
        """Whether a part reaches over another one that a detach in the queue is to keep aside, or that the feed needs first."""
        return any(kept.between(result.partition, result.block_min, result.block_max) for kept in (self.kept, self.fed))


def to_be_kept(queue: Iterable[Queued]) -> PartSet:
    """Return the parts that the detaches of a queue take out of the table, to be kept aside; and those that are lost.

    The writer of an insert brings it before a detach removes it, although the table has no use for it any more: otherwise
    its rows would be kept nowhere.  And nothing takes the place of such a part before it is kept.

    The same goes for a part that is lost: nothing is made of rows of it that have turned up here all the same.
    """
    parts: list[Part] = []
    for item in queue:
        if isinstance(item.entry, LostEntry):
            parts.append(parse_part(item.entry.part))
        else:
            parts += _detached(item)
    return PartSet.of(maximal(parts))


def to_be_detached(queue: Iterable[Queued]) -> PartSet:
    """Return the parts that the detaches of a queue take out of the table."""
    return PartSet.of(maximal(part for item in queue for part in _detached(item)))


def _detached(item: Queued) -> tuple[Part, ...]:
    return item.change.removed if isinstance(item.entry, DropEntry) and item.entry.detach else ()


def to_be_fed(queue: Iterable[Queued], opened: tuple[fx.LogIndex, ...]) -> PartSet:
    """Return the parts that drops and overwrites of a queue take out of the table before their rows may be on any disk.

    The feed has the rows of an insert at its entry, whatever a later entry does to them.  So where the table has a feed, the
    writer of an insert, or of a rewrite, registers its parts before a drop takes them back: then they are old parts, which the
    feed keeps, and from which other replicas fetch.  The drop waits for the writer's entry anyway (`drop.must_wait`).

    Parameters
    ----------
    queue
        Of a replica, in ascending order of index.
    opened
        The inserts that are open at the pointer.  What was dropped of them the feed never has.
    """
    parts: list[Part] = []
    first: fx.LogIndex | None = None
    for item in queue:
        # A drop may remove a hundred thousand parts: only those with rows of entries that the queue has are asked for.
        if first is not None and isinstance(item.entry, DropEntry | GetEntry):
            late = (part for part in item.change.removed if max(part.block_max, part.mutation) >= first)
            parts += [part for part in late if not is_open(part, opened)]
        if first is None and isinstance(item.entry, GetEntry | RewriteEntry):
            first = item.index
    return PartSet.of(maximal(parts))


def blockers(queue: Iterable[Queued], running: Container[fx.LogIndex], index: fx.LogIndex) -> tuple[Queued, ...]:
    """Return the entries before `index` that may still bring something which the entry at `index` removes.

    Parameters
    ----------
    queue
        The replica's queue in ascending order of index.
    running
        The entries that are being executed by this process: they may have begun before the removal was known.  Of those that
        are not, merges and mutations need parts that are there, and only inserts and rewrites bring what was not there before.
        A detach brings nothing, but has to keep aside what is there.
    """
    found: list[Queued] = []
    for item in queue:
        is_detach = isinstance(item.entry, DropEntry) and item.entry.detach
        brings = isinstance(item.entry, GetEntry | RewriteEntry)
        if item.index < index and (item.index in running or brings or is_detach):
            found.append(item)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Postponed:
    """An entry that could not be executed now, and why; `is_told`: the replica will be told when to try again."""

    index: fx.LogIndex
    reason: str
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """`done` left the queue, what they brought is registered and visible; `postponed` stay in it.

    `left_out`: so did all of it, but for the operations that were not certain to hold (`finish`).
    """

    done: tuple[fx.LogIndex, ...]
    postponed: tuple[Postponed, ...] = ()
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class QueueMoved:
    """The replica's state is not what the caller believed; load it again."""


ExecuteOutcome: TypeAlias = Executed | QueueMoved | Fenced


BROKEN = b"broken "
"""Begins the value of a registered part whose files are broken on its replica, and that no other replica could send."""

SEARCHED = b"searched "
"""Begins the value of a broken part of which the replica has searched all folders of its disk, too, and found no copy."""


LET_BE = b"let be"
"""Value of ``results/<part>`` where a killed mutation leaves the part as its source is, and rows of that were lost since: the
first replica that registers the part records its content."""


def broken_value(content_hash: str, *, is_searched: bool = False) -> bytes:
    """Return the value of a registered part that is broken.

    Parameters
    ----------
    content_hash
        The content that the part should have.
    is_searched
        Whether the replica has searched its own disk for copies of the part, and found none.

    >>> broken_value("ab12"), broken_value("ab12", is_searched=True)
    (b'broken ab12', b'searched ab12')
    """
    return (SEARCHED if is_searched else BROKEN) + content_hash.encode()


def is_broken(value: bytes) -> bool:
    """Whether the value of a registered part says that its files are broken."""
    return value.startswith((BROKEN, SEARCHED))


def has_searched(value: bytes) -> bool:
    """Whether the value of a registered part says that it is broken and that its replica has no copy of it.

    >>> has_searched(b"broken ab12"), has_searched(b"searched ab12")
    (False, True)
    """
    return value.startswith(SEARCHED)


def content_of(value: bytes) -> str:
    """Return the content hash that a registered part should have, broken or not.

    >>> content_of(b"broken ab12"), content_of(b"searched ab12"), content_of(b"ab12")
    ('ab12', 'ab12', 'ab12')
    """
    return text_of(value.removeprefix(BROKEN).removeprefix(SEARCHED), "the value of a registered part")


def claim(path: str, first: fx.Node | None, content_hash: str) -> tuple[fx.Operation, ...]:
    """Return the operation by which the first publisher of a result records its content; none where that was done already.

    Parameters
    ----------
    path, first
        The result's node, and what it was when it was read.
    content_hash
        The content that the result is registered with.
    """
    if first is None:
        return (fx.Create(path, content_hash.encode()),)
    return (fx.Set(path, content_hash.encode(), first.version),) if first.value == LET_BE else ()


def contradicts(first: fx.Node | None, content_hash: str) -> bool:
    """Whether the first publisher of a result has recorded another content."""
    return first is not None and first.value not in (LET_BE, content_hash.encode())


def register(replica: Replica, part: Part, content_hash: str) -> fx.Create:
    """Return the operation by which a replica claims to have a part."""
    return fx.Create(layout.part(replica, part.name), content_hash.encode())


def registered_by(replica: Replica, commit: fx.Commit) -> dict[str, str]:
    """Return the parts that a commit registers on a replica, each with the content hash that it should have."""
    folder = f"{layout.parts(replica)}/"
    found: dict[str, str] = {}
    for operation in commit.operations:
        if operation.path.startswith(folder):
            name = operation.path.removeprefix(folder)
            if isinstance(operation, fx.Create | fx.Set):
                found[name] = content_of(operation.value)
            elif isinstance(operation, fx.Delete):
                # This includes nodes that a commit creates and deletes to prove that there was none.
                found.pop(name, None)
    return found


def deregister(replica: Replica, part: Part) -> fx.Delete:
    """Return the operation by which a replica takes back that it has a part."""
    return fx.Delete(layout.part(replica, part.name), fx.ANY_VERSION)


def leave_queue(replica: Replica, index: fx.LogIndex) -> fx.Delete:
    """Return the operation that takes an entry out of the queue."""
    return fx.Delete(layout.queue_entry(replica, index), fx.ANY_VERSION)


def finish(
    replica: Replica,
    epoch: fx.Epoch,
    done: tuple[fx.LogIndex, ...],
    operations: tuple[fx.Operation, ...] = (),
    shown: tuple[Part, ...] = (),
    gone: tuple[Part, ...] = (),
    uncertain: tuple[fx.Operation, ...] = (),
) -> fx.Procedure[ExecuteOutcome]:
    """Commit what an execution has brought, take its entries out of the queue, and let reads see it.

    `uncertain` go along if all of them hold; otherwise the commit is made without them.
    """
    certain = (fx.Check(layout.host(replica), epoch), *operations, *(leave_queue(replica, index) for index in done))
    committed = yield fx.Commit(*certain, *uncertain)
    left_out = isinstance(committed, fx.Refused) and committed.operation in uncertain
    if left_out:
        committed = yield fx.Commit(*certain)
    if isinstance(committed, fx.Applied) and (shown or gone):
        yield fx.Reveal(tuple(part.name for part in shown), tuple(part.name for part in gone))
    return Executed(done, left_out=left_out) if isinstance(committed, fx.Applied) else failure(committed)


def failure(committed: fx.Committed) -> QueueMoved | Fenced:
    """Return what a commit that was not applied means for the caller."""
    match committed:
        case fx.Refused(operation=fx.Check()):
            return Fenced()
    return QueueMoved()


def postpone(index: fx.LogIndex, reason: str, *, is_told: bool = False) -> Executed:
    """Return the outcome of an execution that has to wait."""
    return Executed((), (Postponed(index, reason, is_told),))
