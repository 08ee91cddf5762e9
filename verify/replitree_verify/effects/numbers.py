"""Numbers of resources: a set of what steps read and write is an integer, a bit for each resource, numbered as they are met."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from replitree_verify.world.model import Model


class Numbers:
    """Numbers resources.

    Parameters
    ----------
    model
        Whose steps read and write them.
    """

    def __init__(self, model: Model) -> None:
        self._bits: dict[Hashable, int] = {}
        self.model = model
        self.disk_of = tuple(model.replicas.index(replica) for _, replica in model.seats)
        """The number of each seat's disk."""

    def bit(self, *resource: Hashable) -> int:
        """Return the set of one resource."""
        return self._bits.setdefault(resource, 1 << len(self._bits))

    def fields(self, seat: int, names: Iterable[str]) -> int:
        """Return the set of some fields of a memory."""
        return union(self.bit("memory", seat, name) for name in names)

    def parts(self, disk: int, names: Iterable[str]) -> int:
        """Return the set of some parts on a disk."""
        return union(self.bit("part", disk, name) for name in names)

    def listed_parts(self, disk: int, names: Iterable[str]) -> int:
        """Return the same, with the list of all parts on that disk unless there are none."""
        named = self.parts(disk, names)
        return named | self.bit("parts", disk) if named else 0

    def part_everywhere(self, name: str) -> int:
        """Return a part on every disk."""
        return union(self.bit("part", each, name) for each in dict.fromkeys(self.disk_of))

    def all_parts(self) -> int:
        """Return the lists of the parts on all disks."""
        return union(self.bit("parts", each) for each in dict.fromkeys(self.disk_of))


def union(bits: Iterable[int]) -> int:
    """Return the union of sets."""
    found = 0
    for each in bits:
        found |= each
    return found
