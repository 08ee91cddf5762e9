"""The mapping onto log cleaning, recovery, joining and dropping: `packed.models.truncate_log_mended`.

A replica that is active and not lost serves.  One that is half-built has taken over a pointer, and that counts as long as the
log has what is above it.  What the cleaner has seen and wants is in its memory and not in coordination.  Its commit proves
that nothing has changed since, so it may as well have looked just before: a removal is a look and a removal, and between steps
nobody wants anything.
"""

from __future__ import annotations

from replitree_published.bridge.mapping import Mapping
from replitree_published.bridge.outline import Outline, Standing, outline_of
from replitree_published.packed.models import truncate_log_mended as model
from replitree_published.packed.models.truncate_log_mended import MendedCleaningLimits

WIDE_ENOUGH = (1 << model.WIDE) - 1


def limits_for(replicas: int) -> MendedCleaningLimits:
    """Return limits of the packed model under which every log of these replicas has room."""
    return MendedCleaningLimits(replicas=replicas, records=WIDE_ENOUGH)


def state_of(outline: Outline, limits: MendedCleaningLimits) -> int:
    """Return the state that an outline stands for."""
    state = model.with_number(model.with_number(0, limits, 0, outline.end), limits, 1, outline.first)
    for number, standing in enumerate(outline.replicas):
        state = model.with_block(state, limits, number, _block(standing, outline.first))
    return state


def _block(standing: Standing, first: int) -> int:
    active = model.ACTIVE if standing.is_active else 0
    if not standing.is_lost:
        return active | (model.SERVES if active else 0) | standing.pointer << model.FLAGS
    if standing.is_half_built and standing.pointer >= first:
        return active | model.LOST | model.CLONING | standing.pointer << model.FLAGS
    return active | model.LOST


def seen_of(state: int, _: MendedCleaningLimits) -> int:
    """Return the state without what coordination does not show, and nobody asks for while nothing is wanted."""
    return state & ~model.CHANGED


def is_between(state: int, start: int, goal: int, limits: MendedCleaningLimits) -> bool:
    """Tell whether a way from start to goal may go through a state: nobody moves who stands at the goal as at the start."""
    for which in range(2):
        low, high = model.number(start, limits, which), model.number(goal, limits, which)
        if not low <= model.number(state, limits, which) <= high:
            return False
    wanted, gone = model.number(state, limits, 2), model.number(goal, limits, 1)
    if wanted and (wanted != gone or gone == model.number(start, limits, 1)):
        return False
    return all(_moves(state, start, goal, limits, replica) for replica in range(limits.replicas))


def _moves(state: int, start: int, goal: int, limits: MendedCleaningLimits, replica: int) -> bool:
    here, before, after = (model.block_of(each, limits, replica) for each in (state, start, goal))
    return here in (before, after) or (before != after and here >> model.FLAGS <= max(before, after) >> model.FLAGS)


CLEANING = Mapping("cleaning", model.MODEL, Outline, outline_of, limits_for, state_of, seen_of, is_between)
