"""A virtual object store: objects in virtual time, and answers that are lost, late or given twice.

A share has `PIECES` objects, its manifest the last one; each is put or deleted by a request of its own, so a crash leaves any
number of them.  A request whose answer is lost is not done, is done, or is done long after its sender has stopped to wait.  A
request may also arrive a second time, late.  While the store is *away* nothing arrives and nothing can be read.

*Stray* are shares of which an object came late: such an object may have no owner, and is left to fsck.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replitree.protocol.shares.share import ShareId
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.store.store_options import StoreOptions
from replitree_verify.world.objects import PIECES, Objects


@dataclass(frozen=True, slots=True)
class Change:
    """One request: put an object of a share, or delete it."""

    share: ShareId
    piece: int
    is_put: bool


def putting(share: ShareId) -> tuple[Change, ...]:
    """Return what puts a share, its manifest last."""
    return tuple(Change(share, piece, is_put=True) for piece in range(PIECES))


def deleting(share: ShareId) -> tuple[Change, ...]:
    """Return what deletes a share, its manifest first."""
    return tuple(Change(share, piece, is_put=False) for piece in reversed(range(PIECES)))


class ObjectStore:
    """The store of one run.

    Parameters
    ----------
    options, cluster
        What the seed drew, and the world.
    on_change
        Called after each change, with the change and whether its sender waits for it.
    """

    def __init__(self, options: StoreOptions, cluster: Cluster, on_change: Callable[[Change, bool], None]) -> None:
        self.options = options
        self.objects: set[tuple[ShareId, int]] = set()
        self.stray: set[ShareId] = set()
        self.pending = 0
        self._cluster = cluster
        self._on_change = on_change
        self._away_until = 0

    @property
    def content(self) -> Objects:
        """What is there, as a value."""
        return Objects(frozenset(self.objects), stray=frozenset(self.stray))

    # --- reads ----------------------------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        """Whether no process reaches it now."""
        return self._away_until > self._cluster.now

    def can_read(self, share: ShareId) -> bool:
        """Whether a share is found here: its manifest, and every object that this names."""
        return not self.is_away and self.is_whole(share)

    def is_whole(self, share: ShareId) -> bool:
        """Whether all objects of a share are there."""
        return all((share, piece) in self.objects for piece in range(PIECES))

    # --- changes --------------------------------------------------------------------------------------------------------------

    def be_away(self, length: int) -> None:
        """Be away for a while."""
        self._away_until = max(self._away_until, self._cluster.now + length)

    def be_back(self) -> None:
        """Be there again."""
        self._away_until = self._cluster.now

    def send(self, change: Change, waits: Callable[[], bool], hear: Callable[[bool], None]) -> str:
        """Ask for a change.

        Parameters
        ----------
        waits
            Says whether the sender still waits for this change.
        hear
            Called with whether there was an answer.

        Returns
        -------
        What becomes of it, for the probes; empty when it goes as it should.
        """
        cluster, options = self._cluster, self.options
        there = cluster.spread(options.request)
        if self.is_away:
            cluster.after(options.timeout, lambda: hear(False))
            return "store away"
        if there >= options.timeout or cluster.chance(options.loss):
            fate = cluster.random.choice(("never", "done", "late"))
            if fate == "done":
                self._arrive_after(min(there, options.timeout - 1), change, waits)
            elif fate == "late":
                self._arrive_after(options.timeout + cluster.random.randint(1, 4 * options.timeout), change, waits)
            cluster.after(options.timeout, lambda: hear(False))
            return f"store answer lost: {fate}"
        self._arrive_after(there, change, waits, hear)
        if cluster.chance(options.repeats):
            self._arrive_after(there + cluster.random.randint(1, 4 * options.timeout), change, waits)
            return "store request repeated"
        return ""

    def _arrive_after(
        self, delay: int, change: Change, waits: Callable[[], bool], hear: Callable[[bool], None] | None = None
    ) -> None:
        self.pending += 1
        self._cluster.after(delay, lambda: self._arrive(change, waits, hear))

    def _arrive(self, change: Change, waits: Callable[[], bool], hear: Callable[[bool], None] | None) -> None:
        self.pending -= 1
        if self.is_away:
            if hear is not None:
                self._cluster.after(self.options.timeout, lambda: hear(False))
            return
        is_awaited = waits()
        if change.is_put:
            self.objects.add((change.share, change.piece))
            if not is_awaited:
                self.stray.add(change.share)
        else:
            self.objects.discard((change.share, change.piece))
        self._cluster.note("store", f"{'put' if change.is_put else 'delete'} {change.share}/{change.piece}")
        self._on_change(change, is_awaited)
        if hear is not None:
            self._cluster.after(self._cluster.spread(self.options.request), lambda: hear(True))
