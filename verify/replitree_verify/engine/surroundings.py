"""What all threads can still do from where they stand (`futures`), seat by seat.

Most moves leave most seats as they are: so what is around a thread is remembered for each seat by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from replitree_verify.engine.futures import Future, Futures
from replitree_verify.engine.moves import LEFT, TREE, Thread, World
from replitree_verify.engine.space import Space
from replitree_verify.world.faults import Fault
from replitree_verify.world.kernel import END

_UNKNOWN = Fault.UNKNOWN.mask


class Around(NamedTuple):
    """The threads of a seat that may go on, each with what it can do; and what all of them can."""

    threads: tuple[tuple[Thread, Future], ...]
    writes: int
    reads: int


class Surroundings:
    """What is around in the states of a space.

    Parameters
    ----------
    space, futures
        Whose states; what threads can do.
    """

    def __init__(self, space: Space, futures: Futures) -> None:
        self._space = space
        self._futures = futures
        self._known: dict[tuple[object, ...], Around] = {}
        self._seats = range(len(space.model.seats))

    def forget(self) -> None:
        """Work everything out again: more ways are known."""
        self._known.clear()

    def of(self, world: World) -> list[Around]:
        """Return what is around in a state, seat by seat."""
        return [self.of_seat(seat, world) for seat in self._seats]

    def in_its_process(
        self, seat: int, world: World, around: list[Around], *, pulls: bool = True, runs: int | None = None
    ) -> list[Around]:
        """Return the same as long as a thread brings the process of a seat nothing new (`pulls`), or runs an entry."""
        return [*around[:seat], self.of_seat(seat, world, pulls=pulls, runs=runs), *around[seat + 1 :]]

    def of_seat(self, seat: int, world: World, *, pulls: bool = True, runs: int | None = None) -> Around:
        """Return what is around at one seat."""
        space = self._space
        tree, memory = world[TREE], world[space.memory_at[seat]]
        # Whether answers may be lost, not how many: the number would tell surroundings apart that are the same.
        doubts = bool(world[LEFT] & _UNKNOWN)
        key = (seat, tree, self._futures.stand(memory), world[space.thread_at[seat]], doubts, pulls, runs)
        found = self._known.get(key)
        if found is None:
            threads = tuple(
                (thread, self._futures.of(seat, place, tree, memory, pulls=pulls, doubts=doubts, runs=runs))
                for thread in space.threads[space.threads_of[seat]]
                if (place := world[thread.position]) != END
            )
            writes = reads = 0
            for _, future in threads:
                writes |= future.writes
                reads |= future.reads
            found = self._known[key] = Around(threads, writes, reads)
        return found
