"""Activation: runs the stages of `replitree.protocol.program.life`, until the replica may act.

It may be done any number of times, after trouble or at the start.  Each time it ends with an epoch and the log pulled to its
tail, or raises.  Then nothing was lost: the next try begins anew.

Absent on purpose: when it is done, and what the replica shows meanwhile; see `replitree.replica.table.table_replica`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Protocol

from replitree.errors import ReplicaBusy, ReplicaReplaced, ReplitreeError, Unavailable
from replitree.protocol.core.effects import Effect, Epoch, Owner, RemoveStaging
from replitree.protocol.core.epochs import epochs_max
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Busy, Replaced, Unsettled
from replitree.protocol.membership.table import TableOutcome
from replitree.protocol.program import life
from replitree.protocol.program.life_in_store import stages_in_store
from replitree.protocol.program.stages import (
    AskReload,
    AwaitIdle,
    AwaitReplica,
    AwaitSource,
    BeginLoad,
    CurrentSharer,
    Forget,
    Lack,
    MemoryEffect,
    Missed,
    Opened,
    Quieten,
    Serve,
    Stage,
    Stop,
    TakeOver,
    Then,
)
from replitree.protocol.rescue.recover import Good, NoSource, NotYet, Recovered
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Fenced, Gap, Loaded
from replitree.protocol.upkeep.lost import READ_BATCH, registered_contents
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.parts.sharing import Sharing
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.runner import Performer
from replitree.replica.table.recovery import Recovery, no_source
from replitree.replica.table.workers import Puller
from replitree.storage.disk.store import PartStore
from replitree.storage.schema.definition import TableDefinition
from replitree.wire.identity import decode_identity


class Host(Protocol):
    """What activating needs of the replica."""

    replica: Replica
    me: bytes
    incarnation: str
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
    def sharing(self) -> Sharing | None:
        """The table's shares; None for a table that has no store."""

    @property
    def definition(self) -> TableDefinition:
        """The table's definition."""

    def begin_activation(self) -> None:
        """Forget the trouble, and make sure that the disk has room."""

    def serve(self, epoch: Epoch) -> None:
        """Be active under an epoch, unless there was trouble meanwhile."""


