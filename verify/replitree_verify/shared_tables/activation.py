"""Activations, shortened: a process takes a new epoch, and settles what earlier processes have left, before it shows anything.

Of the life thread's stages, what they do to shares is left (`replitree.protocol.program.life_in_store`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership import table
from replitree.protocol.shares import letting_go, owning
from replitree_verify.shared_tables.world import replica_of, sharer_of
from replitree_verify.world.kernel import Running


def begin(name: str) -> fx.Procedure[fx.Epoch | None]:
    """Take a new epoch, and settle what earlier processes have left; None when the replica is being dropped."""
    epoch = yield from new_epoch(replica_of(name))
    if epoch is None:
        return None
    for staging in (yield fx.ListStaging()):
        yield fx.RemoveStaging(staging)
    yield from _settle(name, epoch)
    return epoch


def activate(name: str) -> Running:
    """Take a new epoch because the session has ended, while something runs: what that has staged is not swept."""
    epoch = yield from new_epoch(replica_of(name))
    if epoch is not None:
        yield from _settle(name, epoch)


def _settle(name: str, epoch: fx.Epoch) -> fx.Procedure[None]:
    yield from letting_go.give_up_attempts(sharer_of(name), epoch)  # no part moves: there are no claims
    here: tuple[str, ...] = yield fx.ListParts()
    many: fx.Many = (
        (yield fx.GetMany(tuple(layout.part(replica_of(name), part) for part in here))) if here else fx.Many(())
    )
    registered = tuple(part for part, node in zip(here, many.nodes, strict=True) if node is not None)
    gone = (yield from owning.own_held(sharer_of(name), registered)) if registered else ()
    yield fx.Reveal(tuple(part for part in registered if part not in gone))


def new_epoch(replica: Replica) -> fx.Procedure[fx.Epoch | None]:
    """Take a new epoch; None when the replica is being dropped."""
    while True:
        yield fx.Sync(layout.host(replica))
        host = yield fx.Get(layout.host(replica))
        if host is None or host.value == table.DROPPED_HOST:
            return None
        outcome = yield fx.Commit(fx.Set(layout.host(replica), b"here", host.version))
        if isinstance(outcome, fx.Applied):
            epoch = fx.Epoch(host.version + 1)
            yield fx.AdoptEpoch(epoch)
            return epoch


__all__ = ["activate", "begin", "new_epoch"]
