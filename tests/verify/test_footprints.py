"""What the moves of a thread depend on is in its footprint, by which they are remembered."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core.effects import EntryId, FindPart
from replitree.protocol.core.entries import MutateEntry
from replitree_verify.engine.initial import first_world
from replitree_verify.engine.moves import Thread, World
from replitree_verify.engine.space import Space
from replitree_verify.models.merge import BOTH, EVERYWHERE
from replitree_verify.world.disk import Disk
from replitree_verify.world.model import Ask, Insert, Model


def states(space: Space) -> set[World]:
    met = {first_world(space)}
    level = met
    while level:
        level = {world for each in level for world, *_ in space.successors(each)[0]} - met
        met |= level
    return met


def found(space: Space, thread: Thread, world: World) -> Iterator[str | None]:
    """Yield what is found on the disk by steps that are joined to the next one of a thread."""
    for move in space.moves(thread, world):
        yield from (turn.outcome for turn in move.turns[1:] if isinstance(turn.effect, FindPart))


def test_what_is_found_by_a_joined_step_is_what_the_disk_of_the_state_has() -> None:
    """Two replicas mutate two parts at once: the refused commit of both results is followed by a look for the first one."""
    space = Space(
        Model(
            "mutate_partitions",
            "two replicas mutate two parts",
            (("r1", "r1"), ("r2", "r2")),
            (Insert("r1", ((1, "a"),)),),
            {},
            workers=BOTH,
            started=BOTH,
            commands=(Ask("r2", 9, MutateEntry("r2", EntryId("m"), "*", "x")),),
            partitions=("p", "q"),
            prelude=("r1 ins 1", *EVERYWHERE, "r2 ask 9"),
        )
    )
    empty, looked = space.disks.number(Disk()), 0
    for world in states(space):
        for thread in space.threads:
            if world[thread.position] and any(each is not None for each in found(space, thread, world)):
                at = space.own_disk_at[thread.seat]
                on_nothing = (*world[:at], empty, *world[at + 1 :])
                assert {*found(space, thread, on_nothing)} <= {None}
                looked += 1
    assert looked > 0
