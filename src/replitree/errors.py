"""The errors that replitree raises: few, and each says what to do next.

::

    ReplitreeError
    ├── BadInput                the caller's data or arguments; mend and try again
    │   ├── InvalidName
    │   └── SchemaMismatch
    ├── TableNotFound
    ├── TableExists
    ├── NotAuthorized           token or credentials are wrong
    │   └── NotPermitted        the token is right, and its role or its tables do not allow this
    ├── Unavailable             nothing is wrong with the request; try again, or another replica
    │   ├── CoordinationUnavailable
    │   ├── ReplicaUnavailable
    │   │   └── RowsUnavailable a part that the read needs is broken or gone on every replica
    │   ├── ReplicaBehind       no replica could show in time what the read must include; nothing older is shown
    │   ├── ReadOnly
    │   ├── TooFewReplicas
    │   ├── QuorumNotReached
    │   ├── NotLeader           this process does not lead the tablet; ask the one that does
    │   └── TooManyParts
    ├── OutcomeUnknown          the insert may have happened; repeat it with the same token
    ├── CommandUnknown          a tablet's command may have been carried out; read the state before it is repeated
    ├── StreamReplaced          the stream of a batch belongs to another query; nothing was inserted, an operator must choose
    ├── ConcurrentChange        what a rewrite was made of has changed; nothing was changed, read and try again
    ├── SnapshotExpired         parts of the snapshot are gone; take a new one
    │   └── LeaseLost           no replica keeps the snapshot's parts any more
    ├── ReplicaBusy             another live process has this replica's name
    ├── ReplicaReplaced         another process took over this replica's name
    ├── StoreError              disk full or failing
    │   ├── CorruptPart
    │   └── TabletDamaged       confirmed entries of a tablet can't be found; an operator must look
    ├── UnsupportedFormat       written by a newer replitree
    ├── JavaMissing
    ├── SparkMissing
    └── EngineMissing           DuckDB, Polars or pandas; the message names the extra
"""

from __future__ import annotations


class ReplitreeError(Exception):
    """Base of all errors that replitree raises on purpose."""


class BadInput(ReplitreeError):
    """The data or the arguments can't be taken; nothing was done.  Mend them and try again."""


class InvalidName(BadInput):
    """A table, replica or column name has characters that are not allowed."""


class SchemaMismatch(BadInput):
    """The rows do not fit the table's columns; nothing was inserted."""


class TableNotFound(ReplitreeError):
    """There is no table of this name; `replitree table list` shows those that exist."""


class TableExists(ReplitreeError):
    """A table of this name exists already, or is still being dropped."""


class NotAuthorized(ReplitreeError):
    """The token or the credentials were refused."""


class NotPermitted(NotAuthorized):
    """The token is known, and its role, or the tables that it is for, do not allow this; nothing was done."""


class Unavailable(ReplitreeError):
    """Certainly nothing was changed; try again later or on another replica."""


class CoordinationUnavailable(Unavailable):
    """ZooKeeper does not answer."""


class ReplicaUnavailable(Unavailable):
    """The replica does not answer, or no replica is active."""


class RowsUnavailable(ReplicaUnavailable):
    """A part that the read needs is broken or gone on every replica that answers; `replitree doctor` says what to do."""


class ReplicaBehind(Unavailable):
    """No replica could show in time what the read must include.  Allow more time, or ask for less."""


class ReadOnly(Unavailable):
    """The replica takes no inserts now: its session or its disk is gone.  It recovers by itself."""


class TooFewReplicas(Unavailable):
    """Fewer replicas are active than the insert's quorum needs; nothing was inserted."""


class QuorumNotReached(Unavailable):
    """Too few replicas had the insert in time: it was taken back on all of them, for good.  Insert it again."""


class NotLeader(Unavailable):
    """The tablet is led by another process: certainly nothing was done here.  Ask the one that leads.

    Attributes
    ----------
    generation
        The generation that was met in its place, or None.
    """

    def __init__(self, message: str, generation: int | None = None) -> None:
        super().__init__(message)
        self.generation = generation


class TooManyParts(Unavailable):
    """A partition has too many parts; insert larger blocks or less often."""


class OutcomeUnknown(ReplitreeError):
    """The insert may have happened.  Repeat it with the same token: it will not be inserted twice.

    Attributes
    ----------
    token
        The token to repeat the insert with.
    """

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message)
        self.token = token


class CommandUnknown(ReplitreeError):
    """A tablet's command may have been carried out, or may yet be.  Read the state of the next leader before it is repeated."""


class StreamReplaced(ReplitreeError):
    """The stream of a batch belongs to another query, whose batches have these numbers; nothing was inserted.

    Continue with the checkpoint of that query, give this one another ``txnAppId``, or take the stream over with
    ``newCheckpoint`` once that query has been stopped for good.

    Attributes
    ----------
    stream, query, batch
        The stream, the query that it belongs to (empty: batch writes with ``txnVersion``), and that query's last batch.
    """

    def __init__(self, message: str, stream: str = "", query: str = "", batch: int = -1) -> None:
        super().__init__(message)
        self.stream, self.query, self.batch = stream, query, batch


class ConcurrentChange(ReplitreeError):
    """A part that a rewrite was made of, or rows that it relies on, have changed; nothing was changed: read and try again."""


class SnapshotExpired(ReplitreeError):
    """Parts that the snapshot needs are gone; take a new snapshot."""


class LeaseLost(SnapshotExpired):
    """The lease on a snapshot ended: its parts may go at any time.  Take a new snapshot, and renew its lease in time."""


class ReplicaBusy(ReplitreeError):
    """Another live process has this replica's name; stop it or choose another name."""


class ReplicaReplaced(ReplitreeError):
    """Another process took over this replica's name; this one must stop."""


class StoreError(ReplitreeError):
    """The disk is full or failing."""


class CorruptPart(StoreError):
    """A part's files do not match their checksums."""


class TabletDamaged(StoreError):
    """Confirmed entries of a tablet can't be found.  Bring members that are away back; look with `replitree tablet verify`."""


class UnsupportedFormat(ReplitreeError):
    """Something was written by a newer replitree; upgrade this one.  Nothing was lost."""


class JavaMissing(ReplitreeError):
    """No Java 17 or newer was found; `make setup` installs one."""


class SparkMissing(ReplitreeError):
    """PySpark is not installed; ``pip install 'replitree[spark]'`` installs it."""


class EngineMissing(ReplitreeError):
    """DuckDB, Polars or pandas is not installed; the message names the extra that installs it."""
