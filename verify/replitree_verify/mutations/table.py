"""Mutations of merges, mutations and drops: bugs that systems of the field have had, as small changes of our procedures.

Some change effects, as in `changes`; others exchange a function of the protocol while a stage runs (`patched`).
`docs/known-bugs.md` says which bug each one is.
"""

# ruff: noqa: SLF001 - a mutation reaches into what it breaks

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import fold, layout
from replitree.protocol.core.entries import DropEntry, GetEntry
from replitree.protocol.core.fold import Change
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, merged_part, parse_part
from replitree.protocol.execute import drop, execute, making, mutate
from replitree.protocol.execute.making import MakeOutcome, Making
from replitree.protocol.membership import leader
from replitree.protocol.program import keeper
from replitree.protocol.program.stages import ReportTrouble, TakeIn
from replitree.protocol.state import start
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Loaded, Pointer, Queued
from replitree.protocol.state.registration import ExecuteOutcome, View, failure
from replitree_verify.mutations.changes import Asked, find_stage
from replitree_verify.mutations.changes import Change as EffectChange
from replitree_verify.world.kernel import Stage as StageFunction

Patches: TypeAlias = Mapping[tuple[ModuleType | type, str], Any]


def patched(patches: Patches, *names: str) -> dict[str, StageFunction]:
    """Return the stages with these names, with functions of the protocol exchanged while they run."""
    return {name: with_patches(find_stage(name), patches) for name in names}


def with_patches(stage: StageFunction, patches: Patches) -> StageFunction:
    """Return a stage, with functions of the protocol exchanged while it runs."""

    def run(*arguments: Any) -> Generator[Any, Any, Any]:
        procedure = stage(*arguments)
        outcome: Any = None
        while True:
            try:
                with _exchanged(patches):
                    effect = procedure.send(outcome)
            except StopIteration as stop:
                return stop.value
            outcome = yield effect

    return run


@contextmanager
def _exchanged(patches: Patches) -> Iterator[None]:
    before = {key: getattr(*key) for key in patches}
    for (module, name), function in patches.items():
        setattr(module, name, function)
    try:
        yield
    finally:
        for (module, name), function in before.items():
            setattr(module, name, function)


# --- the fold -----------------------------------------------------------------------------------------------------------------


def _keep_lowest_mutation(sources: tuple[Part, ...]) -> Part:
    return merged_part(sources)._replace(mutation=min(source.mutation for source in sources))


def _whatever_is_there(parts: PartSet, partition: str, index: fx.LogIndex) -> tuple[Part, ...]:
    del index
    return tuple(part for part in parts if partition in ("*", part.partition))


def _mutate_what_is_here(
    replica: Replica, epoch: fx.Epoch, view: View, item: Queued
) -> Generator[Any, Any, ExecuteOutcome]:
    """Mutate the parts that are here, and believe that those which are still being merged need nothing."""
    pairs = zip(item.change.removed, item.change.added, strict=True)
    here = [pair for pair in pairs if pair[0] in view.held]
    change = Change(tuple(source for source, _ in here), tuple(result for _, result in here))
    return (yield from mutate.execute_mutation(replica, epoch, view, replace(item, change=change)))


MUTATE_WHAT_IS_HERE: Patches = {(execute, "execute_mutation"): _mutate_what_is_here}
KEEP_LOWEST_MUTATION: Patches = {(fold, "merged_part"): _keep_lowest_mutation}
CHANGE_LATER_BLOCKS: Patches = {(fold, "_earlier"): _whatever_is_there}

# --- drops --------------------------------------------------------------------------------------------------------------------


def _never(view: View, item: Queued) -> bool:
    del view, item
    return False


def _wait_for_inserts_only(view: View, item: Queued) -> bool:
    inserts = tuple(each for each in view.blockers if isinstance(each.entry, GetEntry))
    return must_wait(replace(view, blockers=inserts), item)


def _wait_for_changes_only(view: View, item: Queued) -> bool:
    touched = (part for each in view.blockers for part in (*each.change.removed, *each.change.added))
    return any(part.intersects(gone) for part in touched for gone in item.change.removed)


def _of_all_blocks(item: Queued) -> tuple[int, int, tuple[str, ...]]:
    first, _, partitions = _scope(item)
    return first, 1_000_000, partitions


