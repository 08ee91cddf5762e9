"""Execute a loss: the lost part becomes empty on every replica, and what was made of it is made anew.

Files that a fenced fetch or merge has left on a disk do not count any more: while the entry is in the queue no replica makes
anything of the part (`registration.to_be_kept`), and the execution sets aside every unregistered part that covers it.

A replica that had made a cover of the part, which then broke, has neither the part nor its sources.  It waits until another
replica has made the same cover anew, of the empty part, and fetches that, or a later form of it.  If no other replica can make
it, the cover is a lost part itself, and is declared so (`protocol.upkeep.lost`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import LostEntry, MergeEntry, MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.execute.making import staged_result
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import (
    ExecuteOutcome,
    QueueMoved,
    View,
    deregister,
    finish,
    is_broken,
    postpone,
    register,
)


def execute_lost(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Make the lost part empty here.  Rows of it that are here all the same are set aside."""
    entry = item.entry
    assert isinstance(entry, LostEntry)
    part = parse_part(entry.part)
    makers = (each for each in view.blockers if isinstance(each.entry, MergeEntry | MutateEntry))
    if any(made.intersects(part) for maker in makers for made in maker.change.added):
        return postpone(item.index, "something is still being made of it")
    cover = view.held.covering(part)
    if cover is not None and cover != part:
        return (yield from _renew(replica, epoch, view, item, cover))
    own = yield fx.Get(layout.part(replica, part.name))
    # The part was dropped; or it has another name by now, made of the empty part.
    if own is None and not view.wants(part):
        return (yield from finish(replica, epoch, (item.index,)))
    if own is not None and own.value == entry.content_hash.encode():
        return (yield from finish(replica, epoch, (item.index,)))
    if own is not None and not is_broken(own.value):
        kept = yield fx.Detach((part.name,))
        if isinstance(kept, fx.StoreFailed):
            return postpone(item.index, kept.reason)
    yield from _remove_made_of(view, part)
    found = yield fx.FindPart(part.name)
    # If the empty part is here, an earlier try came that far, and reads may show it already.
    if found != entry.content_hash:
        trouble = yield from _publish_empty(part, entry)
        if trouble is not None:
            return postpone(item.index, trouble)
    claim = (
        register(replica, part, entry.content_hash)
        if own is None
        else fx.Set(layout.part(replica, part.name), entry.content_hash.encode(), own.version)
    )
    inside = view.held.between(part.partition, part.block_min, part.block_max)
    gone = tuple(each for each in inside if each != part)
    operations = (claim, *(deregister(replica, each) for each in gone))
    return (yield from finish(replica, epoch, (item.index,), operations, (part,), gone))


def _publish_empty(part: Part, entry: LostEntry) -> fx.Procedure[str | None]:
    """Put the empty part in the place of what is there; return what is wrong."""
    staging = staged_result(part)
    made: fx.Made | fx.StoreFailed = yield fx.MakeEmpty(staging, part.name, entry.schema_version)
    if not isinstance(made, fx.Made):
        return made.reason
    if made.content_hash != entry.content_hash:
        yield fx.RemoveStaging(staging)
        return f"the empty part is made differently here: {made.content_hash}"
    yield fx.RemovePart(part.name)
    published = yield fx.Publish(staging, ((part.partition, part.name),))
    whole = isinstance(published, fx.Published) and not published.missing
    return None if whole else "its files could not be published"


def _renew(replica: Replica, epoch: fx.Epoch, view: View, item: Queued, cover: Part) -> fx.Procedure[ExecuteOutcome]:
    """Bring what is made anew of what is left, in the place of a part that was made of the lost one and is broken here.

    It can't be made here, where its sources are gone.  A part that is whole was made after the loss.
    """
    entry = item.entry
    assert isinstance(entry, LostEntry)
    own = yield fx.Get(layout.part(replica, cover.name))
    if own is None:
        return QueueMoved()
    yield from _remove_made_of(view, parse_part(entry.part))
    if not is_broken(own.value):
        return (yield from finish(replica, epoch, (item.index,)))
    for form in (cover, *later_forms(view, item, cover)):
        content_hash = yield from fetch_anywhere(replica, form)
        if content_hash is not None:
            claim, gone = _in_place_of(replica, view, form, content_hash, own)
            return (yield from finish(replica, epoch, (item.index,), claim, (form,), gone))
    return postpone(item.index, f"{cover.name} was made of it and is broken here, and no replica has made it anew yet")


def later_forms(view: View, item: Queued, cover: Part) -> tuple[Part, ...]:
    """Return what a part has become since, unless that would hide a part that is to be kept outside of it, or detached."""
    assert isinstance(item.entry, LostEntry)
    later = view.parts.covering(cover)
    if later is None or later == cover:
        return ()
    # Of all lost parts that the cover reaches over the later form was made anew: the commit of a loss is refused while a
    # replica has a whole part that reaches over it.  Were one to wait for the other, both would wait for ever.
    hidden = view.kept.between(later.partition, later.block_min, later.block_max)
    return (later,) if all(cover.covers(part) and part not in view.detached for part in hidden) else ()


def _in_place_of(
    replica: Replica, view: View, form: Part, content_hash: str, own: fx.Node
) -> tuple[tuple[fx.Operation, ...], tuple[Part, ...]]:
    """Return what registers a form in the place of what is held, and what of that goes."""
    if form in view.held:
        return (fx.Set(layout.part(replica, form.name), content_hash.encode(), own.version),), ()
    gone = view.held.between(form.partition, form.block_min, form.block_max)
    return (register(replica, form, content_hash), *(deregister(replica, part) for part in gone)), gone


def _remove_made_of(view: View, part: Part) -> fx.Procedure[None]:
    """Set aside what an execution that was fenced has published of a part and not registered."""
    on_disk: tuple[str, ...] = yield fx.ListParts()
    for each in map(parse_part, on_disk):
        if each != part and each.covers(part) and each not in view.held and view.held.covering(each) is None:
            yield fx.RemovePart(each.name)
