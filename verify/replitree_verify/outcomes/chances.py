"""Whether trying an entry again that was postponed has a chance: what a process waits for before it does so.

The running replica tries again after a while, whatever has happened.  Here it waits until a try can lead further: so a state
in which no replica ever gets further is one in which none goes on, and `CONVERGES` is asked of it.

In a model in which parts are declared lost (`Here.loses`) it is looked at closely, in coordination too: a replica that
makes of what is left something else than `results` say throws it away, and would for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from replitree.coordination.tree import answer
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, FetchMany, FetchPart, Get, GetMany
from replitree.protocol.core.entries import GetEntry, LostEntry, MutateEntry, RewriteEntry, staged_names
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.execute.drop import must_wait
from replitree.protocol.execute.execute_lost import later_forms
from replitree.protocol.execute.rewrite import must_follow
from replitree.protocol.shares.share_effects import SharedPart, Sharer
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import LET_BE, View, contradicts, is_broken
from replitree_verify.process.shares import sharer_of
from replitree_verify.world.disk import Disk, merged_content, mutated_content

if TYPE_CHECKING:
    from replitree_verify.outcomes.local import Here
    from replitree_verify.world.shared_disk import SharedDisk


MARKS_WRITTEN = 2
"""So often a mark is written by tries of one entry."""


def has_source(fetch: FetchPart, disks: Mapping[str, Disk]) -> bool:
    """Whether one of a fetch's sources has the part with the right content."""
    return any(disks[source].content(fetch.part) == fetch.content_hash for source in fetch.sources if source in disks)


def can_execute(item: Queued, view: View, here: Here) -> bool:
    """Whether trying a postponed entry again has a chance: nothing is before it, and what it needs is somewhere."""
    if must_wait(view, item) or (here.objects is not None and _was_owned_again(item, view, here)):
        return False
    if isinstance(item.entry, LostEntry):
        return not here.loses or _can_renew(item, view, here)
    if isinstance(item.entry, RewriteEntry) and must_follow(view, item):
        return False
    if isinstance(item.entry, GetEntry | RewriteEntry):
        folder = here.disk.folder(item.entry.insert)
        staged = dict(folder.parts) if folder is not None and not folder.torn else {}
        keys = {part: key for key, part, _ in staged_names(item.entry, item.index)}
        wanted = tuple(part for part in item.change.added if view.wants(part))
        if isinstance(item.entry, RewriteEntry) and any(map(view.hides_kept, wanted)):
            return False
        return all(keys[part] in staged or _is_somewhere(part, view, here) for part in wanted)
    pairs: list[tuple[Part, tuple[Part, ...]]]
    if isinstance(item.entry, MutateEntry):
        # A mutation makes each result of one source; a merge makes its only result of all.
        pairs = [(result, (source,)) for source, result in zip(item.change.removed, item.change.added, strict=True)]
    else:
        pairs = [(result, item.change.removed) for result in item.change.added]
    if not any(view.wants(result) for result, _ in pairs):
        return True
    if view.sharer is not None:
        return any(
            _can_have(result, sources, view, view.sharer, here) for result, sources in pairs if view.wants(result)
        )
    can_bring = _can_bring_what_counts if here.loses else _can_bring
    may_be_made = [pair for pair in pairs if view.wants(pair[0]) and not view.hides_kept(pair[0])]
    return any(can_bring(item, result, sources, view, here) for result, sources in may_be_made)


def _was_owned_again(item: Queued, view: View, here: Here) -> bool:
    """Whether tries to register a part that an earlier commit, in doubt, has registered have written its mark often enough.

    Each one writes it again, as long as the puller has not loaded the queue: with its version the states would never end.
    """
    disk, sharer = cast("SharedDisk", here.disk), sharer_of(here.replica, here.memory.shares)
    unknown = (part.name for part in item.change.added if part not in view.held)
    parts = (part for part in unknown if here.tree.exists(layout.part(here.replica, part)))
    owned = (SharedPart(part, share, is_new=False) for part in parts for share in disk.shares_of(part))
    marks = (here.tree.get(sharer.mark(each)) for each in owned)
    return any(mark is not None and mark.version >= MARKS_WRITTEN for mark in marks)


