"""Mutate: every part in the mutation's scope is replaced by its mutated form.

The replica mutates a few parts at a time, so that progress is kept and visible; the entry leaves the queue with the last one.
A part on which the mutation fails stays as it is and is tried again; the others go on.

Parts that this replica makes by itself are made, published and registered together (`_bring_together`), `TOGETHER_MAX` in one
commit: reading claims and registering part by part took as long as the rest of the work.  The commit claims each result and
deletes each source's registration.  So it takes place as a whole or not at all, late or repeated, as the commit of one part
does (`protocol.execute.making`).  Other parts are brought one by one: another replica has claimed them with other content,
they can't be made here, or they are to be fetched.

*Killing* a mutation leaves every part unchanged that no replica has mutated yet: for each such part it claims the result, as
the first publisher would, with the content of the source.  So a part is mutated on every replica or on none.  A replica that
finds a result with the content of its source only renames the part.  A broken source is left out: when it is declared lost, no
replica may take its content for that of a result (`protocol.upkeep.lost`).  A killed mutation stays killed when something is
lost of which its source was made (`LET_BE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.execute.make_once import bring
from replitree.protocol.execute.making import Brought, Making, Waits, bring_after, staged_result
from replitree.protocol.state.pull import Fenced, Queued
from replitree.protocol.state.registration import (
    LET_BE,
    ExecuteOutcome,
    QueueMoved,
    View,
    claim,
    contradicts,
    deregister,
    failure,
    finish,
    is_broken,
    postpone,
    register,
)

KILL_BATCH = 100
"""Parts that are let be in one commit."""


Failed: TypeAlias = fx.StoreFailed | fx.Cancelled

TOGETHER_MAX = 16
"""Parts that are made before they are registered in one commit: a crash costs the making of so many at most."""


def execute_mutation(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Bring the mutated parts."""
    pairs = zip(item.change.removed, item.change.added, strict=True)
    for_all = view.sharer is not None
    makings = tuple(
        _making(replica, epoch, item, source, result, for_all=for_all) for source, result in pairs if view.wants(result)
    )
    trouble: list[tuple[str, Waits]] = []
    for first in range(0, len(makings), TOGETHER_MAX):
        some = makings[first : first + TOGETHER_MAX]
        failed: dict[Part, Failed] = {}
        left = (yield from _bring_together(some, view, failed)) if len(some) > 1 and view.sharer is None else some
        if not isinstance(left, tuple):
            return left
        outcome = yield from _bring_each(left, view, failed, trouble)
        if outcome is not None:
            return outcome
    if trouble:
        # An entry that waits for something which is watched is not tried by itself: so a part that waits for anything else
        # decides.
        source, waits = next((each for each in trouble if not each[1].is_told), trouble[0])
        more = f" (and {len(trouble) - 1} other parts)" if len(trouble) > 1 else ""
        return postpone(item.index, f"{source}: {waits.reason}{more}", is_told=waits.is_told)
    return (yield from finish(replica, epoch, (item.index,)))


def _bring_each(
    makings: tuple[Making, ...], view: View, failed: Mapping[Part, Failed], trouble: list[tuple[str, Waits]]
) -> fx.Procedure[QueueMoved | Fenced | None]:
    """Bring mutated parts one by one, without making again those that `failed`; those that wait are added to `trouble`."""
    for making in makings:
        known = failed.get(making.result)
        outcome = yield from (bring(making, view) if known is None else bring_after(making, view, known))
        match outcome:
            case Brought():
                continue
            case Waits():
                (source,) = making.sources
                trouble.append((source.name, outcome))
            case _:
                return outcome
    return None


def _bring_together(
    makings: tuple[Making, ...], view: View, failed: dict[Part, Failed]
) -> fx.Procedure[tuple[Making, ...] | QueueMoved | Fenced]:
    """Make some mutated parts and register them in one commit; return those that are to be brought one by one.

    Results that could not be made are noted in `failed`.
    """
    replica, epoch = makings[0].replica, makings[0].epoch
    made, published = yield from _make_all(makings, view, failed)
    if not made:
        return makings
    many: fx.Many = yield fx.GetMany(tuple(layout.result(replica.table, part.name) for part in made))
    claims = dict(zip(made, many.nodes, strict=True))
    together: list[Making] = []
    for making in makings:
        part = making.result
        if part not in made:
            continue
        # Another replica has registered the result first, with other content.
        if contradicts(claims[part], made[part]):
            continue
        if part not in published:
            named = yield fx.Publish(staged_result(part), ((part.partition, part.name),))
            if not isinstance(named, fx.Published) or named.missing:
                continue
        together.append(making)
    if not together:
        return makings
    registering = (_registering(each, claims[each.result], made[each.result]) for each in together)
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch), *(operation for operations in registering for operation in operations)
    )
    results = {layout.result(replica.table, part.name) for part in made}
    match committed:
        case fx.Applied():
            yield fx.Reveal(
                tuple(each.result.name for each in together), tuple(each.sources[0].name for each in together)
            )
            return tuple(each for each in makings if each not in together)
        case fx.Refused(operation=fx.Create(path=path) | fx.Set(path=path)) if path in results:
            # Another replica was first with one of them.  The next try finds again what is published here.
            return makings
    return failure(committed)


