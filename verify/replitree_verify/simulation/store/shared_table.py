"""A simulated table on an object store: the store, its checks, and the processes that use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from replitree.protocol.shares.table_store import sharing_nodes
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.observer import Observer, Violated
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.process import Process
from replitree_verify.simulation.store.moving_checks import EARLY_ENDS
from replitree_verify.simulation.store.moving_process import MovingProcess
from replitree_verify.simulation.store.object_store import Change, ObjectStore
from replitree_verify.simulation.store.shared_checks import SharedChecks
from replitree_verify.simulation.store.shared_process import SharedProcess, Wish
from replitree_verify.simulation.store.store_options import StoreOptions
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE

ABSENCES = (SECOND, 5 * SECOND, 20 * SECOND)
"""How long the store may be away."""

MERGES = 0.4
"""Share of the uploads that are results of merges; the others are inserted."""


class SharedTable:
    """The object store of one run.

    Parameters
    ----------
    options, cluster, observer
        What the seed drew, the world, and the observer that checks it.
    disks, processes
        Of each replica; they change in place.
    new_request
        Numbers requests.
    """

    def __init__(
        self,
        options: StoreOptions,
        cluster: Cluster,
        observer: Observer,
        disks: Mapping[str, Disk],
        processes: dict[str, Process],
        new_request: Callable[[], int],
    ) -> None:
        self._cluster, self._observer, self._processes = cluster, observer, processes
        self._checks = SharedChecks(disks)
        self._checks.store = self.store = ObjectStore(options, cluster, self._stored)
        self._is_last = False
        self._new_request = new_request
        self._wishes: dict[str, Wish] = {}
        self._uploads = 0
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
        process.wishes, process.new_request = self._wishes, self._new_request
        if isinstance(process, MovingProcess) and moving is not None:
            process.moving, process.on_unseen = moving, self._unseen.add
        return process

    def plan_faults(self, random: Random, duration: int) -> None:
        """Let the store be away now and then, let clients upload, and give the table its store if it has none yet."""
        options = self.store.options
        for _ in range(options.absences):
            length = random.choice(ABSENCES)
            self._cluster.after(random.randrange(duration), lambda length=length: self.store.be_away(length))  # type: ignore[misc]
        for _ in range(options.uploads):
            self._cluster.after(random.randrange(duration), lambda: self._upload(random))
        if options.opens:
            self._cluster.after(int(duration * options.opens), self._give_store)

    def _upload(self, random: Random) -> None:
        """Let the client of some replica upload a part, or the result of a merge of neighbours."""
        process = random.choice(list(self._processes.values()))
        pairs, is_merge = process.neighbours, random.random() < MERGES
        is_busy = not process.is_active or process.name in self._wishes
        if not isinstance(process, SharedProcess) or is_busy or process.sharer is None or (is_merge and not pairs):
            return
        self._uploads += 1
        sources = random.choice(pairs) if is_merge else ()
        process.upload(sources or f"upload.{self._uploads}")

    def _give_store(self) -> None:
        """Let an operator give the table a store; the replicas hear of it some time later."""
        self._observer.seen("table gets a store")
        tree, _ = self._cluster.tree.commit(sharing_nodes(TABLE), session=1)
        self._cluster.become(tree, "operator")
        self._let_hear()

    def _let_hear(self) -> None:
        """Let each replica hear that the table has a store, again and again: to open it may come to nothing."""
        for process in self._processes.values():
            if isinstance(process, SharedProcess) and process.sharer is None:
                self._cluster.after(self._cluster.spread(SECOND), process.hear_of_store)
        self._cluster.after(SECOND, self._let_hear)

    def changed(self) -> None:
        """Check a change of coordination, or of what is noted on a disk."""
        self._checks.changed(self._cluster.tree, self._memories())

    def _stored(self, change: Change, is_awaited: bool) -> None:
        if not is_awaited:
            self._observer.seen("late put" if change.is_put else "late delete")
        self._checks.stored(self._cluster.tree, change)

    def _memories(self) -> dict[str, Memory]:
        return {name: process.memory for name, process in self._processes.items() if process.alive}

    def left(self) -> str:
        """Say what is left to do with shares; empty when nothing is, but for what only an activation settles."""
        movers = (process for process in self._processes.values() if isinstance(process, MovingProcess))
        places = {process.name: process.place for process in movers}
        for name, process in self._processes.items():
            if name in self._wishes or (isinstance(process, SharedProcess) and process.sharer is None):
                return f"{name} has {'an upload' if name in self._wishes else 'not opened the store'}"
        return self._checks.left(self._cluster.tree, places, is_last=self._is_last)

    def check_before_activation(self) -> None:
        """Check what fsck would find and repair now; from now on all is to be settled without it."""
        self._checks.check_with_fsck(self._cluster.tree, self._memories())
        self._is_last = True

    def check_at_rest(self) -> None:
        """Check that marks, objects and parts are the same, once fsck has deleted what is stray."""
        self.changed()
        self._checks.check_at_rest(self._cluster.tree, self._memories())
        if not any(self._observer.probes[each] for each in EARLY_ENDS):
            self._checks.check_moved_once(self._cluster.tree, self._unseen)

    def check_dropped(self) -> None:
        """Check that a table that was dropped has left no object, but what came late."""
        left = sorted(share for share, _ in self.store.objects if share not in self.store.stray)
        if left:
            raise Violated(f"SETTLES: the table was dropped, and the objects of {left[0]} are there")
