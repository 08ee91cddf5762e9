"""What a table replica is able to do now, and why no more than that.

After trouble (`replica.kit.evidence` has the list) the replica is read-only until the next activation succeeds, and while
something hinders it, a full disk or a silent coordination, until that is over; what is local stays readable all the time.

    starting ──▶ active ◀──▶ read_only          recovering: it is lost and takes over another one's state
        │           ▲            │              halted: an operator must act (newer format)
        └──▶ recovering ◀────────┘              stopped: replaced by another process, or shut down
                    └──▶ halted, stopped
"""

from __future__ import annotations

import threading
from enum import Enum

from replitree.errors import ReadOnly, StoreError, Unavailable
from replitree.protocol.core.effects import Epoch
from replitree.replica.kit.evidence import Evidence, Hindrance, Trouble
from replitree.replica.perform.context import TableContext
from replitree.storage.disk.store import PartStore


class State(Enum):
    """What a table replica is able to do."""

    STARTING = "starting"
    ACTIVE = "active"
    READ_ONLY = "read_only"
    RECOVERING = "recovering"
    HALTED = "halted"
    STOPPED = "stopped"


class Availability:
    """The state of one table replica.  Any thread may report to it; the life thread acts on what is reported.

    Parameters
    ----------
    store
        The table's disk: without room on it the replica takes no writes.

    Attributes
    ----------
    state, reason
        What the replica is able to do, and why it can't do more.
    """

    def __init__(self, context: TableContext, store: PartStore) -> None:
        self._context = context
        self._store = store
        self._changed = threading.Condition()
        self._trouble = Trouble()
        self._hindrances: dict[Hindrance, str] = {}
        self.state, self.reason = State.STARTING, "it has not activated yet"

    def _set(self, state: State, reason: str) -> None:
        context, name = self._context, self._context.replica.table.name
        if (state, reason) != (self.state, self.reason):
            context.log.info("state", state=state.value, reason=reason, epoch=context.performer.epoch.current)
        self.state, self.reason = state, reason
        context.metrics.active.labels(name).set(state is State.ACTIVE)
        context.metrics.recovering.labels(name).set(state is State.RECOVERING)
        self._changed.notify_all()

    # --- writing --------------------------------------------------------------------------------------------------------

    def active_epoch(self) -> Epoch | None:
        """Return the epoch while the replica is active, else None."""
        return self._context.performer.epoch.current if self.state is State.ACTIVE else None

    def epoch(self) -> Epoch:
        """Return the epoch to write under.

        Raises
        ------
        ReadOnly
            The replica is not active.
        """
        epoch = self.active_epoch()
        if epoch is None:
            raise ReadOnly(self.why_not_active())
        return epoch

    def why_not_active(self) -> str:
        """Return why the replica takes no writes."""
        replica = self._context.replica
        return f"replica {replica.name} of table {replica.table.name} is {self.state.value}: {self.reason}"

    def why_makes_nothing(self) -> str | None:
        """Return why the replica makes no results of merges and mutations now, or None."""
        if self.is_stopping():
            return "the replica shuts down"
        return "the replica is lost, and recovers" if self.is_recovering() else None

    # --- trouble --------------------------------------------------------------------------------------------------------

    def trouble(self, evidence: Evidence, reason: str) -> None:
        """Report that the replica must activate again; it is read-only at once."""
        with self._changed:
            if self.state not in (State.HALTED, State.STOPPED):
                self._trouble.add(evidence, reason)
                if self.state is State.ACTIVE:
                    self._set(State.READ_ONLY, reason)
                self._changed.notify_all()

    def fenced(self, epoch: Epoch) -> None:
        """Report that coordination refused a commit under an epoch: trouble, unless the replica has a newer one by now."""
        with self._changed:
            if self._trouble.is_fenced(epoch, self._context.performer.epoch.current):
                self.trouble(Evidence.FENCED, "the epoch was taken over")

    def session_began(self) -> None:
        """Report that a new coordination session began: the replica must activate again, without the pause after a failure."""
        with self._changed:
            self._trouble.has_new_session = True
            self.trouble(Evidence.SESSION, "a new coordination session began")

    def halt(self, reason: str) -> None:
        """Report that the replica can't go on until an operator does something."""
        with self._changed:
            if self.state is not State.STOPPED:
                self._context.log.error("halted", reason=reason)
                self._set(State.HALTED, reason)

    def hinder(self, hindrance: Hindrance, reason: str) -> None:
        """Be read-only until this is over, and go on under the same epoch then."""
        with self._changed:
            if hindrance in self._hindrances and self.state is not State.ACTIVE:
                return
            self._hindrances[hindrance] = reason
            if self.state is State.ACTIVE or (self.state is State.READ_ONLY and not self.needs_activation):
                self._set(State.READ_ONLY, reason)

    def unhinder(self, hindrance: Hindrance) -> None:
        """Report that a hindrance is over."""
        with self._changed:
            if self._hindrances.pop(hindrance, None) is not None:
                self._changed.notify_all()

    # --- the disk -------------------------------------------------------------------------------------------------------

    def check_disk(self) -> None:
        """Do nothing while the disk has more free bytes than are kept in reserve.

        Raises
        ------
        Unavailable
            It has not.
        """
        free, reserve = self._store.free_bytes(), self._context.config.disk_reserve_bytes
        if free < reserve:
            raise Unavailable(
                f"disk full: {free >> 20} MiB are free, {reserve >> 20} MiB are kept in reserve; "
                "make room, the replica goes on by itself"
            )

    def disk_failed(self, reason: str) -> None:
        """Report that a write failed: the replica is read-only until there is room, unless the disk takes other writes."""
        try:
            self._probe_disk()
        except (Unavailable, StoreError) as error:
            self.hinder(Hindrance.DISK, f"disk: {error}")
        else:
            self._context.log.warning("a write failed, and the disk takes others", problem=reason)

    def _probe_disk(self) -> None:
        self.check_disk()
        self._store.probe()

    # --- recovering -----------------------------------------------------------------------------------------------------

    def is_recovering(self) -> bool:
        """Whether the replica takes over another replica's state."""
        return self.state is State.RECOVERING

    def say_recovering(self, reason: str) -> None:
        """Show that the replica recovers, and how far it is or what it waits for."""
        with self._changed:
            if self.state is State.RECOVERING:
                self.reason = reason
            elif not self.is_stopping():
                self._set(State.RECOVERING, reason)

    def is_interrupted(self) -> bool:
        """Whether the replica stops, or must activate again."""
        return self.needs_activation or self.is_stopping()

    def wait_interrupted(self, timeout_s: float) -> bool:
        """Wait up to some seconds until the replica stops or must activate again; True when it must."""
        with self._changed:
            return self._changed.wait_for(self.is_interrupted, timeout_s)

    # --- life -----------------------------------------------------------------------------------------------------------

    @property
    def needs_activation(self) -> bool:
        """Whether there was trouble since the last activation began."""
        return self._trouble.reason is not None

    def is_stopping(self) -> bool:
        """Whether the replica has stopped, or is about to."""
        return self.state is State.STOPPED

    def stop(self, reason: str) -> None:
        """Be stopped for good."""
        with self._changed:
            self._set(State.STOPPED, reason)

    def wait_stopping(self, timeout_s: float) -> None:
        """Wait up to some seconds until the replica stops."""
        with self._changed:
            self._changed.wait_for(self.is_stopping, timeout_s)

    def wait_started(self, timeout_s: float) -> State:
        """Wait until the first activation has ended, well or not."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not State.STARTING, timeout_s)
            return self.state

    def wait_settled(self, timeout_s: float) -> None:
        """Wait until the replica is neither starting nor recovering."""
        with self._changed:
            self._changed.wait_for(lambda: self.state not in (State.STARTING, State.RECOVERING), timeout_s)

    def may_go_on(self) -> bool:
        """Wait for ever while the replica is halted; False: it stops."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not State.HALTED)
            return not self.is_stopping()

    def begin_activation(self) -> None:
        """Forget the trouble: an activation begins, which deals with it.

        Raises
        ------
        Unavailable
            There is no room on the disk.
        """
        with self._changed:
            self._trouble.begin_activation()
        self.check_disk()

    def end_activation(self, epoch: Epoch) -> str:
        """Take note that an activation took an epoch; return the evidence that it answers."""
        with self._changed:
            self._trouble.end_activation(epoch)
        return self._trouble.answered.value

    def pause(self, reason: str, pause_s: float) -> None:
        """Be read-only for some seconds, or until a session begins: the life thread could not make the replica active."""
        with self._changed:
            if self.state not in (State.HALTED, State.STOPPED):
                self._set(State.READ_ONLY, reason)
                if not self._trouble.has_new_session:
                    self._changed.wait(pause_s)

    def serve(self) -> None:
        """Be active, unless there was trouble meanwhile or something hinders the replica."""
        with self._changed:
            if not self.needs_activation and self.state not in (State.HALTED, State.STOPPED):
                reason = next(iter(self._hindrances.values()), "")
                self._set(State.READ_ONLY if reason else State.ACTIVE, reason)

    def wait_duty(self) -> None:
        """Wait until the life thread must activate, stop, look at the disk, or go on after a hindrance."""
        with self._changed:
            while not self.is_interrupted():
                is_hindered = bool(self._hindrances) and Hindrance.DISK not in self._hindrances
                if self.state is State.READ_ONLY and not is_hindered:
                    return
                self._changed.wait()

    def recheck_disk(self) -> None:
        """End the hindrance of the disk if it takes writes again.

        Raises
        ------
        Unavailable, StoreError
            It does not.
        """
        if Hindrance.DISK in self._hindrances:
            self._probe_disk()
            self.unhinder(Hindrance.DISK)


__all__ = ["Availability", "State"]
