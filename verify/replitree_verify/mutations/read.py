"""Mutations of reads: questions asked in another order or not at all, rows that are shown too early or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.fold import Change
from replitree.protocol.core.layout import PARENT_ENTRIES, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part
from replitree.protocol.state import read
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.read import ReadLevel
from replitree_verify.mutations.changes import Asked, changed
from replitree_verify.mutations.changes import Change as EffectChange
from replitree_verify.mutations.table import Patches, with_patches
from replitree_verify.process import reading
from replitree_verify.process.reading import AwaitAnswers, AwaitReadable, ReadView, ShowRows
from replitree_verify.world.kernel import Stage as StageFunction


def with_change(new_change: Callable[..., EffectChange], *names: str) -> dict[str, StageFunction]:
    """Return stages of `reading`, changed."""
    return {name: changed(getattr(reading, name), new_change) for name in names}


def with_others(patches: Patches, *names: str) -> dict[str, StageFunction]:
    """Return stages of `reading`, with functions of the protocol exchanged while they run."""
    return {name: with_patches(getattr(reading, name), patches) for name in names}


# --- the position -------------------------------------------------------------------------------------------------------------


def without_sync(*_: Any) -> EffectChange:
    """Ask for the end of the log without a commit before it, or a `Sync`."""

    def change(effect: Any) -> Asked:
        return fx.Applied() if isinstance(effect, fx.Commit) else (yield effect)

    return change


def only_synced(*_: Any) -> EffectChange:
    """Ask for the end of the log after a `Sync`, which the leader of coordination answers by itself."""

    def change(effect: Any) -> Asked:
        if not isinstance(effect, fx.Commit):
            return (yield effect)
        yield fx.Sync(effect.operations[0].path)
        return fx.Applied()

    return change


def _end_before_commit(table: TablePlace) -> fx.Procedure[fx.LogIndex | None]:
    """Ask for the end of the log first, and commit then."""
    number = yield fx.NextNumber(layout.log_parent(table, table.parent))
    yield fx.Commit(fx.Check(layout.log(table), fx.ANY_VERSION))
    return None if number is None else fx.LogIndex(table.parent * PARENT_ENTRIES + number)


def _end_of_own_parent(table: TablePlace) -> fx.Procedure[fx.LogIndex | None]:
    """Look at no other parent of the log than the one that the replica pulls from."""
    yield fx.Commit(fx.Check(layout.log(table), fx.ANY_VERSION))
    number = yield fx.NextNumber(layout.log_parent(table, table.parent))
    return None if number is None else fx.LogIndex(table.parent * PARENT_ENTRIES + number)


def same_session(*_: Any) -> EffectChange:
    """Do not notice that the session has changed."""

    def change(effect: Any) -> Asked:
        return 1 if isinstance(effect, fx.CurrentSession) else (yield effect)

    return change


def _own_pointer(
    level: ReadLevel, at_least: fx.LogIndex, pointer: fx.LogIndex, end: fx.LogIndex | None = None
) -> fx.LogIndex:
    """Take the replica's own pointer for the end of the log."""
    del level, end
    return max(pointer, at_least)


def forgetful(*_: Any) -> EffectChange:
    """Ask for nothing that the client has seen or written."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        return replace(outcome, floor=fx.LogIndex(0)) if isinstance(effect, AwaitAnswers) else outcome

    return change


# --- the rows -----------------------------------------------------------------------------------------------------------------


def once_pulled(*_: Any) -> EffectChange:
    """Wait until the entries are pulled, and show what is there."""
    held: list[PartSet] = []

    def change(effect: Any) -> Asked:
        if isinstance(effect, AwaitReadable):
            view: ReadView = yield replace(effect, executed=False)
            held.append(view.held)
            return view
        if isinstance(effect, ShowRows):
            effect = replace(effect, parts=tuple(part for part in effect.parts if part in held[0]))
        return (yield effect)

    return change


def what_is_visible(*_: Any) -> EffectChange:
    """Show what the replica shows anyway, whatever is executed early."""
    held: list[PartSet] = []

    def change(effect: Any) -> Asked:
        if isinstance(effect, AwaitReadable):
            view: ReadView = yield effect
            held.append(view.held)
            return view
        return (yield replace(effect, parts=tuple(held[0])) if isinstance(effect, ShowRows) else effect)

    return change


def _below(
    parts: PartSet,
    later: Iterable[Change],
    queue: Iterable[Queued],
    position: fx.LogIndex,
    is_here: Callable[[Part], bool],
    opened: tuple[fx.LogIndex, ...] = (),
) -> PartSet:
    """Show what is there now, but for what reaches over the position, merged parts too."""
    del later
    now = read.parts_at(parts, (), queue, fx.LogIndex(1 << 62), is_here, opened)
    return PartSet.of([part for part in now if part.block_max < position])


def _results_only(
    parts: PartSet,
    later: Iterable[Change],
    queue: Iterable[Queued],
    position: fx.LogIndex,
    is_here: Callable[[Part], bool],
    opened: tuple[fx.LogIndex, ...] = (),
) -> PartSet:
    """Of a merge that is not executed show neither the result nor the sources."""
    del queue
    shown = read.parts_at(parts, later, (), position, is_here, opened)
    return PartSet.of([part for part in shown if is_here(part)])


def _open_too(
    parts: PartSet,
    later: Iterable[Change],
    queue: Iterable[Queued],
    position: fx.LogIndex,
    is_here: Callable[[Part], bool],
    opened: tuple[fx.LogIndex, ...] = (),
) -> PartSet:
    """Show the rows of inserts that may yet fail."""
    del opened
    return read.parts_at(parts, later, queue, position, is_here)


OPEN_TOO: Patches = {(reading, "parts_at"): _open_too}
END_BEFORE_COMMIT: Patches = {(reading, "end_of_log"): _end_before_commit}
END_OF_OWN_PARENT: Patches = {(reading, "end_of_log"): _end_of_own_parent}
OWN_POINTER: Patches = {(reading, "position_of"): _own_pointer}
BELOW_ONLY: Patches = {(reading, "parts_at"): _below}
RESULTS_ONLY: Patches = {(reading, "parts_at"): _results_only}
