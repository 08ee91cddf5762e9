"""A simulated table on an object store: the store, its checks, and the processes that use it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from replitree.protocol.shares.share import ShareId
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.observer import Observer
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.process import Process
from replitree_verify.simulation.store.moving_checks import EARLY_ENDS
from replitree_verify.simulation.store.moving_process import MovingProcess
from replitree_verify.simulation.store.object_store import Change, ObjectStore
from replitree_verify.simulation.store.shared_checks import SharedChecks
from replitree_verify.simulation.store.shared_process import SharedProcess
from replitree_verify.simulation.store.store_options import StoreOptions
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage

ABSENCES = (SECOND, 5 * SECOND, 20 * SECOND)
"""How long the store may be away."""


class SharedTable:
    """The object store of one run.

    Parameters
    ----------
    options, cluster, observer
        What the seed drew, the world, and the observer that checks it.
    disks, processes
        Of each replica; they change in place.
    """

    def __init__(
        self,
        options: StoreOptions,
        cluster: Cluster,
        observer: Observer,
        disks: Mapping[str, Disk],
        processes: dict[str, Process],
    ) -> None:
        self._cluster, self._observer, self._processes = cluster, observer, processes
        self._checks = SharedChecks(disks)
        self._checks.store = self.store = ObjectStore(options, cluster, self._stored)
        self._is_last = False
        self._unseen: set[str] = set()
        observer.seen("table on an object store")
        if options.moving is not None:
            observer.seen("table whose parts move")

    def process(self, name: str, incarnation: int, stages: Mapping[str, Stage], *, is_operator: bool) -> Process:
        """Return a process of a replica of this table."""
        moving = self.store.options.moving
        kind = SharedProcess if moving is None or is_operator else MovingProcess
        process = kind(
            self._cluster, self._observer, name, incarnation, stages, self._processes, is_operator=is_operator
        )
        process.store, process.on_let_go = self.store, self.changed
        if isinstance(process, MovingProcess) and moving is not None:
            process.moving, process.on_unseen = moving, self._unseen.add
        return process

    def plan_faults(self, random: Random, duration: int) -> None:
        """Let the store be away now and then."""
        for _ in range(self.store.options.absences):
            length = random.choice(ABSENCES)
            self._cluster.after(random.randrange(duration), lambda length=length: self.store.be_away(length))  # type: ignore[misc]

    def heal(self) -> None:
        """Let the store be there."""
        self.store.be_back()

    def changed(self) -> None:
        """Check a change of coordination, or of what is noted on a disk."""
        memories = {name: process.memory for name, process in self._processes.items() if process.alive}
        self._checks.changed(self._cluster.tree, memories)

    def _stored(self, change: Change, is_awaited: bool) -> None:
        if not is_awaited:
            self._observer.seen("late put" if change.is_put else "late delete")
        self._checks.stored(self._cluster.tree, change)

    def is_settled(self) -> bool:
        """Whether nothing is left to do with shares; at first that may be left which only an activation settles."""
        return not self._left()

    def who_lags(self) -> str:
        """Say what is left to do with shares."""
        return self._left() or "shares are settled"

    def _left(self) -> str:
        movers = (process for process in self._processes.values() if isinstance(process, MovingProcess))
        places = {process.name: process.place for process in movers}
        return self._checks.left(self._cluster.tree, places, is_last=self._is_last)

    def check_before_activation(self) -> None:
        """Check what fsck would find and repair now; from now on all is to be settled without it."""
        self._checks.check_with_fsck(self._cluster.tree, self._begun())
        self._is_last = True

    def check_at_rest(self) -> None:
        """Check that marks, objects and parts are the same, once fsck has deleted what is stray."""
        self.changed()
        self._checks.check_at_rest(self._cluster.tree, self._begun())
        if not any(self._observer.probes[each] for each in EARLY_ENDS):
            self._checks.check_moved_once(self._cluster.tree, self._unseen)

    def _begun(self) -> dict[str, frozenset[ShareId]]:
        """Return the shares that each process writes now, as it would say."""
        return {name: process.begun for name, process in self._processes.items() if isinstance(process, SharedProcess)}


__all__ = ["SharedTable"]
