"""What a successor would find that nothing disturbs: asked at every state, with every choice of members that is enough.

* I17: it is elected, in a bounded number of questions
* I12: it finds all that it needs, and all that it refers to; nothing was collected too early
* I16: recovering once more, with whichever members, finds the same, and changes nothing where the same members answer
"""

from __future__ import annotations

from typing import Any

from replitree.tablet.core.election import Candidate, NotElected, Won, stand
from replitree.tablet.core.recovery import MissingEntries, RecoveredLog, recover
from replitree.tablet.group.effects import Fence, Overtaken, Procedure, RaiseFence
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.member import Holdings
from replitree_verify.tablets.invariants.data import base_of, broken_end, broken_needs
from replitree_verify.tablets.model import TABLET, Model
from replitree_verify.tablets.undisturbed import ISSUER, Undisturbed, enough_of


def broken_aftermath(model: Model, held: tuple[Holdings, ...]) -> str | None:
    """Return what a successor would run into, or None."""
    enough = enough_of(model)
    for present in enough:
        members = Undisturbed(model, held, present)
        result = members.run(stand(Candidate(model.channels, ISSUER)))
        if result is None:
            return f"I17: a successor that hears members {present} asks without end"
        if isinstance(result, NotElected) and isinstance(result.reason, MissingEntries):
            return f"I12: a successor that hears members {present} misses {result.reason.places}"
        if not isinstance(result, Won):
            return f"I17: a successor that hears members {present} is not elected: {result.reason}"
        # One copy is enough, if it is on a member that the successor hears: it stores the others again.
        broken = broken_needs(model, result.recovered.accepted, [members.held[number] for number in present], 1)
        if broken is not None:
            return f"{broken}, where a successor hears members {present}"
        broken = _broken_repetition(model, held, present, enough)
        if broken is not None:
            return broken
    return broken_end(model, held) if model.collects_data else None


def _broken_repetition(
    model: Model, held: tuple[Holdings, ...], present: tuple[int, ...], enough: list[tuple[int, ...]]
) -> str | None:
    members = Undisturbed(model, held, present)
    # Above every fence and every entry: no member refuses it, and nothing of another candidate is in its generation.
    fences = [fence.generation for each in held if (fence := each.fence(TABLET)) is not None]
    blobs = [blob.generation for each in held for blob in each.names]
    fence = Fence(Generation(max([0, *fences, *blobs]) + 1), ISSUER)
    first = members.run(_recovering(model, fence))
    if not isinstance(first, RecoveredLog):
        return None  # another candidate of this generation was here; `broken_aftermath` takes one that is free
    # The second recovery finds what the first has left behind, whichever members it hears.
    after = tuple(members.held)
    for others in enough:
        repeated = Undisturbed(model, after, others)
        again = repeated.run(_recovering(model, fence))
        if not isinstance(again, RecoveredLog):
            return f"I16: recovering again with members {others} ends with {again}"
        # Other members may know more, and copies of what the first could not see are stored then.
        if others == present and (again != first or tuple(repeated.held) != after):
            return f"I16: recovering again with members {others} changes something"
        # What a snapshot took in need not be found again.
        base = base_of(again.accepted)
        if [each for each in first.accepted if each[0] >= base and each not in again.accepted]:
            return f"I16: recovering with members {present}, and then with {others}, loses what was found"
    return None


def _recovering(model: Model, fence: Fence) -> Procedure[Any]:
    for group in model.groups:
        fenced = yield RaiseFence(group.group, TABLET, fence)
        if isinstance(fenced, Overtaken):
            return fenced
    return (yield from recover(model.channels, fence))