def _what_the_entry_named(replica: Replica, item: Queued) -> Generator[Any, Any, tuple[Part, ...]]:
    """Find what is registered of the parts that the drop removed when it was pulled, as far as these cover it."""
    names: tuple[str, ...] = (yield fx.Children(layout.parts(replica))) or ()
    return tuple(part for part in map(parse_part, names) if any(gone.covers(part) for gone in item.change.removed))


def _what_is_not_covered(replica: Replica, item: Queued) -> Generator[Any, Any, tuple[Part, ...]]:
    """Find what is registered, but for parts that another one covers."""
    found = yield from _registered(replica, item)
    return tuple(part for part in found if not any(each != part and each.covers(part) for each in found))


must_wait = drop.must_wait
_scope = drop._scope
_registered = drop._registered

DROP_AT_ONCE: Patches = {(drop, "must_wait"): _never}
DROP_DURING_MERGE: Patches = {(drop, "must_wait"): _wait_for_inserts_only}
DROP_BEFORE_COVERED_INSERT: Patches = {(drop, "must_wait"): _wait_for_changes_only}
DROP_LATER_BLOCKS: Patches = {(drop, "_scope"): _of_all_blocks}
DROP_NAMED_PARTS: Patches = {(drop, "_registered"): _what_the_entry_named}
DROP_UNCOVERED_PARTS: Patches = {(drop, "_registered"): _what_is_not_covered}

# --- detaches -----------------------------------------------------------------------------------------------------------------


def _only_what_the_table_has(replica: Replica, view: View, item: Queued) -> tuple[tuple[Part, str], ...]:
    del replica
    return tuple(row for row in execute._parts(item) if view.wants(row[0]))


def _wait_for_all_but_detaches(view: View, item: Queued) -> bool:
    others = tuple(each for each in view.blockers if not isinstance(each.entry, DropEntry))
    return must_wait(replace(view, blockers=others), item)


def failure_means_missing(*_: Any) -> EffectChange:
    """Take what the disk has failed to publish for what is not there."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, fx.Publish) and isinstance(outcome, fx.StoreFailed):
            return fx.Published(tuple(name for _, name in effect.names))
        return outcome

    return change


def staging_removed_after_failure(*_: Any) -> EffectChange:
    """Remove the staging of an insert that the disk has failed to publish, as if the parts had their names."""

    def change(effect: Any) -> Asked:
        outcome = yield effect
        if isinstance(effect, fx.Publish) and isinstance(outcome, fx.StoreFailed):
            yield fx.RemoveStaging(effect.staging)
        return outcome

    return change


OWN_INSERTS_SKIPPED: Patches = {(execute, "_wanted"): _only_what_the_table_has}
DETACHED_HIDDEN: Patches = {(View, "hides_kept"): lambda _view, _result: False}
DROP_BEFORE_DETACH: Patches = {(drop, "must_wait"): _wait_for_all_but_detaches}

# --- results ------------------------------------------------------------------------------------------------------------------


def _fetch_whatever_is_held(making_: Making, view: View, *, later: bool = False) -> Generator[Any, Any, MakeOutcome]:
    """Fetch a result also when the commit would deregister nothing."""
    del later
    content_hash = yield from fetch_anywhere(making_.replica, making_.result)
    if content_hash is None:
        return making.Waits("nobody has it")
    result = making_.result
    gone = view.held.between(result.partition, result.block_min, result.block_max)
    replacing = replace(making_, sources=gone)
    committed = yield fx.Commit(
        fx.Check(layout.host(making_.replica), making_.epoch), *making._replacing(replacing, content_hash)
    )
    if not isinstance(committed, fx.Applied):
        return failure(committed)
    yield fx.Reveal((result.name,), tuple(part.name for part in gone))
    return making.Brought()


def _fetch_any_cover(replica: Replica, view: View, parts: tuple[str, ...]) -> Generator[Any, Any, dict[Part, str]]:
    """Fetch whatever covers a part, whether this replica has heard of it or not."""
    del view
    found: dict[Part, str] = {}
    for other in (yield fx.Children(layout.replicas(replica.table))) or ():
        names = (yield fx.Children(layout.parts(Replica(replica.table, other)))) or ()
        covers = [part for part in map(parse_part, names) if any(part.covers(parse_part(name)) for name in parts)]
        for part in covers if other != replica.name else ():
            content_hash = yield from fetch_anywhere(replica, part)
            if content_hash is not None:
                found[part] = content_hash
    return found


RESULT_INTO_NOTHING: Patches = {(making, "fetch_result"): _fetch_whatever_is_held}
ANY_COVERING_PART: Patches = {(execute, "_fetch_later_forms"): _fetch_any_cover}


def never_comparing(*_: Any) -> EffectChange:
    """Publish a result without looking at what others have published."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Get) and "/results/" in effect.path:
            return None
        if isinstance(effect, fx.Commit):
            effect = fx.Commit(*(each for each in effect.operations if "/results/" not in each.path))
        return (yield effect)

    return change


