"""Effects and outcomes: everything that a procedure may ask of the world, and what the world may answer.

A *procedure* is a generator that yields effects and receives their outcomes.  It performs nothing itself, so the same code
is run by three interpreters: the replica performs the effects on ZooKeeper and on disks, the simulator on a virtual cluster,
the explorer on every world that faults can lead to.

Guarantees that every interpreter gives:

* An effect that writes to coordination ends `Applied`, `Refused` or `Unknown`.  `Refused` is certain: nothing was changed and
  nothing will be.  `Unknown` is a doubt: the request was applied, is still on its way, or is lost for good.
* A read may be stale (it shows some earlier state, never a state of the future), but never older than a write of the same
  session that was answered, and never older than a `Sync` before it.
* A read that can't be had does not return: the interpreter closes the procedure, as a crash would.
* Effects on the local part store are synced when they return, but for a `Publish` that does not ask for it.

Absent on purpose: clocks, random numbers, retries, logging.

(The generator form follows the design's "one protocol, three interpreters"; the tri-state outcome is FoundationDB's
``commit_unknown_result`` made a value.)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NewType, TypeAlias, TypeVar

if TYPE_CHECKING:
    from replitree.protocol.core.views import StagedView, ViewToStage

LogIndex = NewType("LogIndex", int)
"""Position on the table's one number line."""

Epoch = NewType("Epoch", int)
"""Version of a replica's `host` node: which activation of the replica is meant."""

Version = NewType("Version", int)
"""Data version of a znode, as ZooKeeper counts it: 0 when created."""

StagingId = NewType("StagingId", str)
"""Names one staged insert on one replica; never used twice."""

BlockId = NewType("BlockId", str)
"""Deduplication id of one insert request."""

StreamId = NewType("StreamId", str)
"""Names a stream of batches that are inserted into a table."""

EntryId = NewType("EntryId", str)
"""Names one command of a user in the log; never used twice."""

JointId = NewType("JointId", str)
"""Names one insert into several shards; never used twice."""

RequestId = NewType("RequestId", int)
"""Names one client's request within the process that serves it."""

ANY_VERSION = Version(-1)
"""Matches every version of a node that exists."""


class Effect:
    """Base of everything that a procedure may yield.

    The effects of this module are those that every interpreter performs.  A room that asks for more, such as that of shares,
    derives its own from this class; an interpreter that runs its procedures performs them, too.
    """

    __slots__ = ()


# --- coordination: reads ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Get(Effect):
    """Read one node.  Outcome: `Node`, or None when there is no such node."""

    path: str


@dataclass(frozen=True, slots=True)
class GetMany(Effect):
    """Read several nodes in one round trip.  Outcome: `Many`.

    With `watch`, also ask whether that node exists and be woken when this changes; `Many.watched` answers.
    """

    paths: tuple[str, ...]
    watch: str | None = None


@dataclass(frozen=True, slots=True)
class Exists(Effect):
    """Outcome: bool.  With `watch`, be woken when the answer changes."""

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Children(Effect):
    """Outcome: the names of the node's children in ascending order, or None when there is no such node.

    With `watch`, be woken when a child is created or deleted.
    """

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class ChildrenMany(Effect):
    """List the children of several nodes in one round trip.  Outcome: `Lists`."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NextNumber(Effect):
    """Outcome: the number that the next sequential child of the node gets, or None when there is no such node."""

    path: str


@dataclass(frozen=True, slots=True)
class Sync(Effect):
    """Later reads of this session are at least as new as this moment.  Outcome: None."""

    path: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read.

    `changed_ms` says when it was written last, in milliseconds since 1970 by the coordination service's own clock; of an
    entry of the log, which is never written again, when it was appended.  The protocol uses it only to compare nodes with each
    other: the clock may be wrong, and may go back when another server leads.  It counts for nothing when nodes are compared.
    """

    value: bytes
    version: Version
    changed_ms: int = field(default=0, compare=False, repr=False)


Lists: TypeAlias = tuple[tuple[str, ...] | None, ...]
"""Outcome of `ChildrenMany`: what `Children` answers of each path, in order."""


@dataclass(frozen=True, slots=True)
class Many:
    """Outcome of `GetMany`: one `Node` or None for each path, in order; `watched` is False without a watch."""

    nodes: tuple[Node | None, ...]
    watched: bool = False


# --- coordination: the one write ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """The node exists and its data version is `version`."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node whose parent exists.  A sequential node's name gets the parent's next number, ten digits."""

    path: str
    value: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace the value of a node at `version`."""

    path: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node at `version`; it must have no children."""

    path: str
    version: int


Operation: TypeAlias = Check | Create | Set | Delete


@dataclass(frozen=True, slots=True, init=False)
class Commit(Effect):
    """All of these operations in this order, or none.  Outcome: `Applied`, `Refused` or `Unknown`."""

    operations: tuple[Operation, ...]

    def __init__(self, *operations: Operation) -> None:
        assert operations, "a commit has at least one operation"
        object.__setattr__(self, "operations", operations)


