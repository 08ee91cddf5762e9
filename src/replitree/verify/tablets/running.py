"""The procedures that a model runs: each ends with an effect that says what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replitree.tablet import election, quorum, store
from replitree.tablet import probing as probes
from replitree.tablet.effects import GroupEffect, Procedure
from replitree.tablet.ids import Generation
from replitree.verify.tablets.model import CHANNELS


@dataclass(frozen=True, slots=True)
class Ended:
    """A procedure's last effect: what it returns."""

    value: Any


def standing(candidate: election.Candidate) -> Procedure[None]:
    """Stand, and say how it ended."""
    result = yield from election.stand(candidate)
    yield Ended(result)


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
