"""Mutate: every part that was in the table before the mutation is replaced by its mutated form.

Part by part, each in a commit of its own, so that progress is kept and seen; the entry leaves the queue with the last one.  A
part on which the mutation fails is left as it is and tried again; the others go on.

*Killing* a mutation lets everything that nobody has mutated yet be as it was: for each such part it claims the result, as the
first publisher would, with the content of the source.  So a part is either mutated on every replica or on none.  A replica that
finds a result with the content of its source only gives the part its new name.  A source that is broken is left out: when it is
declared lost, nobody may claim that its content is that of a result (`protocol.lost`).
"""

from __future__ import annotations

from replitree.protocol import layout
from replitree.protocol.effects import (
    Applied,
    Cancelled,
    Check,
    Commit,
    Create,
    Epoch,
    GetMany,
    Link,
    LogIndex,
    Made,
    Many,
    Mutate,
    Operation,
    Procedure,
    StagingId,
    StoreFailed,
    Untouched,
)
from replitree.protocol.entries import MutateEntry
from replitree.protocol.layout import Replica
from replitree.protocol.make_once import bring
from replitree.protocol.making import Brought, Making, Waits
from replitree.protocol.parts import Part
from replitree.protocol.pull import Queued
from replitree.protocol.registration import ExecuteOutcome, View, finish, is_broken, postpone

KILL_BATCH = 100
"""Parts that are let be in one commit."""


def execute_mutation(replica: Replica, epoch: Epoch, view: View, item: Queued) -> Procedure[ExecuteOutcome]:
    """Bring the mutated parts."""
    trouble: list[tuple[str, Waits]] = []
    for source, result in zip(item.change.removed, item.change.added, strict=True):
        if not view.wants(result):
            continue
        outcome = yield from bring(_making(replica, epoch, item, source, result), view)
        match outcome:
            case Brought():
                continue
            case Waits():
                trouble.append((source.name, outcome))
            case _:
                return outcome
    if trouble:
        return _postponed(item.index, trouble)
    return (yield from finish(replica, epoch, (item.index,)))


def _postponed(index: LogIndex, trouble: list[tuple[str, Waits]]) -> ExecuteOutcome:
    """Say of the first part that could not be had why, and of how many others.  Of which we are not told is tried by itself."""
    first, waits = next((each for each in trouble if not each[1].is_told), trouble[0])
    more = f" (and {len(trouble) - 1} other parts)" if len(trouble) > 1 else ""
    return postpone(index, f"{first}: {waits.reason}{more}", is_told=waits.is_told)


def _making(replica: Replica, epoch: Epoch, item: Queued, source: Part, result: Part) -> Making:
    entry = item.entry
    assert isinstance(entry, MutateEntry)

    def make(staging: StagingId) -> Procedure[Made | StoreFailed | Cancelled]:
        claimed: Many = yield GetMany((layout.result(replica.table, result.name), layout.part(replica, source.name)))
        if (
            claimed.nodes[0] is not None
            and claimed.nodes[1] is not None
            and claimed.nodes[0].value == claimed.nodes[1].value
        ):
            linked: Made | StoreFailed = yield Link(staging, source.name, result.name)
            return linked
        made: Made | StoreFailed | Cancelled = yield Mutate(
            staging, source.name, result.name, entry.command, entry.schema_version
        )
        return made

    def link(staging: StagingId) -> Procedure[Made | StoreFailed | None]:
        if not (yield Untouched(source.name, entry.command, entry.schema_version)):
            return None
        linked: Made | StoreFailed = yield Link(staging, source.name, result.name)
        return linked

    return Making(replica, epoch, result, (source,), None, make, link)


def kill_mutation(replica: Replica, epoch: Epoch, item: Queued) -> Procedure[int]:
    """Let every part of a mutation be as it was that nobody has mutated yet and this replica holds; return how many these are.

    Parameters
    ----------
    item
        The mutation as it is in this replica's queue.
    """
    assert isinstance(item.entry, MutateEntry)
    sources = tuple(layout.part(replica, part.name) for part in item.change.removed)
    results = tuple(layout.result(replica.table, part.name) for part in item.change.added)
    many: Many = (yield GetMany((*sources, *results))) if sources else Many(())
    left = tuple(
        (Check(path, source.version), Create(result, source.value))
        for path, result, source, claimed in zip(sources, results, many.nodes, many.nodes[len(sources) :], strict=False)
        if source is not None and claimed is None and not is_broken(source.value)
    )
    killed = 0
    for first in range(0, len(left), KILL_BATCH):
        killed += yield from _let_be(replica, epoch, left[first : first + KILL_BATCH])
    return killed


def _let_be(replica: Replica, epoch: Epoch, claims: tuple[tuple[Check, Create], ...]) -> Procedure[int]:
    """Claim results, of sources that are whole still; when somebody was faster with one of them, one by one."""
    check = Check(layout.host(replica), epoch)
    together: tuple[Operation, ...] = tuple(operation for claim in claims for operation in claim)
    if isinstance((yield Commit(check, *together)), Applied):
        return len(claims)
    killed = 0
    for claim in claims:
        killed += isinstance((yield Commit(check, *claim)), Applied)
    return killed
