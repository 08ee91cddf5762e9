"""What must hold of openings, whatever happens: `O1` to `O4`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from replitree.tablet.group.ids import BlobId
from replitree.tablet.group.member import Holdings
from replitree_verify.openings.model import INCARNATIONS, QUORUM, TABLET, Model
from replitree_verify.openings.state import GroupState

DESCRIPTIONS: Mapping[str, str] = {
    "O1": "a process that has fenced and read has all blobs of earlier generations that are acknowledged, or ever will be",
    "O2": "a member that has forgotten what it had said to have does not answer as if it took part",
    "O3": "what is acknowledged is on as many members of the group as ever, but for one that has forgotten it",
    "O4": "a fence that held holds on as many members of the group as ever, but for one that has forgotten it",
}


def broken_reading(model: Model, state: GroupState, number: int, found: tuple[int, ...]) -> str:
    """Return what is wrong with what a seat has read; empty when nothing is."""
    own = model.seats[number].generation
    for each in state.acked:
        if model.seats[each].generation < own and each not in found:
            return f"O1: c{own} has not found what was acknowledged to c{model.seats[each].generation}"
    return state.wrong


def broken_acknowledgement(model: Model, state: GroupState, number: int) -> str:
    """Return what is wrong with an acknowledgement to a seat; empty when nothing is."""
    own = model.seats[number].generation
    for each, found in enumerate(state.found):
        if found is not None and model.seats[each].generation > own and number not in found:
            return f"O1: c{own} acknowledges what c{model.seats[each].generation} has not found"
    return ""


def violations(model: Model, held: Callable[[GroupState, int], Holdings], state: GroupState) -> Iterator[str]:
    """Give what does not hold in a state; `held`: what a member holds."""
    if state.wrong:
        yield state.wrong
    replaced = model.replaces if state.is_named else None
    members = tuple(len(INCARNATIONS) if number == replaced else number for number in range(len(INCARNATIONS)))
    # A member that has forgotten is counted: the group promises to survive one, and finds it out at the next opening.
    forgetful = sum(number in state.forgot for number in members)
    sound = [held(state, number) for number in members if number not in state.forgot]
    for number in state.acked:
        blob: BlobId = model.seats[number].blob
        if sum(each.index(blob) is not None for each in sound) + forgetful < QUORUM.write:
            yield f"O3: the blob of c{blob.generation} is on too few members"
    for number in state.fenced:
        generation = model.seats[number].generation
        fences = [each.fence(TABLET) for each in sound]
        holding = sum(fence is not None and fence.generation >= generation - 1 for fence in fences)
        if holding + forgetful < QUORUM.fence:
            yield f"O4: the fence of c{generation} holds on too few members"
