"""Epochs of a name: no two processes that ever act under one replica's name have the same epoch.

An epoch is the version of `host`, and a node that is created anew begins at version 0.  So the commit that deletes `host`
notes its last version below `epochs`, and the commit that creates it again writes it until its version is past that one.
After that a request of a process of the earlier replica is refused, however often the new one has been activated, and so is a
commit of another replica that checks an earlier version of `host`.

===========  =================================================================================================================
no note      no replica has had this name: the commit proves it, so a slow join can't follow another replica's life
a note       the commit proves its version: of two replicas that join one after the other, the second counts past the first
===========  =================================================================================================================

The note stays as long as the table.  An earlier version of this code drops a replica without a note; then its epochs begin
anew.

Absent on purpose: writing `host` in more than one commit.  Between two of them it could have the version of an earlier epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica

COUNTING_BYTES_MAX = 950_000
"""Bytes that one commit may take to count past earlier epochs: with what else is in it, it stays below 1 MB."""

_SET_BYTES = 25
"""What writing an empty value takes in a commit, besides its path."""


def epochs_max(replica: Replica) -> int:
    """Return how many epochs of earlier replicas of a name one commit can count past.

    ZooKeeper raises a version by one with each write, so the number follows from the size of a write.  A name uses epochs up
    only by activations that something about its epoch or session has asked for (`replitree.replica.kit.evidence`), and
    the limit is met only by a replica that is dropped and added again.

    >>> epochs_max(Replica(layout.TablePlace("/replitree/tables/events"), "r1"))
    14393
    """
    return COUNTING_BYTES_MAX // (_SET_BYTES + len(layout.host(replica)))


@dataclass(frozen=True, slots=True)
class Noted:
    """What was read of the epochs that a name has had.

    Attributes
    ----------
    replica
        Whose name.
    all_notes, note
        The parent of all notes, and the one for this name.
    """

    replica: Replica
    all_notes: fx.Node | None
    note: fx.Node | None

    @property
    def last(self) -> fx.Version | None:
        """The last version that `host` has had; None when no replica has had the name."""
        return None if self.note is None else fx.Version(int(self.note.value))

    @property
    def is_worn(self) -> bool:
        """Whether there were too many epochs to count past."""
        return self.last is not None and self.last > epochs_max(self.replica)

    def noting(self, last: fx.Version) -> tuple[fx.Operation, ...]:
        """Return what notes the last version of `host`, for the commit that deletes it at that version."""
        path, value = layout.last_epoch(self.replica), str(last).encode()
        if self.note is not None:
            return (fx.Set(path, value, self.note.version),)
        parent = () if self.all_notes is not None else (fx.Create(layout.epochs(self.replica.table)),)
        return (*parent, fx.Create(path, value))

    def passing(self) -> tuple[fx.Operation, ...]:
        """Return what brings `host` past every version that it has had, for the commit that creates it, after that."""
        path, host = layout.last_epoch(self.replica), layout.host(self.replica)
        if self.note is None or self.last is None:
            missing = layout.epochs(self.replica.table) if self.all_notes is None else path
            return fx.Create(missing), fx.Delete(missing, fx.ANY_VERSION)
        return fx.Check(path, self.note.version), *(fx.Set(host, b"", fx.ANY_VERSION) for _ in range(self.last + 1))


def note_paths(replica: Replica) -> tuple[str, str]:
    """Return what has to be read for `Noted`, in its order."""
    return layout.epochs(replica.table), layout.last_epoch(replica)


__all__ = ["Noted", "epochs_max", "note_paths"]
