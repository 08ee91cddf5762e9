"""Make once: one replica makes a result for all, where results go into an object store.

The order; each step may be repeated:

1. Register what an earlier try has published here, as always (`protocol.execute.making`).  If another replica was faster,
   before this commit or at it, give that try's attempt up, so that a late commit of it is refused, and discard its files.
2. A part that a mutation certainly leaves unchanged gets its new name on every replica separately: it *borrows* the objects,
   and no row is read or written.
3. Take the work mark (`protocol.state.work_mark`).
4. Make the result, and put it into the store (`protocol.shares.sharing`).
5. Check whether another replica was faster; if so, take its result over and discard this one.
6. In one commit, register the result, record its content in ``results``, and end the mark.

A replica that finds the mark taken waits until it is gone.  One that finds the result registered takes it over.  It makes the
result again only if no active replica has it or a later form of it, or if none has sent it for too long: otherwise the replica
could wait for ever.

Absent on purpose: what a result is and when it counts (`protocol.execute.making`), and the ownership of objects
(`protocol.shares.sharing`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.execute.making import (
    Beaten,
    Brought,
    MakeOutcome,
    Making,
    Waits,
    bring_own,
    fetch_result,
    publish_result,
    staged_result,
)
from replitree.protocol.shares.letting_go import give_up_published
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.fetch import others_of
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.registration import QueueMoved, View, is_broken
from replitree.protocol.state.work_mark import HeldBy, MarkUnsettled, Registered, Taken, give_up, other_maker, take


def bring(making: Making, view: View) -> fx.Procedure[MakeOutcome]:
    """Get a result: by itself, or from the one replica that makes it for all.

    Parameters
    ----------
    making
        What to make.
    view
        The replica's state; `View.sharer` says whether one makes it for all.
    """
    if view.sharer is None:
        return (yield from bring_own(making, view))
    if view.hides_kept(making.result):
        return Waits(f"{making.result.name} would hide what is to be detached before")
    # If an earlier try has published the result here, nothing is left to make.  To fetch the result would keep these files: a
    # second copy, if another replica has registered its own meanwhile.
    if not view.can_make_of(making.sources) and not (
        view.has_whole(making.sources) and (yield fx.FindPart(making.result.name)) is not None
    ):
        # This replica can't make it, so it takes the result over or waits for its maker.
        fetched = yield from fetch_result(making, view)
        if isinstance(fetched, Waits):
            maker = yield from other_maker(view.sharer, making.result.name)
            return fetched if maker is None else _waits_for(maker, making)
        return fetched
    here = yield from _bring_from_here(making, view, view.sharer)
    if here is not None:
        return here
    took = yield from _take(making, view, view.sharer)
    return (yield from _make(making, view, view.sharer)) if isinstance(took, Taken) else took


def _waits_for(maker: str, making: Making) -> Waits:
    return Waits(f"{maker} makes {making.result.name} for all", is_told=True)


def _bring_from_here(making: Making, view: View, sharer: Sharer) -> fx.Procedure[MakeOutcome | None]:
    """Register what is here already, or what has only to be linked; None: there is something to be made."""
    found: str | None = yield fx.FindPart(making.result.name)
    staging = staged_result(making.result)
    made = fx.Made(found) if found is not None else (yield from making.link(staging))
    if not isinstance(made, fx.Made):
        return None
    here = found is not None
    mark: fx.Node | None = (yield fx.Get(layout.merged(sharer.replica.table, making.result.name))) if here else None
    marked = mark is not None and mark.value == sharer.signature
    outcome = yield from publish_result(making, staging, made.content_hash, published=here, marked=marked, for_all=here)
    if isinstance(outcome, Beaten):
        # The result that an earlier try has published may be given up only if another active replica has registered its own.
        if (yield from _has_active_holder(making)) and (
            yield from give_up_published(sharer, making.epoch, making.result.name)
        ):
            yield fx.Discard(making.result.name)
            return (yield from fetch_result(making, view, later=True))
        outcome = yield from publish_result(making, staging, made.content_hash, published=True, marked=marked)
        assert not isinstance(outcome, Beaten)
    return outcome if outcome is not None else (yield from fetch_result(making, view))


def _take(making: Making, view: View, sharer: Sharer) -> fx.Procedure[Taken | MakeOutcome]:
    """Take the work mark; or take the result over, if it is there."""
    result = making.result.name
    took = yield from take(sharer, making.epoch, result)
    if isinstance(took, Registered):
        fetched = yield from fetch_result(making, view, later=True)
        if not isinstance(fetched, Waits) or (not view.is_overdue and (yield from _has_active_holder(making))):
            return fetched
        took = yield from take(sharer, making.epoch, result, anew=True)
    match took:
        case Taken() | Fenced():
            return took
        case HeldBy(replica):
            return _waits_for(replica, making)
        case Registered() | MarkUnsettled():
            return Waits(f"who makes {result} could not be found out")


def _has_active_holder(making: Making) -> fx.Procedure[bool]:
    """Whether another replica that is active has registered the result, whole: it will send it in the end."""
    others = yield from others_of(making.replica)
    parts = tuple(layout.part(other, making.result.name) for other in others)
    many: fx.Many = yield fx.GetMany((*parts, *map(layout.is_active, others)))
    held, active = many.nodes[: len(others)], many.nodes[len(others) :]
    whole = (node is not None and not is_broken(node.value) for node in held)
    return any(has and here is not None for has, here in zip(whole, active, strict=True))


def _make(making: Making, view: View, sharer: Sharer) -> fx.Procedure[MakeOutcome]:
    """Make the result under its mark, which has ended or is given up on return, unless the same is tried again at once."""
    staging = staged_result(making.result)
    made = yield from making.make(staging)
    outcome = (yield from _publish(making, view, sharer, staging, made)) if isinstance(made, fx.Made) else None
    if isinstance(outcome, Brought | QueueMoved | Fenced):
        return outcome
    yield from give_up(sharer, making.epoch, making.result.name)
    if isinstance(made, fx.Cancelled):
        return Waits(made.reason)
    if outcome is not None:
        return outcome
    fetched = yield from fetch_result(making, view)
    return Waits(made.reason) if isinstance(made, fx.StoreFailed) and isinstance(fetched, Waits) else fetched


def _publish(
    making: Making, view: View, sharer: Sharer, staging: fx.StagingId, made: fx.Made
) -> fx.Procedure[MakeOutcome | None]:
    """Register the result; if another replica has registered one meanwhile, take that over and discard this one."""
    outcome = yield from publish_result(making, staging, made.content_hash, published=False, marked=True, for_all=True)
    if not isinstance(outcome, Beaten):
        return outcome
    if outcome.is_published:
        yield from give_up_published(sharer, making.epoch, making.result.name)
        yield fx.Discard(making.result.name)
        return None
    fetched = yield from fetch_result(making, view, later=True)
    if not isinstance(fetched, Waits):
        yield fx.RemoveStaging(staging)
        yield from give_up(sharer, making.epoch, making.result.name)
        return fetched
    own = yield from publish_result(making, staging, made.content_hash, published=False, marked=True)
    assert not isinstance(own, Beaten)
    return own


__all__ = ["bring"]
