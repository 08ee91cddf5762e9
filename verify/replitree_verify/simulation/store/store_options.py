"""What a seed draws of an object store: whether its table lies in one, how slow that is, what goes wrong there, and what moves.

Where parts belong changes now and then, as by ``alter_storage``; every process hears of it some time later.  In the end
all parts are where they belong then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from replitree_verify.simulation.options import MS, SECOND, Options
from replitree_verify.world.moves import Place

SHARE_OF_SEEDS = 0.25
"""Share of the seeds whose table lies in an object store."""

UPLOADED_TO = 0.5
"""Share of these into whose store clients upload; the others are the runs that they were before there were uploads."""

OPENED_LATER = 0.6
"""Share of those with uploads whose table gets the store while its replicas work."""

PATIENCE = 50
"""How many requests to the store a writer waits for its quorum, at least: every copy takes some of them."""

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


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The object store of one seed.

    Attributes
    ----------
    request, timeout
        Mean time of a request, and how long its sender waits for an answer; microseconds.
    loss
        Share of the requests whose answer is lost: what was asked for is not done, is done, or is done late.
    repeats
        Share of the requests that arrive twice, the second time late.
    absences
        How often the store is away for a while.
    upkeep
        Mean time between two rounds of letting go and working garbage off, in microseconds.
    rows
        Share of the fetches that bring the rows, because the peer does not say where they are.
    uploads
        How often a client uploads into it.
    opens
        When the table gets it, as a share of the time in which faults begin; 0: the table has it from the beginning.
    moving
        How parts move between the disks and the store; None: they do not.
    """

    request: int
    timeout: int
    loss: float
    repeats: float
    absences: int
    upkeep: int
    rows: float
    uploads: int = 0
    opens: float = 0
    moving: MovingOptions | None = None


def draw_store(random: Random) -> StoreOptions | None:
    """Draw the object store of a seed; None for a table on local disks, whose run is what it was before there were stores."""
    if random.random() >= SHARE_OF_SEEDS:
        return None

    def swarm(yes: float) -> float:
        return yes if random.random() < 0.5 else 0

    return StoreOptions(
        request=random.choice((MS, 10 * MS, 100 * MS)),
        timeout=random.choice((SECOND, 5 * SECOND)),
        loss=swarm(random.uniform(0.02, 0.3)),
        repeats=swarm(random.uniform(0.02, 0.3)),
        absences=int(swarm(random.randint(1, 3))),
        upkeep=random.choice((200 * MS, SECOND, 5 * SECOND)),
        rows=swarm(random.uniform(0.05, 0.5)),
    )


def with_uploads(store: StoreOptions, seed: int) -> StoreOptions:
    """Return the options of a seed's store with uploads, and with the time at which the table gets the store."""
    # With this number the seeds that tests name draw none, and are the runs that they were.
    random = Random(f"{seed}/uploads 338690")  # noqa: S311 - repeatable is what it must be
    if random.random() >= UPLOADED_TO:
        return store
    opens = random.random() if random.random() < OPENED_LATER else 0
    return replace(store, uploads=random.randint(2, 8), opens=opens)


def patient(options: Options, store: StoreOptions) -> Options:
    """Return options whose writers wait long enough for copies that go through a store."""
    return replace(options, patience=max(options.patience, PATIENCE * store.request))


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
