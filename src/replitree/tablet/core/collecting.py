"""A leader's collections, as long as it leads: the rules for one command are in `collection`.

1. `said`: an entry is confirmed, and what it says of blobs is remembered.
2. `next_commands`: what may be said now, of the log and of the data channels.
3. `send`: the groups are asked, one command after the other.  Each kind of command goes to every group that its channel ever
   lay in, until all of these have taken one; from then on to the last group alone.
4. `sent`: what has not reached every member the next commands say again.

What a leader knows is a value, as its ledger is.  A leader that is overtaken sends nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from replitree.tablet.core.channels import Channels
from replitree.tablet.core.collection import Garbage, bound_of, collect, inherited, log_collection, noted, take, told
from replitree.tablet.core.commit import Ledger
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.recovery import Accepted
from replitree.tablet.group.effects import Collected, Collection, Overtaken, Procedure
from replitree.tablet.group.ids import LOG, Channel, Generation, GenStep, TabletId

Kind: TypeAlias = tuple[Channel, bool]
"""A channel, and whether a command is hard."""


@dataclass(frozen=True, slots=True)
class Collecting:
    """A leader's knowledge of its collections.

    Attributes
    ----------
    garbage
        Of its data channels.
    log_commands
        How many commands there were for the log.
    taken_everywhere
        The kinds of which every group has taken a command.
    """

    garbage: Garbage
    log_commands: int = 0
    taken_everywhere: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of some commands: those that every member has taken, and the present leader, if it is another one."""

    taken: tuple[Collection, ...]
    overtaken: Overtaken | None = None


def begun(tablet: TabletId, generation: Generation, accepted: Accepted) -> Collecting:
    """Return what a new leader knows: what the entries that count have said."""
    return Collecting(inherited(tablet, generation, accepted))


def said(collecting: Collecting, place: GenStep, entry: LogEntry) -> Collecting:
    """Take what a confirmed entry says; entries come in their order."""
    return replace(collecting, garbage=noted(collecting.garbage, place, entry))


def heard(collecting: Collecting, before: Ledger, after: Ledger) -> Collecting:
    """Take what the entries say that were confirmed between two states of the ledger."""
    for each in before.pending:
        if each.step <= after.confirmed:
            collecting = said(collecting, GenStep(before.generation, each.step), each.entry)
    return collecting


def next_commands(
    collecting: Collecting, ledger: Ledger, channels: Sequence[Channel], held: Sequence[GenStep] = ()
) -> tuple[Collecting, tuple[Collection, ...]]:
    """Return what may be collected now: of the log what the last confirmed snapshot replaces, and data up to the bound.

    Parameters
    ----------
    collecting, ledger
        What the leader knows.
    channels
        Those with data.
    held
        Places that a reader or a merge needs to stay as they are.
    """
    # Counted also when there is nothing to collect: a number is never used for two commands.
    number = collecting.log_commands + 1
    log = log_collection(ledger, number)
    garbage, commands = take(collecting.garbage, bound_of(ledger, held), channels)
    after = replace(collecting, garbage=garbage, log_commands=number)
    return after, commands if log is None else (log, *commands)


def send(channels: Channels, taken_everywhere: frozenset[Kind], commands: Sequence[Collection]) -> Procedure[Sent]:
    """Send commands, one after the other.

    Parameters
    ----------
    channels
        Where the tablet lies.
    taken_everywhere
        As of `Collecting`.
    commands
        In their order.
    """
    taken = list[Collection]()
    for command in commands:
        outcome = yield from collect(channels, command, everywhere=_kind_of(command) not in taken_everywhere)
        # The rest is the new leader's: it begins with what the entries that count say.
        if isinstance(outcome, Overtaken):
            return Sent(tuple(taken), outcome)
        if isinstance(outcome, Collected):
            taken.append(command)
    return Sent(tuple(taken))


def sent(collecting: Collecting, commands: Sequence[Collection], result: Sent) -> Collecting:
    """Take what became of commands, the last ones that there were."""
    of_data = [command for command in commands if command.channel != LOG]
    return replace(
        collecting,
        # One command that a member has missed keeps all orders: the next commands say them again.
        garbage=told(collecting.garbage) if set(of_data) <= set(result.taken) else collecting.garbage,
        taken_everywhere=collecting.taken_everywhere | {_kind_of(command) for command in result.taken},
    )


def _kind_of(command: Collection) -> Kind:
    return command.channel, command.is_hard
