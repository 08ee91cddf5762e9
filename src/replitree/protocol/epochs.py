"""Epochs of a name: no two processes that ever act under one replica's name have the same epoch, whatever was between them.

An epoch is the version of `host`, and a node that is created anew begins at version 0.  So whoever deletes `host` notes its
last version below `epochs`, and whoever creates it again writes it until its version is past that; each of it in the commit
that deletes, or creates.  What a process of an earlier replica still has in its hands is refused then, however often the new
one has been activated, and so is what others have proved with the version of its `host`.

===========  =================================================================================================================
no note      nobody has had this name: the commit proves it, so who was slow to join can't come after another one's life
a note       the commit proves its version: of two replicas that join one after the other, the second counts past the first
===========  =================================================================================================================

The note stays as long as the table.  Who drops a replica with an earlier version of this code leaves none, and its epochs begin
anew.

Absent on purpose: writing `host` in more than one commit.  Between two of them it would be at a version that was somebody's.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol import layout
from replitree.protocol.effects import ANY_VERSION, Check, Create, Delete, Node, Operation, Set, Version
from replitree.protocol.layout import Replica

EPOCHS_MAX = 3000
"""Epochs of earlier replicas that one commit counts past: with the longest names it has less than 1 MB then."""


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
    all_notes: Node | None
    note: Node | None

    @property
    def last(self) -> Version | None:
        """The last version that `host` has had; None when nobody has had the name."""
        return None if self.note is None else Version(int(self.note.value))

    @property
    def is_worn(self) -> bool:
        """Whether there were too many epochs to count past."""
        return self.last is not None and self.last > EPOCHS_MAX

    def noting(self, last: Version) -> tuple[Operation, ...]:
        """Return what notes the last version of `host`, for the commit that deletes it at that version."""
        path, value = layout.last_epoch(self.replica), str(last).encode()
        if self.note is not None:
            return (Set(path, value, self.note.version),)
        parent = () if self.all_notes is not None else (Create(layout.epochs(self.replica.table)),)
        return (*parent, Create(path, value))

    def passing(self) -> tuple[Operation, ...]:
        """Return what brings `host` past every version that it has had, for the commit that creates it, after that."""
        path, host = layout.last_epoch(self.replica), layout.host(self.replica)
        if self.note is None or self.last is None:
            missing = layout.epochs(self.replica.table) if self.all_notes is None else path
            return Create(missing), Delete(missing, ANY_VERSION)
        return Check(path, self.note.version), *(Set(host, b"", ANY_VERSION) for _ in range(self.last + 1))


def note_paths(replica: Replica) -> tuple[str, str]:
    """Return what has to be read for `Noted`, in its order."""
    return layout.epochs(replica.table), layout.last_epoch(replica)


__all__ = ["EPOCHS_MAX", "Noted", "note_paths"]
