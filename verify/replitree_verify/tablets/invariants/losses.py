"""What must hold when an operator accepts a loss.

* L1: nothing is given up but what the operator was shown and has agreed on, and what stays is what it was shown
* L2: a candidate that does not find what was acknowledged finds a record that says so, stored for good
* L3: nothing is given up that can be read on members that the operator has not named as away
* L4: an operator that nothing disturbs can accept what is lost; every later candidate, whichever members it hears, finds what
  was agreed on, and so does the one after it
* L5 to L7: what stays (`kept`)

What was given up counts as declined: I2 and I4 say that no leader acknowledges it any more, and that it never comes back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from replitree.tablet.core.election import Candidate, Won, stand
from replitree.tablet.core.losses import AUDIT, FORMAT, Assessment, LossRecord, accept, assess, decode_record
from replitree.tablet.group.ids import Generation, Step, log_entry
from replitree.tablet.group.member import Holdings
from replitree_verify.tablets.damage import can_be_read
from replitree_verify.tablets.invariants.kept import Truth, are_unsure, broken_choice, broken_copies, is_opening
from replitree_verify.tablets.model import CHANNELS, TABLET, Model
from replitree_verify.tablets.undisturbed import ISSUER, Undisturbed, enough_of

Place = tuple[int, int]

_PLACE, _SNAPSHOT = re.compile(r"(\d+):(\d+)"), re.compile(r"snapshot (\d+):(\d+)")

STEPS = 8
"""More than any leader of a model commits."""


def named_in(shown: Assessment | LossRecord) -> frozenset[Place]:
    """Return the places that an operator was shown to be lost, or that a record says are: a snapshot with all before it."""
    named = {*shown.given_up, *_places(_PLACE, shown.unreadable)}
    for generation, step in _places(_SNAPSHOT, shown.unreadable):
        before = ((each, number) for each in range(1, generation + 1) for number in range(1, STEPS))
        named |= {place for place in before if shown.kept < place <= (generation, step)}
    return frozenset(named)


def _places(pattern: re.Pattern[str], lines: Iterable[str]) -> list[Place]:
    return [(int(generation), int(step)) for line in lines for generation, step in pattern.findall(line)]


def given_up(held: Sequence[Holdings], after: int, last: int, write: int) -> frozenset[Place]:
    """Return what records say was lost, of generations that were opened: those above `after`, up to `last`."""
    found = frozenset[Place]()
    records = {
        blob: decode_record(blob, data)
        for each in held
        for blob, data in zip(each.names, each.data, strict=True)
        if blob.channel == AUDIT and data is not None
    }
    for blob, record in records.items():
        # An operator that is cut off leaves the record of a loss that did not take place: its generation was never opened.
        is_opened = any(each.index(log_entry(TABLET, blob.generation, Step(0))) is not None for each in held)
        is_stored = sum(each.index(blob) is not None for each in held) >= write
        if after < blob.generation <= last and is_opened and is_stored:
            found |= named_in(record)
    return found


def broken_loss(
    result: Won,
    agreed: Assessment,
    lost: Sequence[Place],
    held: Sequence[Holdings],
    asked: Sequence[Holdings],
    write: int,
) -> str | None:
    """Return what is wrong with a loss that was just accepted.

    Parameters
    ----------
    result, agreed
        How it ended; what the operator was shown.
    lost
        What was acknowledged and does not stay.
    held, asked
        What each member holds; those that were not named.
    write
        How many members must have what is stored.
    """
    generation = int(result.generation)
    if result.recovered.accepted != agreed.accepted:
        own = [place for place, _ in result.recovered.accepted]
        return f"L1: {own} stays in generation {generation}, and {[p for p, _ in agreed.accepted]} was agreed on"
    secret = sorted(set(lost) - named_in(agreed))
    if secret:
        return f"L1: {secret[0]} was acknowledged and is given up, and the operator was not shown it"
    if not set(lost) <= given_up(held, generation - 1, generation, write):
        return f"L2: generation {generation} is opened without {lost[0]}, and no record says why"
    # All that was stored before: if members that were not named have it whole, nothing was lost.
    earlier = {blob for each in held for blob in each.names if blob.channel != AUDIT and blob.generation < generation}
    if all(any(can_be_read(each, blob) for each in asked) for blob in earlier):
        return (
            f"L3: all of the log can be read on members that were not named, and {sorted(named_in(agreed))} is given up"
        )
    return None


def is_wrongly_missed(held: Sequence[Holdings], places: Iterable[Place], generation: int, write: int) -> bool:
    """Whether a candidate misses an entry that so many members can read that one of them must have told it.

    A later candidate may have restored it since: then it is not known what the candidate has seen.
    """
    fences = (fence.generation for each in held if (fence := each.fence(TABLET)) is not None)
    if max(fences, default=0) >= generation:
        return False
    blobs = [log_entry(TABLET, Generation(place[0]), Step(place[1])) for place in places]
    return any(sum(can_be_read(each, blob) for each in held) >= write for blob in blobs)


# --- what an operator would find that nothing disturbs ----------------------------------------------------------------------


def broken_acceptance(truth: Truth, held: tuple[Holdings, ...]) -> str | None:
    """Return what an operator that nothing disturbs would be shown, or run into, or a candidate after it; None: nothing."""
    for present in enough_of(truth.model):
        members, are_silent = Undisturbed(truth.model, held, present), are_unsure(truth.model, held, present)
        found = members.run(assess(CHANNELS))
        if not isinstance(found, Assessment):
            if are_silent:
                continue
            return f"L4: an operator that hears members {present} can't tell what is lost: {found}"
        if are_silent:
            return f"L6: an operator that hears members {present}, who can't tell what is lost, is shown {found.unreadable}"
        asked = [members.held[number] for number in present]
        # A zero entry that was about to be stored counts when it is found, and accepts what `truth` does not know of.
        broken = None if is_opening(truth, asked) else broken_choice(truth, found, asked)
        if broken is None and found.unreadable:
            record = LossRecord(FORMAT, ISSUER, "once", "a model", found.kept, found.unreadable, found.given_up)
            result = members.run(accept(CHANNELS, ISSUER, found, record))
            if not isinstance(result, Won):
                return f"L4: it is not done: {result}: an operator that hears members {present}"
            after, kept = tuple(members.held), [(int(place[0]), int(place[1])) for place, _ in found.accepted]
            broken = _broken_later(truth.model, after, found) or broken_copies(truth, kept, after, truth.model.write)
        if broken is not None:
            return f"{broken}: an operator that hears members {present}"
    return None


def _broken_later(model: Model, held: tuple[Holdings, ...], found: Assessment) -> str | None:
    """Return what a candidate that comes after would run into, or the one after it, which hears other members."""
    enough = enough_of(model)
    for others, again in zip(enough, (*enough[1:], enough[0]), strict=True):
        after = held
        for number, present in enumerate((others, again)):
            if are_unsure(model, after, present):
                continue
            members = Undisturbed(model, after, present)
            later = members.run(stand(Candidate(CHANNELS, f"after {ISSUER} {number}")))
            if not isinstance(later, Won):
                return f"L4: a candidate that hears members {present} then is not elected: {later}"
            if later.recovered.accepted != found.accepted:
                places = [place for place, _ in later.recovered.accepted]
                return f"L4: a candidate that hears members {present} then finds {places}"
            after = tuple(members.held)
    return None