class Reason(Enum):
    """Why an operation did not hold."""

    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    NO_CHILDREN_FOR_EPHEMERALS = "no children for ephemerals"


@dataclass(frozen=True, slots=True)
class Applied:
    """The commit took place.  `created` are the paths of the created nodes, in the order of their operations."""

    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly nothing was changed.  `operation` is the first that did not hold."""

    operation: Operation
    reason: Reason


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection was lost with the request on its way: applied now, applied later, or never.

    `is_sent`: False when there was no connection to send it on, so that it certainly never takes place.  A procedure that does
    not ask treats it as any other lost answer, which is right, too.
    """

    is_sent: bool = True


Committed: TypeAlias = Applied | Refused | Unknown


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Outcome of a procedure: the answer to its commit was lost, and it can't find out now what became of it.

    The union of each procedure's outcomes says how the caller settles it.
    """


# --- the local part store ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What the log says of one part of an insert: no rows, only names, sizes and hashes."""

    partition: str
    rows: int
    bytes: int
    content_hash: str


@dataclass(frozen=True, slots=True)
class Stage(Effect):
    """Write the rows of `requests` as part files under a fresh staging id and sync them.

    Outcome: `Staged`, or `StoreFailed` when the disk is full or failing.

    `views`: the materialised views of the table.  What each makes of the rows is staged in its target, under an id of its own
    (`core.views.staged_view`); a view that can't be computed is a `StoreFailed`.  `RemoveStaging` removes it with the rows.
    """

    staging: StagingId
    requests: tuple[RequestId, ...]
    views: tuple[ViewToStage, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedResult:
    """What the log says of a part that a rewrite puts in the place of `source`; it has no rows if they are all deleted."""

    source: str
    rows: int
    bytes: int
    content_hash: str


@dataclass(frozen=True, slots=True)
class Staged:
    """One part per partition, ordered by partition; of a rewrite also its results, each staged under its source's name.

    `views`: what was staged for each view, in the order in which the views were given.
    """

    parts: tuple[StagedPart, ...]
    results: tuple[StagedResult, ...] = ()
    views: tuple[StagedView, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The disk refused: nothing may be believed to be there.  `reason` is for people.

    `by_request`: the rows themselves can't be written, wherever and whenever it is tried; the disk is not to blame.
    """

    reason: str
    by_request: bool = False


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Rename the staged parts to their names and sync the folder.  Idempotent.  Outcome: `Published`, `StoreFailed`.

    `names` gives the part of each staged partition, and of each source whose result is staged.  Without `synced` a power
    failure may undo the renaming (it never loses the files), so it must be said again, synced, before the parts are registered.

    `Published.missing` are the parts of which neither the staged nor the published files are there (or are whole): the caller
    must fetch them.
    """

    staging: StagingId
    names: tuple[tuple[str, str], ...]
    synced: bool = True


@dataclass(frozen=True, slots=True)
class Published:
    """The parts have their names, all but those in `missing`."""

    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchPart(Effect):
    """Copy a part from one of `sources`, the first that has it, verify every checksum, sync it and rename it into place.

    Outcome: `Fetched`, `NotFetched`, or `StoreFailed`.  Idempotent: a whole part with this content that is here already is
    not fetched again.
    """

    part: str
    content_hash: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The part is here, whole and synced."""

    part: str


@dataclass(frozen=True, slots=True)
class NotFetched:
    """No source had the part, answered, or sent what its checksums promise.  Try again later."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class FetchMany(Effect):
    """Several `FetchPart` at once; outcome: their outcomes, in order.  How many run in parallel is the performer's limit."""

    fetches: tuple[FetchPart, ...]


@dataclass(frozen=True, slots=True)
class Merge(Effect):
    """Merge published parts into one staged part and sync it.  Outcome: `Made`, `StoreFailed`, `Cancelled`.

    `sources` are in the order of their blocks.  A result that is staged under this id already is replaced.

    `for_all`: this replica makes the result for all replicas, so it goes into the table's object store at once
    (`protocol.execute.make_once`).  What each replica makes for itself stays on its disk; if it belongs into the store,
    one replica moves it there (`protocol.shares.moving`).
    """

    staging: StagingId
    sources: tuple[str, ...]
    result: str
    schema_version: int
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class Mutate(Effect):
    """Stage what a published part is after a mutation, and sync it.  Outcome: `Made`, `StoreFailed`, `Cancelled`.

    `command` is what the log says.  A part that it does not touch is linked, not written.  `for_all`: as of `Merge`.
    """

    staging: StagingId
    source: str
    result: str
    command: str
    schema_version: int
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class Untouched(Effect):
    """Does a mutation certainly leave a published part as it is?  Told from its manifest alone.  Outcome: bool.

    `command` is what the log says.
    """

    source: str
    command: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class Link(Effect):
    """Stage a published part as it is, to get another name.  Outcome: `Made`, `StoreFailed`.  `for_all`: as of `Merge`."""

    staging: StagingId
    source: str
    result: str
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class ResultsInWork(Effect):
    """Outcome: the names of the results that this process makes now, or is about to, ascending."""


@dataclass(frozen=True, slots=True)
class MakeEmpty(Effect):
    """Stage a part without rows.  Outcome: `Made`, `StoreFailed`."""

    staging: StagingId
    result: str
    schema_version: int


@dataclass(frozen=True, slots=True)
class Made:
    """The result is staged, as the partition's part of its staging id."""

    content_hash: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result is not needed any more, or the operator has stopped such work.  Nothing is staged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Detach(Effect):
    """Keep copies of published parts aside, for people, and sync them.  Idempotent.  Outcome: None, or `StoreFailed`.

    A part that is not whole here is left out: it is broken, and the other replicas keep it too.
    """

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reveal(Effect):
    """From now on local reads show `parts`, and no longer those that are `gone`, at once.  Outcome: None.

    The files of a part that is gone stay while readers may need them.
    """

    parts: tuple[str, ...]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListStaging(Effect):
    """Outcome: the staging ids on disk that no running insert of this process holds, ascending."""


@dataclass(frozen=True, slots=True)
class RemoveStaging(Effect):
    """Delete a staging folder and whatever it holds.  Idempotent.  Outcome: None."""

    staging: StagingId


@dataclass(frozen=True, slots=True)
class ListParts(Effect):
    """Outcome: the names of the published parts on disk, ascending."""


@dataclass(frozen=True, slots=True)
class FindPart(Effect):
    """Is a part of this name published on disk, whole?  Every checksum is verified.  Outcome: its content hash, or None."""

    part: str


@dataclass(frozen=True, slots=True)
class Discard(Effect):
    """Take back that a part was published, which certainly is not registered; nothing is kept aside.  Outcome: None."""

    part: str


@dataclass(frozen=True, slots=True)
class RemovePart(Effect):
    """Move a published part out of the table's folder (it is kept aside, not deleted).  Idempotent.  Outcome: None.

    `unless_fed`: a part that an insert has brought, and that the change feed needs, becomes an old part instead.
    """

    part: str
    unless_fed: bool = False


# --- the process itself -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CurrentEpoch(Effect):
    """Outcome: the epoch under which this process is active as far as it knows, or None."""


@dataclass(frozen=True, slots=True)
class CurrentSession(Effect):
    """Outcome: the number of this process's present session with coordination.

    A new session may begin behind what the one before it has seen, also behind its last `Sync`.
    """


@dataclass(frozen=True, slots=True)
class AdoptEpoch(Effect):
    """From now on this process acts under `epoch` (if it knows a higher one already, nothing changes).  Outcome: None."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ProbeOwner(Effect):
    """Is the process that wrote this `is_active` value still there?  Outcome: `Owner`."""

    value: bytes


class Owner(Enum):
    """What is known of another process."""

    DEAD = "dead"
    ALIVE = "alive"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Answer(Effect):
    """Tell the client of `request`.  The first answer counts.  Outcome: None."""

    request: RequestId
    answer: ClientAnswer


@dataclass(frozen=True, slots=True)
class Inserted:
    """The rows are in the table, at this index, for good.

    `settled` is the index of the entry that ended the quorum of an insert with one, if that is known.
    """

    index: LogIndex
    settled: LogIndex | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An insert with this block id is in the table already, at `index` (None when its log entry is gone by now).

    `settled` as of `Inserted`.
    """

    index: LogIndex | None
    settled: LogIndex | None = None


class Why(Enum):
    """What refused an insert.

    REQUEST
        The request itself: the same rows are refused everywhere.
    STORE
        The disk of this replica.
    TABLE
        The state of the table, of its log or of the replica's epoch, or a quorum that was not reached.
    CHANGED
        The table: a rewrite was made of parts, or relies on partitions, that have changed since they were read.
    STREAM
        The stream of its batch belongs to another query.
    """

    REQUEST = "request"
    STORE = "store"
    TABLE = "table"
    CHANGED = "changed"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class NotInserted:
    """Certainly nothing was inserted.  `reason` says what to do, `why` what it proves.

    `theirs`, of `Why.STREAM`: the stream, the query that it belongs to, and that query's last batch.
    """

    reason: str
    why: Why = Why.TABLE
    theirs: tuple[StreamId, str, int] | None = None


@dataclass(frozen=True, slots=True)
class MaybeInserted:
    """The rows may be in the table.  The same request with the same token settles it."""


ClientAnswer: TypeAlias = Inserted | Duplicate | NotInserted | MaybeInserted

CoordinationEffect: TypeAlias = Get | GetMany | Exists | Children | ChildrenMany | NextNumber | Sync | Commit
StoreEffect: TypeAlias = (
    Stage
    | Publish
    | FetchPart
    | FetchMany
    | Merge
    | Mutate
    | Untouched
    | Link
    | ResultsInWork
    | MakeEmpty
    | Detach
    | Reveal
    | ListStaging
    | RemoveStaging
    | ListParts
    | FindPart
    | Discard
    | RemovePart
)

T = TypeVar("T")
Procedure: TypeAlias = Generator[Effect, Any, T]
