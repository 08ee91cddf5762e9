"""Mutations of upkeep: deduplication ids, results, the parents of the log."""

# ruff: noqa: SLF001 - a mutation reaches into what it breaks

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Command, Entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part
from replitree.protocol.insert import insert
from replitree.protocol.membership.activate import renew_epoch
from replitree.protocol.membership.table import LOST
from replitree.protocol.program import leader
from replitree.protocol.propose import propose
from replitree.protocol.propose.propose import Proposer
from replitree.protocol.state import pull
from replitree.protocol.state.pull import Place
from replitree.protocol.upkeep import clean_blocks, clean_log
from replitree.protocol.upkeep.clean_blocks import Block, Blocks, Window
from replitree.protocol.upkeep.clean_results import Need
from replitree_verify.mutations.changes import Asked
from replitree_verify.mutations.changes import Change as EffectChange
from replitree_verify.mutations.stages import leaving_out
from replitree_verify.mutations.table import Patches

Some = Generator[Any, Any, Any]

# --- deduplication ids --------------------------------------------------------------------------------------------------------


def _outside_by_own_clock(blocks: Blocks, window: Window) -> tuple[fx.BlockId, ...]:
    """Take another clock for the service's: it is ten milliseconds ahead."""
    early = {block: replace(each, changed_ms=each.changed_ms - 10) for block, each in blocks.items()}
    newest = max(blocks, key=lambda block: blocks[block].changed_ms, default=None)
    if newest is not None:
        early[newest] = blocks[newest]
    return OUTSIDE(early, window)


def _newest_outside(blocks: Blocks, window: Window) -> tuple[fx.BlockId, ...]:
    """Forget the newest."""
    return OUTSIDE({block: replace(each, changed_ms=-each.changed_ms) for block, each in blocks.items()}, window)


def _of_count(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Set) and operation.path.endswith("/blocks")


def _believing_what_is_known(table: TablePlace, batch: tuple[fx.BlockId, ...], found: dict[fx.BlockId, Block]) -> Some:
    """Do not compare what is read again with what is remembered."""
    many: fx.Many = yield fx.GetMany(tuple(layout.block(table, block) for block in batch))
    return {block: node for block, node in zip(batch, many.nodes, strict=True) if node is not None and block in found}


def unversioned(*_: Any) -> EffectChange:
    """Remove ids whatever has become of them."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            effect = fx.Commit(
                *(
                    replace(each, version=fx.ANY_VERSION)
                    if isinstance(each, fx.Delete) and "/blocks/" in each.path
                    else each
                    for each in effect.operations
                )
            )
        return (yield effect)

    return change


def log_begins_where_it_began(*_: Any) -> EffectChange:
    """Ask once, before the search, where the log begins."""
    first: list[Any] = []

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Get) and effect.path.endswith("/log"):
            first.append((yield effect))
            return first[0]
        return (yield effect)

    return change


def _without_indexes(
    table: TablePlace, start: fx.LogIndex, find: Callable[[fx.LogIndex, Entry], Any], window: int
) -> Some:
    """Take the index from which an insert's entry is searched for its own."""
    del table, start, find, window
    yield from ()


def _any_note(cleaner: Replica, epoch: Any, notes: Any, blocks: Blocks) -> Some:
    """Forget notes of drops whatever ids are left."""
    del blocks
    return (yield from FORGET_NOTES(cleaner, epoch, notes, {}))


def _found_nowhere(*_: Any) -> Some:
    """Do not search the log."""
    yield from ()


def _settled_by_id(proposer: Proposer, epoch: fx.Epoch, command: Command) -> Some:
    """Believe that a command whose id is not there never came."""
    renewed = yield from renew_epoch(proposer.replica, proposer.me, epoch)
    known = yield from propose.find_command(proposer.replica.table, command.id)
    return renewed if known is None else known


OUTSIDE, FORGET_NOTES = clean_blocks.outside, clean_blocks._forget_notes

OWN_CLOCK: Patches = {(clean_blocks, "outside"): _outside_by_own_clock}
NEWEST_FIRST: Patches = {(clean_blocks, "outside"): _newest_outside}
KNOWN_BELIEVED: Patches = {(clean_blocks, "_read_again"): _believing_what_is_known}
ANY_NOTE: Patches = {(clean_blocks, "_forget_notes"): _any_note}
SEARCH_SKIPPED: Patches = {(clean_blocks, "search_log"): _without_indexes}
INSERT_BY_ID_ALONE: Patches = {(insert, "find_insert"): _found_nowhere}
COMMAND_BY_ID_ALONE: Patches = {(propose, "_settle"): _settled_by_id}
uncounted = leaving_out(_of_count)

# --- results ------------------------------------------------------------------------------------------------------------------


def without_queues(*_: Any) -> EffectChange:
    """Take what was pulled for executed."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Children) and effect.path.endswith("/queue"):
            return ()
        return (yield effect)

    return change


def all_are_lost(*_: Any) -> EffectChange:
    """Take every replica that is not active for lost."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, fx.GetMany) and effect.paths[0].endswith("/is_lost"):
            lost = (None if node is None else replace(node, value=LOST) for node in outcome.nodes)
            return fx.Many(tuple(lost))
        return outcome

    return change


ANY_ADDED = fx.Version(fx.ANY_VERSION)


def _needed_by_nobody(table: TablePlace) -> Some:
    """Ask no replica."""
    del table
    yield from ()
    return Need(fx.LogIndex(1_000_000), ANY_ADDED)


def _not_there(part: Part, place: Place) -> bool:
    """Take what is to come for what has left."""
    return part not in place.parts


def _anybody_may_join(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Check) and operation.path.endswith("/replicas")


NEEDED_BY_NOBODY: Patches = {(leader, "lowest_need"): _needed_by_nobody}
NOT_THERE: Patches = {(leader, "has_left"): _not_there}
unseen_added = leaving_out(_anybody_may_join)

# --- parents of the log -------------------------------------------------------------------------------------------------------


def _of_host(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Check) and operation.path.endswith("/host")


def _of_open_mark(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Check | fx.Delete) and "/open/" in operation.path


def rolling_again(*_: Any) -> EffectChange:
    """Append the last entry, also when the next parent is there already."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, fx.Commit) and isinstance(outcome, fx.Refused):
            again = tuple(each for each in effect.operations if isinstance(each, fx.Check) or _is_entry(each))
            outcome = yield fx.Commit(*again)
        return outcome

    return change


def _is_entry(operation: fx.Operation) -> bool:
    return isinstance(operation, fx.Create) and operation.sequential


def _one_more(index: fx.LogIndex, entry: Entry) -> fx.LogIndex:
    """Go on below the old parent, whatever the entry says."""
    del entry
    return fx.LogIndex(index + 1)


def _nothing_left_below(table: TablePlace, first: fx.LogIndex) -> Some:
    """Leave what is below the closed parent where it is."""
    del table
    yield from ()
    return fx.LogIndex((layout.parent_of(first) + 1) * layout.PARENT_ENTRIES), range(0)


unfenced = leaving_out(_of_host)
closed_or_open = leaving_out(_of_open_mark)
NEXT_IN_PARENT: Patches = {(pull, "next_index"): _one_more}
NOTHING_LEFT_BELOW: Patches = {(clean_log, "_left_below"): _nothing_left_below}
