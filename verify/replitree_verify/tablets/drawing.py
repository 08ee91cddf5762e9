"""Models of tablets that are drawn: more leaders, commits and faults at once than can be explored to their end.

In some of them leaders collect data as a running tablet does, most often with the log and the data in two groups.
"""

from __future__ import annotations

from random import Random

from replitree_verify.tablets.model import Kind, Model, Seat
from replitree_verify.world.faults import Fault

SEATS_MAX = 4
COMMITS_MAX = 4

_KINDS = (Kind.PLAIN,) * 4 + (Kind.REFERENCE, Kind.REFERENCE, Kind.FREE, Kind.READ, Kind.SNAPSHOT, Kind.TOTAL)
_OF_SNAPSHOTS = (Kind.SNAPSHOT, Kind.TOTAL)

DATA_SHARE = 0.3
"""So many models collect data."""

_DATA_KINDS = (
    (Kind.REFERENCE,) * 3 + (Kind.LEAVE, Kind.STATE, Kind.COLLECT) * 2 + (Kind.SNAPSHOT, Kind.PLAIN, Kind.READ)
)


def draw_model(seed: int) -> Model:
    """Return the model that a seed stands for."""
    # A stream of its own: models without data are the same, however many have data.
    draw = Random(f"data {seed}")  # noqa: S311 - drawn to be drawn again
    if draw.random() < DATA_SHARE:
        return _with_data(seed, draw)
    draw = Random(f"model {seed}")  # noqa: S311 - drawn to be drawn again
    on_store = draw.random() < 0.25
    is_pair = not on_store and draw.random() < 0.1
    # Each candidate stands for a higher generation than the one before; rarely for the same, or with one left out.
    seats, generation = list[Seat](), 1
    for _ in range(draw.randint(2, SEATS_MAX)):
        seats.append(Seat(generation, tuple(draw.choices(_KINDS, k=draw.randint(0, COMMITS_MAX)))))
        generation += draw.choices((0, 1, 2), (1, 8, 1))[0]
    ahead = draw.random() < 0.8
    return Model(
        f"drawn-{seed}",
        f"drawn from {seed}",
        tuple(seats),
        faults={
            Fault.CRASH: draw.randint(0, 2),
            Fault.UNKNOWN: draw.randint(0, 2),
            Fault.SILENT: draw.randint(0, 2),
            Fault.ROT: int(not on_store and not is_pair and draw.random() < 0.15),
        },
        members=1 if on_store else 2 if is_pair else 3,
        write=1 if on_store else 2,
        ahead=ahead,
        in_turn=draw.random() < 0.3,
        prelude=draw.randint(0, min(2, len(seats[0].commits))) if ahead else 0,
        collects=any(kind in _OF_SNAPSHOTS for seat in seats for kind in seat.commits) and draw.random() < 0.8,
        on_store=on_store,
    )


def _with_data(seed: int, draw: Random) -> Model:
    """Return a model whose leaders collect data; each has a generation of its own, and nothing is damaged."""
    on_store = draw.random() < 0.2
    seats = tuple(
        Seat(generation, tuple(draw.choices(_DATA_KINDS, k=draw.randint(1, COMMITS_MAX + 1))))
        for generation in range(1, draw.randint(2, SEATS_MAX - 1) + 1)
    )
    # At least once: a model in which some leader collects is one with data (`collects_data`).
    first = Seat(1, (*seats[0].commits, Kind.COLLECT))
    return Model(
        f"drawn-{seed}",
        f"drawn from {seed}, with data",
        (first, *seats[1:]),
        faults={
            Fault.CRASH: draw.randint(0, 1),
            Fault.UNKNOWN: draw.randint(0, 2),
            Fault.SILENT: draw.randint(0, 1),
        },
        members=1 if on_store else 3,
        write=1 if on_store else 2,
        data_members=0 if on_store or draw.random() < 0.2 else draw.randint(2, 3),
        in_turn=draw.random() < 0.2,
        prelude=draw.randint(0, min(3, len(first.commits))),
        on_store=on_store,
    )
