"""How the effects of tags end, and those of the removal of old parts (`process.tags`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId
from replitree.protocol.program.tagger import (
    AwaitNaming,
    AwaitOld,
    NamingTurn,
    OldTurn,
    ReleaseVersion,
    RemoveOld,
    TakenVersion,
    TakeVersion,
)
from replitree.protocol.upkeep.tags import TagValue
from replitree_verify.outcomes.consumers import kept_by
from replitree_verify.outcomes.local import Done, Here, remember
from replitree_verify.probes.catalog import Seen
from replitree_verify.world.history import Log
from replitree_verify.world.memory import State

TAGGED = EntryId("tag")
"""The id of every command that makes a tag."""


def await_old(_effect: AwaitOld, here: Here) -> Done | None:
    """Wait until there are old parts without a lease that no known tag or consumer keeps, or these have changed."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    log, table = Log(here.tree, here.replica.table), here.replica.table
    held = frozenset[str]().union(*(() if memory.feed_from is None else log.fed_from(memory.feed_from).values()))
    old = tuple(name for name in here.disk.old if name not in memory.leased and name not in held)
    parents = here.tree.get(layout.tags(table)), here.tree.get(layout.consumers(table))
    versions = tuple(None if node is None else node.version for node in parents)
    kept = memory.tags.parts | kept_by(memory.consumers, log)
    if not old or (versions == (memory.tags.version, memory.consumers.version) and kept.issuperset(old)):
        return None
    return remember(here, replace(memory, chosen=old), OldTurn(old, memory.tags, memory.consumers))


def remove_old(effect: RemoveOld, here: Here) -> Done:
    """Delete what was chosen, still is, and is kept by no tag and no consumer."""
    kept = effect.tags.parts | kept_by(effect.consumers, Log(here.tree, here.replica.table))
    gone = (part for part in effect.parts if part in here.memory.chosen and part not in kept)
    memory = replace(here.memory, chosen=(), tags=effect.tags, consumers=effect.consumers)
    return Done(None, memory, here.disk.without_parts(*gone))


def became_of_old_parts(seen: Seen) -> str | Literal[False]:
    """Return the rare branch that a removal of old parts belongs to."""
    if seen.disk_changed:
        return "old parts deleted"
    return "old parts kept" if seen.effect.tags.parts or seen.effect.consumers.holding else False


def take_version(effect: TakeVersion, here: Here) -> Done | None:
    """Wait until a version is here, and keep its parts."""
    memory, place = here.memory, here.memory.place
    if memory.state is not State.ACTIVE or memory.epoch is None or place is None or memory.torn:
        return None
    index = place.pointer.index if effect.index is None else effect.index
    if place.pointer.index < index or any(item.index < index for item in memory.queue):
        return None
    names = tuple(sorted(part.name for part in Log(here.tree, here.replica.table).parts_at(index)))
    if any(here.disk.content(name) is None for name in names):
        return None
    chosen = tuple(name for name in memory.chosen if name not in names)
    tag = TagValue(index, TAGGED, here.replica.name, names)
    return remember(here, replace(memory, chosen=chosen, leased=names), TakenVersion(here.me, memory.epoch, tag))


def await_tagging(_effect: AwaitNaming, here: Here) -> Done | None:
    """Wait until the process is active."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    return remember(here, memory, NamingTurn(here.me, memory.epoch))


def release_version(_effect: ReleaseVersion, here: Here) -> Done:
    """Keep the version's parts no longer."""
    return remember(here, replace(here.memory, leased=()))
