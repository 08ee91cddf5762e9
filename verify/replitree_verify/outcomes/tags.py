"""How the effects of tags end, and those of the removal of old parts (`process.tags`)."""

from __future__ import annotations

from dataclasses import replace

from replitree.protocol.core import layout
from replitree.protocol.core.effects import EntryId
from replitree.protocol.program.tagger import (
    AwaitOld,
    AwaitTagging,
    OldTurn,
    ReleaseVersion,
    RemoveOld,
    TaggingTurn,
    TakenVersion,
    TakeVersion,
)
from replitree.protocol.upkeep.tags import TagValue
from replitree_verify.outcomes.local import Done, Here, remember
from replitree_verify.world.history import Log
from replitree_verify.world.memory import State

TAGGED = EntryId("tag")
"""The id of every command that makes a tag."""


def await_old(_effect: AwaitOld, here: Here) -> Done | None:
    """Wait until there are old parts without a lease that no known tag keeps, or tags have changed."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    old = tuple(name for name in here.disk.old if name not in memory.leased)
    node = here.tree.get(layout.tags(here.replica.table))
    is_known = (None if node is None else node.version) == memory.tags.version
    if not old or (is_known and memory.tags.parts.issuperset(old)):
        return None
    return remember(here, replace(memory, chosen=old), OldTurn(old, memory.tags))


def remove_old(effect: RemoveOld, here: Here) -> Done:
    """Delete what was chosen, still is, and is in no tag."""
    gone = (part for part in effect.parts if part in here.memory.chosen and part not in effect.tags.parts)
    return Done(None, replace(here.memory, chosen=(), tags=effect.tags), here.disk.without_parts(*gone))


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


def await_tagging(_effect: AwaitTagging, here: Here) -> Done | None:
    """Wait until the process is active."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    return remember(here, memory, TaggingTurn(here.me, memory.epoch))


def release_version(_effect: ReleaseVersion, here: Here) -> Done:
    """Keep the version's parts no longer."""
    return remember(here, replace(here.memory, leased=()))