def _can_bring(item: Queued, result: Part, sources: tuple[Part, ...], view: View, here: Here) -> bool:
    """Whether a result can be made, or fetched in the place of something."""
    del item
    if view.makes and all(source in view.held and here.disk.content(source.name) is not None for source in sources):
        return True
    begun = view.held.between(result.partition, result.block_min, result.block_max)
    return bool(begun) and any(disk.content(result.name) is not None for disk in here.disks.values())


def _can_have(result: Part, sources: tuple[Part, ...], view: View, sharer: Sharer, here: Here) -> bool:
    """Whether a result that one replica makes for all can be made here, or taken over."""
    table = sharer.replica.table
    if view.has_whole(sources) and here.disk.content(result.name) is not None:
        return True
    if view.can_make_of(sources):
        # The mark of another replica is watched; once the result is there, that is not looked at.
        mark = here.tree.get(layout.merged(table, result.name))
        if mark is None or mark.value == sharer.signature or here.tree.exists(layout.result(table, result.name)):
            return True
    others = (name for name, disk in here.disks.items() if name != here.replica.name and disk.content(result.name))
    return any(here.tree.exists(layout.part(Replica(table, name), result.name)) for name in others)


def _is_somewhere(part: Part, view: View, here: Here) -> bool:
    """Whether some disk has a part, or what it has become, in shares that still have owners."""
    forms = {part.name, (view.parts.covering(part) or part).name}
    found = [(disk, name) for disk in here.disks.values() for name in forms if disk.content(name) is not None]
    if here.objects is None:
        return bool(found)
    for disk, name in found:
        # A replica that leaves a dropped table releases its marks before its registrations.
        owned = (layout.share(here.replica.table, share) for share in cast("SharedDisk", disk).shares_of(name))
        if disk is here.disk or all(map(here.tree.exists, owned)):
            return True
    return False


# --- where parts are lost -----------------------------------------------------------------------------------------------------


def _can_bring_what_counts(item: Queued, result: Part, sources: tuple[Part, ...], view: View, here: Here) -> bool:
    """Whether a result can be made with the content that others have, if they have any, or can be fetched."""
    if view.hides_kept(result):
        return False
    if view.makes and all(source in view.held and source not in view.broken for source in sources):
        made = _content_made(item, result, sources, here)
        first = here.tree.get(layout.result(here.replica.table, result.name))
        # A result on disk that contradicts the others is removed by the next try: that is a step, so the try has a chance.
        is_published = here.disk.content(result.name) is not None
        if made is not None and (is_published or not contradicts(first, made)):
            return True
    if not view.held.between(result.partition, result.block_min, result.block_max):
        return False
    later = view.parts.covering(result) if any(source in view.broken for source in sources) else None
    return any(form is not None and _can_fetch(form, here) for form in (result, later))


def _content_made(item: Queued, result: Part, sources: tuple[Part, ...], here: Here) -> str | None:
    """Return what making a result gives; None when a source is not on the disk."""
    contents = tuple(content for source in sources if (content := here.disk.content(source.name)) is not None)
    if len(contents) < len(sources):
        return None
    if not isinstance(item.entry, MutateEntry):
        return merged_content(result.partition, contents)
    first = here.tree.get(layout.result(here.replica.table, result.name))
    own = here.tree.get(layout.part(here.replica, sources[0].name))
    if first is not None and own is not None and first.value in (LET_BE, own.value):
        return contents[0]
    return mutated_content(result.partition, contents[0], item.entry.command)


def _can_renew(item: Queued, view: View, here: Here) -> bool:
    """Whether a part that reaches over a lost one and is broken can be had as it is now; True when there is none."""
    assert isinstance(item.entry, LostEntry)
    lost = parse_part(item.entry.part)
    cover = view.held.covering(lost)
    own = here.tree.get(layout.part(here.replica, (cover or lost).name))
    if cover is None or cover == lost or own is None or not is_broken(own.value):
        return True
    return any(_can_fetch(form, here) for form in (cover, *later_forms(view, item, cover)))


def _can_fetch(part: Part, here: Here) -> bool:
    """Whether a replica could send a part now."""
    # The product's own procedure decides what would be fetched: it is run on the tree up to its first fetch, and dropped.
    procedure = fetch_anywhere(here.replica, part)
    outcome: Any = None
    try:
        while True:
            effect = procedure.send(outcome)
            if isinstance(effect, FetchMany):
                return has_source(effect.fetches[0], here.disks)
            assert isinstance(effect, Get | GetMany | Children)
            outcome = answer(here.tree, effect)
    except StopIteration:
        return False
