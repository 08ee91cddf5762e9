"""The moves of one process: with which shares they are under way, and which of them ended in doubt; as `parts.moving`."""

from __future__ import annotations

from collections.abc import Collection

from replitree.protocol.shares.share import ShareId
from replitree_verify.world.shared_disk import Left, SharedDisk


class Moves:
    """What a process knows of its moves; a crash takes it away."""

    def __init__(self) -> None:
        self._moving: dict[ShareId, str] = {}
        self._doubtful: set[ShareId] = set()
        self.begun: set[ShareId] = set()
        """All with which this process ever began a move."""

    def is_busy(self, share: ShareId) -> bool:
        """Whether what is noted of a share may not be worked off: a move is under way with it, or has ended in doubt."""
        return share in self._moving or share in self._doubtful

    @property
    def shares(self) -> frozenset[ShareId]:
        """The shares of such moves."""
        return frozenset(self._moving.keys() | self._doubtful)

    def begin(self, part: str, share: ShareId) -> None:
        """Begin a move."""
        self._moving[share] = part
        self.begun.add(share)

    def settled(self, shares: Collection[ShareId]) -> None:
        """Take note that moves with these shares have ended."""
        for share in shares:
            self._moving.pop(share, None)

    def doubt(self, shares: Collection[ShareId]) -> None:
        """Take note that an answer about these shares was lost."""
        self._doubtful.update(shares)
        self.settled(shares)

    def broken_off(self, part: str) -> None:
        """Take note that the move of a part has ended, and it is not known where."""
        self.doubt([share for share, moved in self._moving.items() if moved == part])

    def has_new_epoch(self) -> None:
        """Take note that what earlier epochs had on its way is refused from now on."""
        self._doubtful.clear()


def to_let_go_of(disk: SharedDisk, moves: Moves) -> tuple[Left, ...]:
    """Return what has left a disk, or is noted there, and may be let go of now."""
    return tuple(left for left in disk.leaving if not any(map(moves.is_busy, left.shares)))


__all__ = ["Moves", "to_let_go_of"]
