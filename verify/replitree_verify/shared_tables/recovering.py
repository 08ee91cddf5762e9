"""A replica on an object store that was away for too long: it is lost, and takes over another one's state and shares."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.membership.table import LOST
from replitree.protocol.rescue import recover as recovering
from replitree.protocol.shares.sharing import with_shares
from replitree_verify.shared_tables.activation import begin
from replitree_verify.shared_tables.replicas import let_go
from replitree_verify.shared_tables.world import replica_of, sharer_of
from replitree_verify.world.kernel import Running

TRIES_MAX = 2
POINTER = b"1"
"""Where the log has gone meanwhile: past the entry of the first part."""


def recover(name: str, source: str) -> Running:
    """Be lost, and take over the state of the source, as `replica.table.recovery` does; what it has no more leaves the disk."""
    for _ in range(TRIES_MAX):
        epoch = yield from begin(name)
        if epoch is None:
            return
        yield from _be_lost(name, source, epoch)
        outcome = yield from with_shares(sharer_of(name), recovering.recover(replica_of(name), epoch))
        if isinstance(outcome, recovering.Recovered | recovering.Good):
            yield from _remove_what_left(name)
            yield from let_go(name, epoch)
            return


def _be_lost(name: str, source: str, epoch: fx.Epoch) -> fx.Procedure[None]:
    """Come back active and find out that entries are gone which this replica had not pulled; once."""
    replica = replica_of(name)
    if (yield fx.Get(layout.is_active(replica))) is not None:
        return
    lost: tuple[fx.Operation, ...] = (
        fx.Create(layout.is_active(replica)),
        fx.Set(layout.is_lost(replica), LOST, fx.ANY_VERSION),
        fx.Set(layout.log_pointer(replica_of(source)), POINTER, fx.ANY_VERSION),
    )
    yield fx.Commit(fx.Check(layout.host(replica), epoch), *lost)


def _remove_what_left(name: str) -> fx.Procedure[None]:
    for part in (yield fx.ListParts()):
        if (yield fx.Get(layout.part(replica_of(name), part))) is None:
            yield fx.RemovePart(part)


__all__ = ["recover"]