def making_again(*_: Any) -> EffectChange:
    """Make a result again although an earlier try has published one (a bug that the simulator found)."""

    def change(effect: Any) -> Asked:
        return None if isinstance(effect, fx.FindPart) else (yield effect)

    return change


def deregistering_first(*_: Any) -> EffectChange:
    """Take the sources back in a commit of their own, before the result is registered."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            check, *rest = effect.operations
            sources = [each for each in rest if isinstance(each, fx.Delete) and "/parts/" in each.path]
            if sources and len(sources) < len(rest):
                first = yield fx.Commit(check, *sources)
                if not isinstance(first, fx.Applied):
                    return first
                effect = fx.Commit(check, *(each for each in rest if each not in sources))
        return (yield effect)

    return change


def without_id(*_: Any) -> EffectChange:
    """Put a command into the log without taking its id."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            effect = fx.Commit(*(each for each in effect.operations if "/blocks/" not in each.path))
        return (yield effect)

    return change


def letting_be(*_: Any) -> EffectChange:
    """Give a part its mutated name and leave its rows as they are."""

    def change(effect: Any) -> Asked:
        if not isinstance(effect, fx.Mutate):
            return (yield effect)
        return (yield fx.Link(effect.staging, effect.source, effect.result, effect.for_all))

    return change


def killing_published(*_: Any) -> EffectChange:
    """Kill a mutation also for parts that a replica has mutated already."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.GetMany) and any("/results/" in path for path in effect.paths):
            found: fx.Many = yield effect
            pairs = zip(effect.paths, found.nodes, strict=True)
            return fx.Many(tuple(None if "/results/" in path else node for path, node in pairs))
        if isinstance(effect, fx.Commit):
            claims = [each for each in effect.operations if isinstance(each, fx.Create)]
            for claim in claims:
                yield fx.Commit(effect.operations[0], fx.Set(claim.path, claim.value, fx.ANY_VERSION))
        return (yield effect)

    return change


# --- tokens, places -----------------------------------------------------------------------------------------------------------


def taking_over_unversioned(*_: Any) -> EffectChange:
    """Take a free block id over by deleting and creating it, not by the version at which it was seen to be free."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            operations: list[Any] = []
            for each in effect.operations:
                if isinstance(each, fx.Set) and "/blocks/" in each.path:
                    operations += [fx.Delete(each.path, fx.ANY_VERSION), fx.Create(each.path, each.value)]
                else:
                    operations.append(each)
            effect = fx.Commit(*operations)
        return (yield effect)

    return change


def older_pull_wins(*_: Any) -> EffectChange:
    """Take in what a pull brought although another thread has pulled further (a bug that the explorer found)."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, TakeIn):
            place = effect.place
            newest = Pointer(place.pointer.index, fx.Version(place.pointer.version + 1000))
            effect = TakeIn(replace(place, pointer=newest), effect.entries)
        return (yield effect)

    return change


# --- the election, forgetting -------------------------------------------------------------------------------------------------


def _nobody(replica: Replica) -> Generator[Any, Any, None]:
    """Find no node of one's own."""
    del replica
    yield from ()


def _forget_what_is_to_come(replica: Replica, epoch: fx.Epoch, loaded: Loaded) -> Generator[Any, Any, bool]:
    """Forget what the table at the pointer covers, whether or not the covering part is registered."""
    covered = tuple(part.name for part in loaded.held if loaded.place.parts.covering(part) not in (None, part))
    forgotten: bool = yield from start.forget_covered(replica, epoch, replace(loaded, covered=covered))
    return forgotten


NODE_NOT_LOOKED_FOR: Patches = {(leader, "_own_node"): _nobody}
FORGET_WHAT_IS_TO_COME: Patches = {(keeper, "forget_covered"): _forget_what_is_to_come}


def standing_in_doubt(*_: Any) -> EffectChange:
    """Stand again although an earlier try may still be on its way (a bug that the explorer found)."""

    def change(effect: Any) -> Asked:
        return None if isinstance(effect, ReportTrouble) else (yield effect)

    return change
