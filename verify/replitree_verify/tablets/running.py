"""The procedures that a model runs: each ends with an effect that says what it returns.

An operator's are `looking` and `accepting`: what `tablet.members.losses` does, with a question to the operator in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from replitree.protocol.program.stages import Then
from replitree.tablet.core import collecting, election, losses
from replitree.tablet.core import probing as probes
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.collecting import Kind as KindOfCommand
from replitree.tablet.core.losses import FORMAT, Assessment, LossRecord
from replitree.tablet.group import quorum, store
from replitree.tablet.group.effects import Collection, GroupEffect, NotKnown, Procedure, Put
from replitree.tablet.group.ids import Generation, GenStep
from replitree.tablet.group.quorum import Quorum
from replitree_verify.tablets.model import CHANNELS

T = TypeVar("T")
Groups = tuple[Quorum, ...]


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
        doubt = NotKnown("there is no loss to accept") if isinstance(found, Assessment) else found
        yield Ended(election.NotElected(None, doubt))
        return None
    yield Agreement(found)
    return Then(accepting, (issuer, found))


def accepting(issuer: str, agreed: Assessment) -> Procedure[None]:
    """Give up what was agreed on, and say how it ended."""
    record = LossRecord(FORMAT, issuer, "once", "a model", agreed.kept, agreed.unreadable, agreed.given_up)
    result = yield from losses.accept(CHANNELS, issuer, agreed, record)
    yield Ended(result, agreed)


# --- what members are asked -------------------------------------------------------------------------------------------------


def carrying(groups: Groups, effect: GroupEffect, on_store: bool) -> Procedure[None]:
    """Carry out an effect of a group, and say how it ended."""
    result = yield from carried_out(groups, effect, on_store)
    yield Ended(result)


def probing(groups: Groups, channels: Channels, generation: Generation, on_store: bool) -> Procedure[None]:
    """Ask whether a leader still leads, and say what the answer is."""
    found = yield from _over(groups, probes.probe(channels, generation), on_store)
    yield Ended(found)


def syncing(groups: Groups, put: Put, snapshot: GenStep, on_store: bool) -> Procedure[None]:
    """Store a sync entry, and say how it ended, and which snapshot it names."""
    result = yield from carried_out(groups, put, on_store)
    yield Ended((snapshot, result))


def sending(
    groups: Groups,
    channels: Channels,
    taken_everywhere: frozenset[KindOfCommand],
    commands: tuple[Collection, ...],
    on_store: bool,
) -> Procedure[None]:
    """Send commands to collect; say which they were, and what became of them."""
    result = yield from _over(groups, collecting.send(channels, taken_everywhere, commands), on_store)
    yield Ended((commands, result))


def _over(groups: Groups, procedure: Procedure[T], on_store: bool) -> Procedure[T]:
    """Run a procedure that asks groups by asking their members."""
    outcome: Any = None
    while True:
        try:
            effect = procedure.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        outcome = yield from carried_out(groups, effect, on_store)


def carried_out(groups: Groups, effect: GroupEffect, on_store: bool) -> Procedure[Any]:
    """Carry out an effect by asking members, who are numbered through all groups: those of other groups are not asked."""
    at = next(number for number, each in enumerate(groups) if each.group == effect.group)
    asking = (store.carry_out_on_store if on_store else quorum.carry_out)(groups[at], effect)
    if len(groups) == 1:
        return (yield from asking)
    before, after = ((None,) * sum(each.members for each in part) for part in (groups[:at], groups[at + 1 :]))
    outcome: Any = None
    while True:
        try:
            ask = asking.send(outcome)
        except StopIteration as stop:
            return stop.value
        replies = yield msgspec.structs.replace(ask, requests=(*before, *ask.requests, *after))
        # The procedure knows the members of its own group only.
        outcome = replies[len(before) : len(replies) - len(after)]
