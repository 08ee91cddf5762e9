"""Making parts: how every replica gets the same result from a merge or a mutation.

Every replica makes the result itself.  The first to publish it records its content in ``results/<part>``, in the commit that
registers the part.  A replica whose result has other content discards it and fetches the part.  So replicas with different
versions of this code or of its libraries can't diverge unnoticed.

*Made once.*  The same merge need not give the same bytes twice, not even on one replica.  So a result that an earlier try has
published here is not made again: the commit of that try may still be on its way, and it registers these files.  While it may
be, no other content takes the name:

* A published result is used as if it were made now; both commits carry the same content, and one of them is refused.
* A result that contradicts ``results/<part>`` is removed.  The late commit can't take place then: it creates
  ``results/<part>``, because it would not have been sent if that node had had other content, and the node is never changed.
  The loss of a source deletes or changes the node, in a commit that fences every earlier one (`protocol.upkeep.lost`).

A result that goes into an object store is made by one replica for all: `protocol.execute.make_once`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.state.fetch import fetch_anywhere
from replitree.protocol.state.pull import Fenced
from replitree.protocol.state.registration import (
    QueueMoved,
    View,
    claim,
    contradicts,
    deregister,
    failure,
    leave_queue,
    register,
)

MAKING = "make-"
"""How the staging ids of results begin."""


def _never(_staging: fx.StagingId) -> fx.Procedure[fx.Made | fx.StoreFailed | None]:
    """Stage nothing."""
    yield from ()
    return None


@dataclass(frozen=True, slots=True)
class Making:
    """One part to make.

    Attributes
    ----------
    replica, epoch
        The replica that makes it, and its epoch.
    result, sources
        What is made of what; the sources are held.
    index
        The queue entry that is done with it, or None.
    make
        The effect that makes it under a staging id.
    link
        The effect that stages it without writing rows, where nothing more is needed; otherwise None.
    """

    replica: Replica
    epoch: fx.Epoch
    result: Part
    sources: tuple[Part, ...]
    index: fx.LogIndex | None
    make: Callable[[fx.StagingId], fx.Procedure[fx.Made | fx.StoreFailed | fx.Cancelled]]
    link: Callable[[fx.StagingId], fx.Procedure[fx.Made | fx.StoreFailed | None]] = _never


@dataclass(frozen=True, slots=True)
class Brought:
    """The result is registered and visible, its sources are not any more."""


@dataclass(frozen=True, slots=True)
class Waits:
    """It could not be had now, and why; `is_told`: the replica will be told when to try again."""

    reason: str
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Beaten:
    """Another replica has registered the result; the one made here is staged, or published, and not registered."""

    is_published: bool


MakeOutcome: TypeAlias = Brought | Waits | QueueMoved | Fenced


def staged_result(result: Part) -> fx.StagingId:
    """Return the staging id under which a result is made; one process makes it once at a time."""
    return fx.StagingId(f"{MAKING}{result.name}")


def result_of(staging: str) -> str | None:
    """Return the name of the result that is made under a staging id; None when it is no result's.

    >>> result_of("make-all_0_3_1"), result_of("i1")
    ('all_0_3_1', None)
    """
    return staging.removeprefix(MAKING) if staging.startswith(MAKING) else None


def bring_own(making: Making, view: View) -> fx.Procedure[MakeOutcome]:
    """Get a result: make it when all sources are here and this replica makes results now, fetch it otherwise.

    It is fetched, too, when it can't be made: of a source that is broken there may be no other copy any more.
    """
    if view.hides_kept(making.result):
        return Waits(f"{making.result.name} would hide what is to be detached before")
    if view.can_make_of(making.sources):
        staging = staged_result(making.result)
        found: str | None = yield fx.FindPart(making.result.name)
        made = fx.Made(found) if found is not None else (yield from making.make(staging))
        if isinstance(made, fx.Cancelled | fx.StoreFailed):
            return (yield from bring_after(making, view, made))
        outcome = yield from publish_result(making, staging, made.content_hash, published=found is not None)
        if outcome is not None:
            assert not isinstance(outcome, Beaten)
            return outcome
    return (yield from fetch_result(making, view))


def bring_after(making: Making, view: View, failed: fx.Cancelled | fx.StoreFailed) -> fx.Procedure[MakeOutcome]:
    """Get a result that could not be made here: fetch it, or wait, for the reason why it could not be made."""
    if isinstance(failed, fx.Cancelled):
        return Waits(failed.reason)
    fetched = yield from fetch_result(making, view)
    return Waits(failed.reason) if isinstance(fetched, Waits) else fetched


def publish_result(
    making: Making,
    staging: fx.StagingId,
    content_hash: str,
    *,
    published: bool,
    marked: bool = False,
    for_all: bool = False,
) -> fx.Procedure[MakeOutcome | Beaten | None]:
    """Publish what was made, if its content is what the first publisher had.  None: it was thrown away.

    Parameters
    ----------
    making, staging, content_hash
        What was made, where it is, and what is in it.
    published
        It has its name already.
    marked
        It was made under a work mark, which ends with its registration.
    for_all
        One copy is enough for all: if another replica was first this one is not registered, whatever its content.
    """
    result, table = making.result, making.replica.table
    path = layout.result(table, result.name)
    while True:
        first = yield fx.Get(path)
        claimed = claim(path, first, content_hash)
        if not claimed and for_all:
            return Beaten(published)
        if contradicts(first, content_hash):
            yield fx.RemovePart(result.name) if published else fx.RemoveStaging(staging)
            return None
        if not published:
            named = yield fx.Publish(staging, ((result.partition, result.name),))
            if not isinstance(named, fx.Published) or named.missing:
                return Waits("its files could not be published")
            published = True
        ending = (fx.Delete(layout.merged(table, result.name), fx.ANY_VERSION),) if marked else ()
        replica = making.replica
        done = () if making.index is None else (leave_queue(replica, making.index),)
        sources = (deregister(replica, source) for source in making.sources)
        committed = yield fx.Commit(
            fx.Check(layout.host(making.replica), making.epoch),
            *claimed,
            register(replica, making.result, content_hash),
            *sources,
            *done,
            *ending,
        )
        if isinstance(committed, fx.Refused) and committed.operation in (*claimed, *ending):
            marked &= committed.operation not in ending
            continue
        if not isinstance(committed, fx.Applied):
            return failure(committed)
        yield fx.Reveal((result.name,), tuple(source.name for source in making.sources))
        return Brought()


def fetch_result(making: Making, view: View, *, later: bool = False) -> fx.Procedure[MakeOutcome]:
    """Fetch the result from a replica that has it; whatever of it is held already is replaced.

    If a source is broken here, or with `later`, a later form of the result is taken too: the other replicas may have
    replaced the result itself.
    """
    result = making.result
    # Something of the result must be held: only a commit that deregisters what the view holds is refused when the view is out
    # of date.  One that deregisters nothing could register the result after a drop has removed it.  Where nothing is held, the
    # inserts are still in the queue, and bring it themselves (`execute`).
    if not view.held.between(result.partition, result.block_min, result.block_max):
        return Waits(f"nothing of {result.name} is here yet")
    later = later or any(source in view.broken for source in making.sources)
    forms = [result]
    cover = view.parts.covering(result)
    if later and cover is not None and cover != result and not view.hides_kept(cover):
        forms.append(cover)
    for form in forms:
        content_hash = yield from fetch_anywhere(making.replica, form)
        if content_hash is not None:
            return (yield from _take(making, view, form, content_hash))
    return Waits(f"{result.name} can't be made here, and no replica could send it")


def _take(making: Making, view: View, form: Part, content_hash: str) -> fx.Procedure[MakeOutcome]:
    """Register the result, or a later form of it, that was fetched."""
    replica = making.replica
    gone = view.held.between(form.partition, form.block_min, form.block_max)
    done = () if making.index is None else (leave_queue(replica, making.index),)
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), making.epoch),
        register(replica, form, content_hash),
        *(deregister(replica, part) for part in gone),
        *done,
    )
    if not isinstance(committed, fx.Applied):
        return failure(committed)
    yield fx.Reveal((form.name,), tuple(part.name for part in gone))
    return Brought()
