"""Making parts: how every replica gets the same result from a merge or a mutation.

Every replica makes the result for itself.  Whoever publishes it first says in ``results/<part>`` what its content is, in the
commit by which it registers the part; who made something else throws it away and fetches.  So replicas of different versions or
with different libraries can't drift apart unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    Applied,
    Cancelled,
    Check,
    Commit,
    Create,
    Epoch,
    Get,
    LogIndex,
    Made,
    Operation,
    Procedure,
    Publish,
    Published,
    Refused,
    RemovePart,
    RemoveStaging,
    Reveal,
    StagingId,
    StoreFailed,
)
from replitree.protocol.fetch import fetch_anywhere
from replitree.protocol.layout import Replica
from replitree.protocol.parts import Part
from replitree.protocol.pull import Fenced
from replitree.protocol.registration import QueueMoved, View, deregister, failure, leave_queue, register


@dataclass(frozen=True, slots=True)
class Making:
    """One part to make.

    Attributes
    ----------
    replica, epoch
        Who makes it, under which epoch.
    result, sources
        What is made of what; the sources are held.
    index
        The queue entry that is done with it, or None.
    make
        The effect that makes it under a staging id.
    """

    replica: Replica
    epoch: Epoch
    result: Part
    sources: tuple[Part, ...]
    index: LogIndex | None
    make: Callable[[StagingId], Procedure[Made | StoreFailed | Cancelled]]


@dataclass(frozen=True, slots=True)
class Brought:
    """The result is registered and visible, its sources are not any more."""


@dataclass(frozen=True, slots=True)
class Waits:
    """It could not be had now, and why."""

    reason: str


MakeOutcome: TypeAlias = Brought | Waits | QueueMoved | Fenced


def staged_result(result: Part) -> StagingId:
    """Return the staging id under which a result is made; one process makes it once at a time."""
    return StagingId(f"make-{result.name}")


def bring(making: Making, view: View) -> Procedure[MakeOutcome]:
    """Get a result: make it when all sources are here and this replica makes results, fetch it otherwise.

    It is fetched, too, when it can't be made: of a source that is broken there may be no other copy any more.
    """
    if view.makes and all(source in view.held for source in making.sources):
        staging = staged_result(making.result)
        made = yield from making.make(staging)
        if isinstance(made, Cancelled):
            return Waits(made.reason)
        if isinstance(made, StoreFailed):
            fetched = yield from _fetch(making, view)
            return Waits(made.reason) if isinstance(fetched, Waits) else fetched
        outcome = yield from _publish(making, staging, made.content_hash)
        if outcome is not None:
            return outcome
    return (yield from _fetch(making, view))


def _publish(making: Making, staging: StagingId, content_hash: str) -> Procedure[MakeOutcome | None]:
    """Publish what was made, if its content is what the first publisher had.  None: it is not, and was thrown away."""
    result, published = making.result, False
    path = layout.result(making.replica.table, result.name)
    while True:
        first = yield Get(path)
        if first is not None and first.value != content_hash.encode():
            yield RemovePart(result.name) if published else RemoveStaging(staging)
            return None
        if not published:
            outcome = yield Publish(staging, ((result.partition, result.name),))
            if not isinstance(outcome, Published) or outcome.missing:
                return Waits("its files could not be published")
            published = True
        claim = () if first is not None else (Create(path, content_hash.encode()),)
        committed = yield Commit(
            Check(layout.host(making.replica), making.epoch), *claim, *_replacing(making, content_hash)
        )
        if isinstance(committed, Refused) and claim and committed.operation == claim[0]:
            continue
        if not isinstance(committed, Applied):
            return failure(committed)
        yield Reveal((result.name,), tuple(source.name for source in making.sources))
        return Brought()


def _replacing(making: Making, content_hash: str) -> tuple[Operation, ...]:
    replica = making.replica
    done = () if making.index is None else (leave_queue(replica, making.index),)
    sources = (deregister(replica, source) for source in making.sources)
    return (register(replica, making.result, content_hash), *sources, *done)


def _fetch(making: Making, view: View) -> Procedure[MakeOutcome]:
    """Fetch the result from a replica that has it; whatever of it is held already is replaced.

    Something of it must be held: only a commit that deregisters what the view holds is refused when the view is out of date.
    One that deregisters nothing could register the result after a drop has removed it.  Where nothing is held, the inserts are
    still in the queue, and bring it themselves (`execute`).
    """
    replica, result = making.replica, making.result
    gone = view.held.between(result.partition, result.block_min, result.block_max)
    if not gone:
        return Waits(f"nothing of {result.name} is here yet")
    content_hash = yield from fetch_anywhere(replica, result)
    if content_hash is None:
        return Waits(f"{result.name} can't be made here, and no replica could send it")
    done = () if making.index is None else (leave_queue(replica, making.index),)
    committed = yield Commit(
        Check(layout.host(replica), making.epoch),
        register(replica, result, content_hash),
        *(deregister(replica, part) for part in gone),
        *done,
    )
    if not isinstance(committed, Applied):
        return failure(committed)
    yield Reveal((result.name,), tuple(part.name for part in gone))
    return Brought()