def _make_all(
    makings: tuple[Making, ...], view: View, failed: dict[Part, Failed]
) -> fx.Procedure[tuple[dict[Part, str], frozenset[Part]]]:
    """Make what can be made here; return the content of each result, and those that an earlier try has published."""
    made: dict[Part, str] = {}
    published: set[Part] = set()
    for making in makings:
        if not view.can_make_of(making.sources) or view.hides_kept(making.result):
            continue
        found: str | None = yield fx.FindPart(making.result.name)
        outcome = fx.Made(found) if found is not None else (yield from making.make(staged_result(making.result)))
        if isinstance(outcome, fx.Made):
            made[making.result] = outcome.content_hash
        else:
            failed[making.result] = outcome
        if found is not None:
            published.add(making.result)
    return made, frozenset(published)


def _registering(making: Making, first: fx.Node | None, content_hash: str) -> tuple[fx.Operation, ...]:
    """Return what a commit does to register a mutated part: claim the result, unless it is, and replace the source."""
    replica, (source,) = making.replica, making.sources
    claimed = claim(layout.result(replica.table, making.result.name), first, content_hash)
    return (*claimed, register(replica, making.result, content_hash), deregister(replica, source))


def _making(replica: Replica, epoch: fx.Epoch, item: Queued, source: Part, result: Part, *, for_all: bool) -> Making:
    entry = item.entry
    assert isinstance(entry, MutateEntry)

    def make(staging: fx.StagingId) -> fx.Procedure[fx.Made | fx.StoreFailed | fx.Cancelled]:
        claimed: fx.Many = yield fx.GetMany(
            (layout.result(replica.table, result.name), layout.part(replica, source.name))
        )
        first, own = claimed.nodes
        if first is not None and own is not None and first.value in (LET_BE, own.value):
            linked: fx.Made | fx.StoreFailed = yield fx.Link(staging, source.name, result.name, for_all)
            return linked
        made: fx.Made | fx.StoreFailed | fx.Cancelled = yield fx.Mutate(
            staging, source.name, result.name, entry.command, entry.schema_version, for_all
        )
        return made

    def link(staging: fx.StagingId) -> fx.Procedure[fx.Made | fx.StoreFailed | None]:
        if not (yield fx.Untouched(source.name, entry.command, entry.schema_version)):
            return None
        linked: fx.Made | fx.StoreFailed = yield fx.Link(staging, source.name, result.name, for_all)
        return linked

    return Making(replica, epoch, result, (source,), None, make, link)


def kill_mutation(replica: Replica, epoch: fx.Epoch, item: Queued) -> fx.Procedure[int]:
    """Leave unchanged every part of a mutation that no replica has mutated yet and this one holds; return their number.

    Parameters
    ----------
    item
        The mutation as it is in this replica's queue.
    """
    assert isinstance(item.entry, MutateEntry)
    sources = tuple(layout.part(replica, part.name) for part in item.change.removed)
    results = tuple(layout.result(replica.table, part.name) for part in item.change.added)
    many: fx.Many = (yield fx.GetMany((*sources, *results))) if sources else fx.Many(())
    left = tuple(
        (fx.Check(path, source.version), fx.Create(result, source.value))
        for path, result, source, claimed in zip(sources, results, many.nodes, many.nodes[len(sources) :], strict=False)
        if source is not None and claimed is None and not is_broken(source.value)
    )
    killed = 0
    for first in range(0, len(left), KILL_BATCH):
        killed += yield from _let_be(replica, epoch, left[first : first + KILL_BATCH])
    return killed


def _let_be(replica: Replica, epoch: fx.Epoch, claims: tuple[tuple[fx.Check, fx.Create], ...]) -> fx.Procedure[int]:
    """Claim results of sources that are still whole."""
    check = fx.Check(layout.host(replica), epoch)
    together: tuple[fx.Operation, ...] = tuple(operation for each in claims for operation in each)
    if isinstance((yield fx.Commit(check, *together)), fx.Applied):
        return len(claims)
    # Another replica was first with one of the results, so each one is claimed by itself.
    killed = 0
    for each in claims:
        killed += isinstance((yield fx.Commit(check, *each)), fx.Applied)
    return killed
