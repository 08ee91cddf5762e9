"""Execute a rewrite: rewritten parts take the place of their sources, and new parts come, in one commit.

1. *files*     the writer publishes what it staged; the others fetch it, from the writer or from any replica that has it, or
               take a later form of it.  No replica makes a result by itself: the rewrite was made of rows that only its client
               has seen
2. *register*  one commit registers all parts, takes their sources back and deletes the queue entry: no read sees a row
               twice, or not at all, that the rewrite moves from one part to another
3. *reveal*    local reads show it

So it waits until all of its parts are here.  What a later drop has removed is not brought; its source is taken back in the same
commit, because the rewrite may bring rows of it elsewhere.  The drop waits for the rewrite as for an insert
(`registration.blockers`), so the commit can't bring it back.

Rewrites of the same rows are executed in their order (`must_follow`).  Otherwise the later one could bring a row that its
source has from an earlier one, which a read still shows where that one took it from.

A merged part that is fetched may have parts of a rewrite that is not executed yet.  Until it is, eventual reads wait
(`state.atomicity`), and the others do so anyway.

Absent on purpose: whether it applies.  The fold decides that at the pull (`protocol.core.fold`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import RewriteEntry, staged_names, written_parts
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import ExecuteOutcome, View, deregister, finish, postpone, register


def execute_rewrite(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Bring the parts of a rewrite in the place of its sources."""
    entry = item.entry
    assert isinstance(entry, RewriteEntry)
    if must_follow(view, item):
        return postpone(item.index, "waits for earlier rewrites of the same rows")
    staged, own = staged_names(entry, item.index), entry.replica == replica.name
    wanted = {part: content for _, part, content in staged if view.wants(part) or (own and view.must_keep(part))}
    # A part that was declared lost is to be empty first: then it is here, and its rows are not brought.
    hiding = next((part for part in wanted if view.wants(part) and view.hides_kept(part)), None)
    if hiding is not None:
        return postpone(item.index, f"{hiding.name} would hide what is to be kept aside, or was declared lost")
    missing = tuple(wanted)
    if own:
        published = yield fx.Publish(entry.insert, tuple((key, part.name) for key, part, _ in staged if part in wanted))
        if isinstance(published, fx.StoreFailed) and not all(map(view.wants, wanted)):
            # Only this replica has the part that the detach must keep aside.
            return postpone(item.index, published.reason)
        if isinstance(published, fx.Published):
            missing = tuple(part for part in wanted if part.name in published.missing)
            if len(wanted) < len(staged):
                yield fx.RemoveStaging(entry.insert)
    brought = {part: content for part, content in wanted.items() if part not in missing}
    fetched = yield from _fetch(replica, view, entry, {part: wanted[part] for part in missing if view.wants(part)})
    if isinstance(fetched, Part):
        return postpone(item.index, f"no replica could send {fetched.name}")
    # A later form that was fetched for one part may cover others.
    found = brought | fetched
    brought = {form: each for form, each in found.items() if not any(o != form and o.covers(form) for o in found)}
    gone = dict.fromkeys(
        part for form in brought for part in view.held.between(form.partition, form.block_min, form.block_max)
    )
    # A later entry removes these results.  Their sources go now, because this commit brings some of their rows elsewhere.
    removed = (part for _, part, _ in staged if part.mutation and part not in wanted)
    for result in (part for part in removed if view.held.covering(part) is None):
        sources = view.held.covered_by(result)
        if sources and view.detached.covering(result) is not None:
            kept = yield fx.Detach(tuple(source.name for source in sources))
            if isinstance(kept, fx.StoreFailed):
                return postpone(item.index, kept.reason)
        gone |= dict.fromkeys(sources)
    operations: tuple[fx.Operation, ...] = (
        *(register(replica, form, content) for form, content in brought.items()),
        *(deregister(replica, part) for part in gone),
    )
    return (yield from finish(replica, epoch, (item.index,), operations, tuple(brought), tuple(gone)))


def must_follow(view: View, item: Queued) -> bool:
    """Whether an earlier rewrite may still bring what a rewrite replaces."""
    entry = item.entry
    assert isinstance(entry, RewriteEntry)
    rewrites = ((each.entry, each.index) for each in view.blockers if isinstance(each.entry, RewriteEntry))
    earlier = tuple(part for rewrite, index in rewrites for part in written_parts(rewrite, index))
    return any(part.intersects(parse_part(result.source)) for part in earlier for result in entry.results)


def _fetch(
    replica: Replica, view: View, entry: RewriteEntry, missing: dict[Part, str]
) -> fx.Procedure[dict[Part, str] | Part]:
    """Fetch parts, or later forms of them; return what was fetched, with its content, or the first part that can't be had."""
    if not missing:
        return {}
    fetches = tuple(fx.FetchPart(part.name, content, (entry.replica,)) for part, content in missing.items())
    outcomes: tuple[fx.Fetched | fx.NotFetched | fx.StoreFailed, ...] = yield fx.FetchMany(fetches)
    found: dict[Part, str] = {}
    for (part, content), outcome in zip(missing.items(), outcomes, strict=True):
        if isinstance(outcome, fx.Fetched):
            found[part] = content
            continue
        cover = view.parts.covering(part) or part
        # The writer may have gone on, and every replica may have replaced the part since.
        for form in dict.fromkeys((part, part if view.hides_kept(cover) else cover)):
            elsewhere = yield from fetch_anywhere(replica, form)
            if elsewhere is not None:
                found[form] = elsewhere
                break
        else:
            return part
    return found
