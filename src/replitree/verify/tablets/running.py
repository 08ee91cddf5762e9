"""The procedures that a model runs: each ends with an effect that says what it returns.

An operator's are `looking` and `accepting`: what `storage.blob_losses` does, with a question to the operator in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.tablet import election, losses, quorum, store
from replitree.tablet import probing as probes
from replitree.tablet.effects import GroupEffect, InDoubt, Procedure
from replitree.tablet.ids import Generation
from replitree.tablet.losses import FORMAT, Assessment, LossRecord
from replitree.verify.life import Then
from replitree.verify.tablets.model import CHANNELS


@dataclass(frozen=True, slots=True)
class Ended:
    """A procedure's last effect: what it returns; `agreed`: what an operator had agreed on."""

    value: Any
    agreed: Assessment | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """An operator is shown what would be lost, and agrees: at any time later, or never."""

    found: Assessment


def standing(candidate: election.Candidate) -> Procedure[None]:
    """Stand, and say how it ended."""
    result = yield from election.stand(candidate)
    yield Ended(result)


def looking(issuer: str) -> Procedure[Then | None]:
    """Look what would stay; the operator is asked when something can't be read."""
    found = yield from losses.assess(CHANNELS)
    if not isinstance(found, Assessment) or not found.unreadable:
        doubt = InDoubt("there is no loss to accept") if isinstance(found, Assessment) else found
        yield Ended(election.NotElected(None, doubt))
        return None
    yield Agreement(found)
    return Then(accepting, (issuer, found))


def accepting(issuer: str, agreed: Assessment) -> Procedure[None]:
    """Give up what was agreed on, and say how it ended."""
    record = LossRecord(FORMAT, issuer, "once", "a model", agreed.kept, agreed.unreadable, agreed.given_up)
    result = yield from losses.accept(CHANNELS, issuer, agreed, record)
    yield Ended(result, agreed)


def carrying(numbers: quorum.Quorum, effect: GroupEffect, on_store: bool) -> Procedure[None]:
    """Carry out an effect of a group, and say how it ended."""
    result = yield from (store.carry_out_on_store if on_store else quorum.carry_out)(numbers, effect)
    yield Ended(result)


def probing(numbers: quorum.Quorum, generation: Generation, on_store: bool) -> Procedure[None]:
    """Ask whether a leader still leads, and say what the answer is."""
    asking, outcome = probes.probe(CHANNELS, generation), None
    while True:
        try:
            effect = asking.send(outcome)
        except StopIteration as stop:
            yield Ended(stop.value)
            return
        outcome = yield from (store.carry_out_on_store if on_store else quorum.carry_out)(numbers, effect)
