"""What a seed draws of an object store: whether its table lies in one, how slow that is, and what goes wrong there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from replitree_verify.simulation.options import MS, SECOND, Options
from replitree_verify.simulation.store.moving_options import MovingOptions

SHARE_OF_SEEDS = 0.25
"""Share of the seeds whose table lies in an object store."""

PATIENCE = 50
"""How many requests to the store a writer waits for its quorum, at least: every copy takes some of them."""


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


def patient(options: Options, store: StoreOptions) -> Options:
    """Return options whose writers wait long enough for copies that go through a store."""
    return replace(options, patience=max(options.patience, PATIENCE * store.request))


__all__ = ["SHARE_OF_SEEDS", "StoreOptions", "draw_store", "patient"]
