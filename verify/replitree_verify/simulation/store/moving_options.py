"""What a seed draws of moves: whether the rows of its table move between disks and store, when, and where to.

Where parts belong changes now and then, as by ``alter_storage``; every process hears of it some time later.  In the end
all parts are where they belong then.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from replitree_verify.simulation.options import MS, SECOND
from replitree_verify.world.moves import Place

SHARE_OF_STORES = 0.4
"""Share of the seeds with a store in which parts move."""

SWITCHES_MAX = 4


@dataclass(frozen=True, slots=True)
class MovingOptions:
    """The moves of one seed.

    Attributes
    ----------
    places
        Where parts belong, each from a virtual time on, ascending; the first one from 0.
    older
        How long a process of a tiered table has a part until that belongs in the store, in microseconds.
    lag
        How late a process hears of a change, at most, in microseconds.
    """

    places: tuple[tuple[int, Place], ...]
    older: int
    lag: int

    def place_at(self, time: int) -> Place:
        """Return where parts belong at a time; before the beginning as at the beginning."""
        return next((place for since, place in reversed(self.places) if since <= time), self.places[0][1])


def draw_moving(seed: int, duration: int) -> MovingOptions | None:
    """Draw the moves of a seed that has a store; None: parts stay where they were written.

    Parameters
    ----------
    seed
        Everything is drawn from it.
    duration
        How long faults may begin, in microseconds.
    """
    random = Random(f"{seed}/placement moving")  # noqa: S311 - repeatable is what it must be
    if random.random() >= SHARE_OF_STORES:
        return None
    times = (0, *sorted(random.randrange(1, duration) for _ in range(random.randint(1, SWITCHES_MAX))))
    places = [random.choice(tuple(Place))]
    while len(places) < len(times):
        places.append(random.choice(tuple(each for each in Place if each is not places[-1])))
    older = random.choice((200 * MS, 2 * SECOND, 5 * SECOND))
    lag = random.choice((0, SECOND, 5 * SECOND))
    return MovingOptions(tuple(zip(times, places, strict=True)), older, lag)


__all__ = ["SHARE_OF_STORES", "MovingOptions", "draw_moving"]
