"""Mutants of what keeps the groups of all channels together, and of the collection of data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from replitree.tablet.core import collecting, collection, recovery
from replitree.tablet.core.channels import Channels, in_one_group
from replitree.tablet.core.collecting import Collecting
from replitree.tablet.core.collection import Garbage
from replitree.tablet.core.commit import Draft, Ledger
from replitree.tablet.core.recovery import Accepted
from replitree.tablet.group import member
from replitree.tablet.group.effects import Collect, Collection, Fence, Overtaken, Procedure
from replitree.tablet.group.ids import LOG, Channel, Generation, GenStep, GroupId, Step, TabletId
from replitree.tablet.group.member import Done, Holdings
from replitree_verify.tablets import drafts, members
from replitree_verify.tablets.model import Kind
from replitree_verify.tablets.mutants.mutant import Mutant

_take, _next_commands = collection.take, collecting.next_commands
_member_sweep = member._sweep  # noqa: SLF001 - mutants reach into what they break
_commands, _present_references = collection._commands, recovery._present_references  # noqa: SLF001 - mutants reach into what they break
_with_lists = drafts._with_lists  # noqa: SLF001 - as above

Taken = tuple[Garbage, tuple[Collection, ...]]


def _groups_of_the_log(channels: Channels) -> tuple[GroupId, ...]:
    return tuple(dict.fromkeys(group for _, group in channels.histories[LOG]))


def _looked_for_with_the_log(channels: Channels, fence: Fence | None, log: recovery.LogAsRead) -> Procedure[Any]:
    """Look for references where the entries are."""
    group = channels.group(LOG, log.latest.blob.generation)
    return (yield from _present_references(in_one_group(channels.tablet, group), fence, log))


def _collected_with_the_log(channels: Channels, command: Collection, *, everywhere: bool) -> Procedure[Any]:
    """Send every command to the group of the log."""
    del everywhere
    return (yield Collect(channels.group(LOG, command.order[0]), command))


def _nothing_kept(garbage: Garbage, channel: Channel, floor: GenStep) -> tuple[Collection, Collection]:
    soft, hard = _commands(garbage, channel, floor)
    return Collection(soft.tablet, soft.channel, soft.order, soft.barrier, (), soft.dont_keep), hard


def _nothing_hard(garbage: Garbage, channel: Channel, floor: GenStep) -> tuple[Collection, ...]:
    return _commands(garbage, channel, floor)[:1]


def _begin_of(garbage: Garbage) -> GenStep:
    return GenStep(garbage.generation, Step(0))


def _one_too_high(garbage: Garbage, bound: GenStep, channels: Sequence[Channel]) -> Taken:
    generation, step = max(bound, _begin_of(garbage))
    return _take(garbage, GenStep(generation, Step(step + 1)), channels)


def _left_with_the_first_barrier(garbage: Garbage, bound: GenStep, channels: Sequence[Channel]) -> Taken:
    """Let the first barrier take what accepted entries left, although nothing has taken their place."""
    return _take(garbage, max(bound, _begin_of(garbage)), channels)


def _no_first_barrier(garbage: Garbage, bound: GenStep, channels: Sequence[Channel]) -> Taken:
    return (garbage, ()) if bound < _begin_of(garbage) else _take(garbage, bound, channels)


def _up_to_what_is_confirmed(ledger: Ledger, held: Sequence[GenStep] = ()) -> GenStep:
    """Pass snapshots that no stored entry names."""
    return min(GenStep(ledger.generation, ledger.confirmed), *held, GenStep(ledger.generation, ledger.last))


def _heard_when_sent(
    known: Collecting, ledger: Ledger, channels: Sequence[Channel], held: Sequence[GenStep] = ()
) -> tuple[Collecting, tuple[Collection, ...]]:
    """Listen to entries that may never count."""
    last = GenStep(ledger.generation, ledger.last)
    early = structs.replace(ledger, confirmed=ledger.last, snapshot_durable=last)
    return _next_commands(collecting.heard(known, ledger, early), early, channels, held)


def _deposed_may_collect_data(held: Holdings, collection: Collection) -> tuple[Holdings, Done | Overtaken]:
    """Obey a leader that was deposed, where data is collected."""
    if collection.channel == LOG:
        return _member_sweep(held, collection)
    after, reply = _member_sweep(replace(held, fences=()), collection)
    return replace(after, fences=held.fences), reply


def _nothing_inherited(tablet: TabletId, generation: Generation, _: Accepted) -> Garbage:
    return Garbage(tablet, generation)


def _nothing_again(ledger: Ledger, known: Collecting, kind: Kind, number: int) -> Draft:
    draft = _with_lists(ledger, known, kind, number)
    return structs.replace(draft, gc_discovered=(), gc_left=()) if kind is Kind.SNAPSHOT else draft


DATA_MUTANTS = (
    Mutant("fence-of-the-log-alone", "two_groups_deposed", "I2", ((Channels, "groups", _groups_of_the_log),)),
    Mutant(
        "references-looked-for-with-the-log",
        "two_groups",
        "I3",
        ((recovery, "_present_references", _looked_for_with_the_log),),
    ),
    Mutant(
        "data-collected-with-the-log",
        "two_groups_collected",
        "I19",
        ((collecting, "collect", _collected_with_the_log),),
    ),
    Mutant("keep-left-out", "data_tail", "I12", ((collection, "_commands", _nothing_kept),)),
    Mutant("hard-barrier-left-out", "data_state", "I19", ((collection, "_commands", _nothing_hard),)),
    Mutant("data-barrier-one-too-high", "data_flying", "I12", ((collecting, "take", _one_too_high),)),
    Mutant("left-with-the-first-barrier", "data_tail", "I12", ((collecting, "take", _left_with_the_first_barrier),)),
    Mutant("first-barrier-left-out", "data_flying", "I19", ((collecting, "take", _no_first_barrier),)),
    Mutant("unnamed-snapshot-passed", "data_left", "I12", ((collecting, "bound_of", _up_to_what_is_confirmed),)),
    Mutant("heard-when-sent", "data_state", "I12", ((collecting, "next_commands", _heard_when_sent),)),
    Mutant("lists-lost-at-a-take-over", "data_tail", "I12", ((collecting, "inherited", _nothing_inherited),)),
    Mutant(
        "deposed-collects-data",
        "two_groups_both_collect",
        "I13",
        ((member, "_sweep", _deposed_may_collect_data), (members, "is_dead", lambda *_: False)),
    ),
    Mutant("lists-lost-with-a-snapshot", "data_again", "I12", ((drafts, "_with_lists", _nothing_again),)),
)