class Activation:
    """Activates one table replica."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._driver = Driver(host.performer, self._remember, self._perform)
        self._swept = False
        self._begun = 0
        self._epoch = Epoch(0)
        self._in_store: Mapping[str, Callable[..., Stage]] = {}

    def activate(self) -> None:
        """Run the stages of the life thread until the replica serves.

        Raises
        ------
        ReplicaBusy, ReplicaReplaced
            Another live process has the replica's name.
        ReplitreeError, OSError
            Something is in the way; try again.
        """
        host = self._host
        then, self._in_store = Then(life.become_active, (host.replica, host.me)), {}
        while then.stage is not life.wait_for_trouble:
            self._begin(then)
            following = self._driver.run(then, self._in_store)
            assert isinstance(following, Then), "a stage that ends the thread stops it"
            self._report(then, following)
            then = following

    def _begin(self, then: Then) -> None:
        """Do what belongs to the process, and to no replica's state, before a stage begins."""
        host = self._host
        if then.stage is life.take_stand:
            self._epoch = then.arguments[2]
            host.metrics.epoch.labels(host.definition.name).set(self._epoch)
            if not self._swept:
                host.store.sweep()  # no other process acts for this replica from now on
                self._swept = True
        if then.stage is life.recover_state:
            host.recovery.begin()
        if host.sharing is not None and then.stage in (life.take_stand, life.join_again):
            self._in_store = stages_in_store(host.sharing.probe(), host.incarnation)

    def _report(self, ended: Then, following: Then) -> None:
        """Report what a stage found out.

        Raises
        ------
        ReplicaBusy
            Another live process has the replica's name.
        Unavailable
            The replica can't go on now: begin anew after a pause, or when a session begins.
        """
        host, outcome = self._host, following.outcome
        match outcome:
            case None:
                return
            case Recovered():
                host.recovery.done(outcome)
            case NotYet(reason) if ended.stage is life.recover_state:
                host.recovery.wait(reason)
            case Busy(holder, owner):
                raise self._busy(holder, owner)
            case _:
                raise Unavailable(_why(outcome, host.replica, is_recovering=ended.stage is life.recover_state))

    # --- effects --------------------------------------------------------------------------------------------------------

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the life thread on the process's memory."""
        host = self._host
        match effect:
            case Quieten():
                host.begin_activation()
            case AwaitIdle():
                host.recovery.quiesce()
            case Forget():
                self._forget()
            case BeginLoad():
                self._begun = host.progress.begin_load()
            case TakeOver(loaded):
                return self._take_over(loaded)
            case AskReload():
                host.puller.reload()
            case Lack(parts):
                host.lacking.update(parts)
            case Serve():
                host.progress.has_strays = False
                host.serve(self._epoch)
            case Stop(outcome):
                raise self._stopped(outcome)
            case Missed() | AwaitReplica() | AwaitSource():
                pass  # what the stage found out is reported at its end, and the thread begins anew
            case Opened() | CurrentSharer():
                return self._in_its_store(effect)
            case _:
                raise AssertionError(effect)
        return None

    def _perform(self, effect: Effect) -> object:
        """Perform an effect of the protocol, and follow it for the log and the status."""
        outcome = self._host.performer.perform(effect)
        if isinstance(effect, RemoveStaging):
            self._host.log.info("swept", staging=effect.staging)
        self._host.recovery.see(effect, outcome)
        return outcome

    def _in_its_store(self, effect: Opened | CurrentSharer) -> Sharer | None:
        sharing = self._host.sharing
        assert sharing is not None, "only stages of a table on an object store ask"
        if isinstance(effect, Opened):
            sharing.opened(effect.incarnation)
            return None
        return sharing.sharer

    def _forget(self) -> None:
        host = self._host
        if host.performer.epoch.current is not None:
            host.log.warning("the replica was dropped, and is added again as a new one")
        host.performer.epoch.forget()
        host.progress.forget()
        host.lacking.clear()

    def _take_over(self, loaded: Loaded) -> Container[str] | None:
        """Take over what was loaded; the files of a part that is not on the disk are not shown."""
        host = self._host
        self._expect(loaded)
        on_disk = frozenset(host.store.parts())
        host.progress.hide(part.name for part in loaded.held if part.name not in on_disk)
        left = host.progress.take_over(loaded, self._begun)
        host.old_parts.retire(left or ())
        host.old_parts.revive(part.name for part in loaded.held)
        return None if left is None else host.lacking

    def _expect(self, loaded: Loaded) -> None:
        """Let the store know what the parts are registered with, before reads use their manifests."""
        host = self._host
        names = host.store.unexpected(part.name for part in loaded.held)
        for first in range(0, len(names), READ_BATCH):
            with host.store.expecting() as expect:
                expect(host.performer.look_up(registered_contents(host.replica, names[first : first + READ_BATCH])))

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _busy(self, holder: bytes, owner: Owner) -> ReplitreeError:
        host = self._host
        identity = decode_identity(holder)
        who = f"process {identity.pid} at {identity.address}" if identity else "another process"
        if owner is Owner.ALIVE:
            return ReplicaBusy(
                f"{who} is running as replica {host.replica.name}: stop it, or give this one another name"
            )
        return Unavailable(f"{who} held replica {host.replica.name}; waiting until its session expires")

    def _stopped(self, outcome: object) -> ReplitreeError:
        replica = self._host.replica
        if isinstance(outcome, Replaced):
            return ReplicaReplaced(f"another process took over replica {replica.name}; this one stops")
        if outcome is TableOutcome.WORN:
            return Unavailable(
                f"replica {replica.name} was dropped after more than {epochs_max(replica):,} activations, and can't be"
                " added again under this name: give it another one"
            )
        return Unavailable("the table is being dropped")


def _why(outcome: object, replica: Replica, *, is_recovering: bool) -> str:
    """Return why a replica can't go on."""
    match outcome:
        case str():
            return outcome
        case Unsettled():
            return "the activation was refused several times"
        case NoSource():
            return no_source(replica)
        case NotYet(reason):
            return reason
        case Good():
            return f"replica {replica.name} was declared good; it starts again"
        case Fenced():
            return f"the epoch was taken over{' during the recovery' if is_recovering else ''}"
        case Gap(index):
            return f"log entry {index} is gone although this replica had not pulled it; it starts again"
    raise AssertionError(outcome)


__all__ = ["Activation"]
