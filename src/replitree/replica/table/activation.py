"""Activation: runs the stages of `replitree.protocol.program.life`, until the replica may act.

It may be done any number of times, after trouble or at the start.  Each time it ends with an epoch and the log pulled to its
tail, or raises.  Then nothing was lost: the next try begins anew.

Absent on purpose: when it is done, and what the replica may do meanwhile; see `replitree.replica.perform.availability`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

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
from replitree.replica.kit.evidence import Hindrance
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.leader import Leader
from replitree.replica.table.recovery import Recovery, no_source
from replitree.wire.identity import decode_identity


class Activation:
    """Activates one table replica.

    Parameters
    ----------
    storage
        The table's object store, which must be usable before the replica is active.
    recovery
        Takes over another replica's state when this one is lost.
    leader
        Looks at once what there is to do when the replica is active.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        storage: FollowedStorage,
        recovery: Recovery,
        leader: Leader,
    ) -> None:
        self._context = context
        self._parts = parts
        self._availability = availability
        self._storage = storage
        self._recovery = recovery
        self._leader = leader
        self._driver = Driver(context.performer, self._remember, self._perform)
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
        context = self._context
        then, self._in_store = Then(life.become_active, (context.replica, context.identity.encode())), {}
        while then.stage is not life.wait_for_trouble:
            if then.stage is life.take_stand:
                self._epoch = then.arguments[2]
                context.metrics.epoch.labels(context.replica.table.name).set(self._epoch)
                if not self._swept:
                    # From this epoch on no other process acts for this replica, so what is staged here is left over.
                    self._parts.store.sweep()
                    self._swept = True
            if then.stage is life.recover_state:
                self._recovery.begin()
            sharing = self._storage.sharing
            if sharing is not None and then.stage in (life.take_stand, life.join_again):
                self._in_store = stages_in_store(sharing.probe(), context.identity.incarnation)
            following = self._driver.run(then, self._in_store)
            assert isinstance(following, Then), "a stage that ends the thread stops it"
            self._report(then, following)
            then = following

    def _report(self, ended: Then, following: Then) -> None:
        """Report what a stage found out.

        Raises
        ------
        ReplicaBusy
            Another live process has the replica's name.
        Unavailable
            The replica can't go on now: begin anew after a pause, or when a session begins.
        """
        outcome = following.outcome
        match outcome:
            case None:
                return
            case Recovered():
                self._recovery.done(outcome)
            case NotYet(reason) if ended.stage is life.recover_state:
                self._recovery.wait(reason)
            case Busy(holder, owner):
                identity = decode_identity(holder)
                who = f"process {identity.pid} at {identity.address}" if identity else "another process"
                name = self._context.replica.name
                if owner is Owner.ALIVE:
                    raise ReplicaBusy(f"{who} is running as replica {name}: stop it, or give this one another name")
                raise Unavailable(f"{who} held replica {name}; waiting until its session expires")
            case _:
                raise Unavailable(_why(outcome, self._context.replica, is_recovering=ended.stage is life.recover_state))

    def go_on(self) -> None:
        """Be active again under the same epoch when what hindered the replica is over.

        Raises
        ------
        Unavailable, StoreError
            The disk takes no writes yet.
        """
        self._availability.recheck_disk()
        self._be_active()

    def _be_active(self) -> None:
        self._availability.serve()
        self._context.progress.retry_now()
        self._context.pull_signal.wake()
        self._leader.wake()

    # --- effects --------------------------------------------------------------------------------------------------------

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the life thread on the process's memory."""
        context, parts = self._context, self._parts
        match effect:
            case Quieten():
                self._availability.begin_activation()
                self._storage.use(None)
            case AwaitIdle():
                self._recovery.quiesce()
            case Forget():
                self._forget()
            case BeginLoad():
                self._begun = context.progress.begin_load()
            case TakeOver(loaded):
                return self._take_over(loaded)
            case AskReload():
                context.pull_signal.reload()
            case Lack(lacking):
                parts.lacking.update(lacking)
            case Serve():
                # The replica is active now, unless there was trouble meanwhile.
                context.progress.has_strays = False
                evidence = self._availability.end_activation(self._epoch)
                self._recovery.finished()
                context.definitions.refresh()
                parts.versions.catch_up()
                pointer, queue = context.progress.pointer, context.progress.queue_length()
                context.log.info("activated", epoch=self._epoch, pointer=pointer, queue=queue, evidence=evidence)
                context.metrics.activations.labels(context.replica.table.name, evidence).inc()
                self._availability.unhinder(Hindrance.DISK)
                self._be_active()
            case Stop(outcome):
                raise self._stopped(outcome)
            case Missed() | AwaitReplica() | AwaitSource():
                # The end of the stage carries what it found out, and the thread starts the next stage.
                pass
            case Opened() | CurrentSharer():
                return self._in_its_store(effect)
            case _:
                raise AssertionError(effect)
        return None

    def _perform(self, effect: Effect) -> object:
        """Perform an effect of the protocol, and follow it for the log and the status."""
        outcome = self._context.performer.perform(effect)
        if isinstance(effect, RemoveStaging):
            self._context.log.info("swept", staging=effect.staging)
        self._recovery.see(effect, outcome)
        return outcome

    def _in_its_store(self, effect: Opened | CurrentSharer) -> Sharer | None:
        sharing = self._storage.sharing
        assert sharing is not None, "only stages of a table on an object store ask"
        if isinstance(effect, Opened):
            sharing.opened(effect.incarnation)
            return None
        return sharing.sharer

    def _forget(self) -> None:
        context = self._context
        if context.performer.epoch.current is not None:
            context.log.warning("the replica was dropped, and is added again as a new one")
        context.performer.epoch.forget()
        context.progress.forget()
        self._parts.lacking.clear()

    def _take_over(self, loaded: Loaded) -> Container[str] | None:
        """Take over what was loaded; the files of a part that is not on the disk are not shown."""
        progress, parts = self._context.progress, self._parts
        # The store must know the registered content hashes before a read uses a manifest.
        context, store = self._context, self._parts.store
        names = store.unexpected(part.name for part in loaded.held)
        for first in range(0, len(names), READ_BATCH):
            with store.expecting() as expect:
                expect(
                    context.performer.look_up(registered_contents(context.replica, names[first : first + READ_BATCH]))
                )
        on_disk = frozenset(parts.store.parts())
        progress.hide(part.name for part in loaded.held if part.name not in on_disk)
        left = progress.take_over(loaded, self._begun)
        parts.old_parts.retire(left or ())
        parts.old_parts.revive(part.name for part in loaded.held)
        return None if left is None else parts.lacking

    # --- errors ---------------------------------------------------------------------------------------------------------

    def _stopped(self, outcome: object) -> ReplitreeError:
        replica = self._context.replica
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
