"""Activation: from a process that has nothing but a disk to a replica that may act, by the steps of `protocol.start`.

It may be done any number of times, after trouble or at the start; each time either ends with an epoch and the log pulled to its
tail, or raises, and then nothing was lost: the next try begins anew.

Absent on purpose: when it is done, and what the replica shows meanwhile; see `replitree.replica.table_replica`.
"""

from __future__ import annotations

from typing import Protocol

from replitree.errors import ReplicaBusy, ReplicaReplaced, ReplitreeError, Unavailable
from replitree.protocol.activate import Activated, Busy, NotJoined, Replaced, Unsettled, activate, renew_epoch
from replitree.protocol.effects import Epoch, Owner, StagingId
from replitree.protocol.epochs import EPOCHS_MAX
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Fenced, Gap, Place, load
from replitree.protocol.quorum import rejoin
from replitree.protocol.start import (
    CaughtUp,
    catch_up,
    compare_parts,
    forget_covered,
    list_idle_staging,
    sweep_staging,
)
from replitree.protocol.table import Outcome, finish_leaving, join_table
from replitree.replica.identity import decode_identity
from replitree.replica.logs import Log
from replitree.replica.metrics import Metrics
from replitree.replica.old_parts import OldParts
from replitree.replica.progress import Progress
from replitree.replica.recovery import Recovery
from replitree.replica.runner import Performer
from replitree.replica.sharing import Sharing
from replitree.replica.workers import Puller
from replitree.storage.definition import TableDefinition
from replitree.storage.disk import PartStore


class Host(Protocol):
    """What activating needs of the replica."""

    replica: Replica
    me: bytes
    incarnation: str
    sharing: Sharing | None
    performer: Performer
    progress: Progress
    puller: Puller
    recovery: Recovery
    store: PartStore
    old_parts: OldParts
    lacking: dict[str, str]
    metrics: Metrics
    log: Log

    @property
    def definition(self) -> TableDefinition:
        """The table's definition."""


class Activation:
    """Activates one table replica."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._swept = False

    def activate(self) -> tuple[Epoch, Place]:
        """Go through the steps of `protocol.start`; return the epoch, and where the replica stands in the log.

        Raises
        ------
        ReplicaBusy, ReplicaReplaced
            Another live process has the replica's name.
        ReplitreeError, OSError
            Something is in the way; try again.
        """
        host = self._host
        idle = host.performer.run(list_idle_staging())
        epoch = self._own_epoch()
        if not self._swept:
            host.store.sweep()  # nobody else acts for this replica from now on
            self._swept = True
        if host.sharing is not None:
            host.sharing.open()
        host.recovery.stand(epoch)
        place = self._catch_up(epoch)
        self._tidy_up(epoch, idle)
        return epoch, place

    def _tidy_up(self, epoch: Epoch, idle: tuple[StagingId, ...]) -> None:
        """Go through steps 4 to 6 of `protocol.start`, and take over what was loaded."""
        host = self._host
        begun = host.progress.begin_load()
        loaded = host.performer.run(load(host.replica))
        swept = host.performer.run(sweep_staging(idle, loaded))
        if swept:
            host.log.info("swept", stagings=swept)
        if host.sharing is not None:
            host.sharing.settle(epoch)
            host.sharing.own_held(part.name for part in loaded.held)
        if not host.performer.run(forget_covered(host.replica, epoch, loaded)):
            raise Unavailable("the registration of covered parts could not be taken back")
        on_disk = frozenset(host.store.parts())
        host.progress.hide(part.name for part in loaded.held if part.name not in on_disk)
        left = host.progress.take_over(loaded, begun)
        if left is None:
            host.puller.reload()
        host.old_parts.retire(left or ())
        host.old_parts.revive(part.name for part in loaded.held)
        missing = dict(host.performer.run(compare_parts(host.replica, loaded)).missing)
        host.lacking.update(missing)
        host.progress.has_strays = False
        host.performer.run(rejoin(host.replica, loaded, host.lacking))

    def _catch_up(self, epoch: Epoch) -> Place:
        """Pull up to the log's tail."""
        host = self._host
        match host.performer.run(catch_up(host.replica, epoch)):
            case Fenced():
                raise Unavailable("the epoch was taken over while catching up")
            case Gap(index):
                raise Unavailable(f"log entry {index} is gone although this replica had not pulled it; it starts again")
            case CaughtUp(place):
                return place

    def _own_epoch(self) -> Epoch:
        """Activate for the first time, or renew the epoch that this process has."""
        host = self._host
        known = host.performer.epoch.current
        outcome = host.performer.run(
            activate(host.replica, host.me) if known is None else renew_epoch(host.replica, host.me, None)
        )
        match outcome:
            case Activated(epoch):
                host.metrics.epoch.labels(host.definition.name).set(epoch)
                return epoch
            case NotJoined():
                self._join(is_new=known is None)
                raise Unavailable("the replica has just been added to the table")
            case Busy(holder, owner):
                raise self._busy(holder, owner)
            case Replaced():
                raise ReplicaReplaced(f"another process took over replica {host.replica.name}; this one stops")
            case Unsettled():
                raise Unavailable("the activation was refused several times")

    def _join(self, *, is_new: bool) -> None:
        """Add the replica to its table; one that was dropped while this process ran begins anew."""
        host = self._host
        if not is_new:
            host.log.warning("the replica was dropped, and is added again as a new one")
            host.recovery.quiesce()
            host.performer.epoch.forget()
            host.progress.forget()
            host.lacking.clear()
        is_shared = host.sharing is not None
        if host.performer.run_plain(finish_leaving(host.replica, shared=is_shared)) is not Outcome.DONE:
            raise Unavailable("the replica was dropped, and its nodes can't be removed now")
        incarnation = host.incarnation if is_shared else ""
        match host.performer.run_plain(join_table(host.replica, incarnation)):
            case Outcome.DONE | Outcome.EXISTS:
                return
            case Outcome.WORN:
                raise Unavailable(
                    f"replica {host.replica.name} was dropped after more than {EPOCHS_MAX} activations, and can't be added"
                    " again under this name: give it another one"
                )
        raise Unavailable("the table is being dropped")

    def _busy(self, holder: bytes, owner: Owner) -> ReplitreeError:
        host = self._host
        identity = decode_identity(holder)
        who = f"process {identity.pid} at {identity.address}" if identity else "another process"
        if owner is Owner.ALIVE:
            return ReplicaBusy(
                f"{who} is running as replica {host.replica.name}: stop it, or give this one another name"
            )
        return Unavailable(f"{who} held replica {host.replica.name}; waiting until its session expires")
