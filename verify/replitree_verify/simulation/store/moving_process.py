"""A virtual process of a replica whose parts move between its disk and the store, while everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Detach, StoreFailed
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import MoveEnded, MoveTurn, UpkeepTurn
from replitree.protocol.shares.moving import (
    BringRows,
    FindShare,
    FoundShare,
    Moved,
    NameMove,
    NoteMove,
    NotMoved,
    PutPart,
    ShareInDoubt,
    ToDisk,
    ToShare,
)
from replitree.protocol.shares.share import ObjectsInDoubt, ObjectsThere, ShareId
from replitree_verify.outcomes.closed_stages import ROUNDS
from replitree_verify.process import moves
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.store import shared_process
from replitree_verify.simulation.store.object_store import putting
from replitree_verify.simulation.store.shared_process import SharedProcess
from replitree_verify.simulation.store.store_options import MovingOptions
from replitree_verify.simulation.thread import Thread
from replitree_verify.world.disk import Disk
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import Place
from replitree_verify.world.shared_disk import SharedDisk

_ELSEWHERE = (FindShare, BringRows)
"""Effects that ask other replicas, or read in the store."""

MOVE_AGAIN = 0
"""How long a mover rests at least after a move in vain, in microseconds."""


class MovingProcess(SharedProcess):
    """One process of a replica whose parts move.

    All parameters are those of `Process`; these are set before it starts, beside those of `SharedProcess`.

    Attributes
    ----------
    moving
        What the seed drew.
    on_unseen
        Called with a part whose share an active replica does not give: it has not registered the part, or lacks objects.
    """

    moving: MovingOptions
    on_unseen: Callable[[str], None]

    @override
    def start(self) -> None:
        self._lag = self.cluster.random.randint(0, self.moving.lag)
        self._since: dict[str, int] = {}
        self._again: dict[str, int] = {}
        self._put_count = 0
        self._on_the_move: MoveTurn | None = None
        super().start()
        self._spawn("mover", ROUNDS["mover"], self.replica)

    @property
    def place(self) -> Place:
        """Where parts belong, as far as it has heard."""
        return self.moving.place_at(self.cluster.now - self._lag)

    @property
    @override
    def puts_new_parts(self) -> bool:
        return self.place is Place.STORE

    # --- threads ------------------------------------------------------------------------------------------------------------

    @override
    def _close(self, thread: Thread) -> None:
        if thread.kind == "mover" and self._on_the_move is not None:
            self.observer.seen("move broken off")
            self._on_the_move = None
        super()._close(thread)

    @override
    def _begin(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if isinstance(effect, _ELSEWHERE):
            long = self.store.options.request if isinstance(effect, BringRows) else 2 * self.cluster.options.delay
            self.cluster.after(self.cluster.spread(long), lambda: self._do(thread, effect))
            return None
        if isinstance(effect, PutPart) and self.disk.has_rows(effect.part):
            self._change(
                thread, effect, putting(effect.share), partial(self._over_store, thread, effect, ObjectsThere())
            )
            return None
        if isinstance(effect, MoveEnded) and not isinstance(effect.outcome, Moved):
            self._told(thread, effect, self._tell_of_moves(effect))
            self.cluster.after(max(self._pause(), MOVE_AGAIN), partial(self._resume, thread, None))
            return None
        if isinstance(effect, MoveEnded | NameMove | PutPart):
            outcome = self._tell_of_moves(effect)
            self._told(thread, effect, outcome)
            return (outcome,)
        return super()._begin(thread, effect)

    # --- what it knows ------------------------------------------------------------------------------------------------------

    def _tell_of_moves(self, effect: MoveEnded | NameMove | PutPart) -> Any:
        if isinstance(effect, PutPart):
            return ObjectsInDoubt("its rows are not here any more")
        if isinstance(effect, NameMove):
            self._put_count += 1
            share = ShareId(f"{self.me.decode()}-moved-{self._put_count}")
            self.moves = self.moves.beginning(effect.part, share)
            return share
        self._on_the_move = None
        self._again.pop(effect.turn.part, None)
        match effect.outcome:
            case Moved(has_put) if effect.turn.share is None:
                self.observer.seen("moved into the store, put" if has_put else "moved into the store, taken over")
            case Moved():
                self.observer.seen("moved to the disk")
            case NotMoved(reason):
                reason = "another replica moves it" if " moves it" in reason else reason.partition(":")[0]
                self.observer.seen(f"not moved: {reason}")
                self._again[effect.turn.part] = self.cluster.now + self.cluster.spread(SECOND)
            case fx.InDoubt():
                self.observer.seen("move in doubt")
        return None

    @override
    def _next_turn(self, thread: Thread) -> UpkeepTurn | MoveTurn | None:
        if thread.kind != "mover":
            return super()._next_turn(thread)
        self._on_the_move = self._next_move()
        if self._on_the_move is None:
            self._rest_after_round(thread)
        return self._on_the_move

    def _next_move(self) -> MoveTurn | None:
        """Return the first part that is not where it belongs and may be moved now."""
        now, place = self.cluster.now, self.place
        free = dict(moves.movable(self.memory, self.disk))
        for name in (part.name for part in self.memory.held):
            self._since.setdefault(name, now)
            if name not in free or self._again.get(name, 0) > now:
                continue
            if place is Place.DISK:
                is_misplaced = free[name] is not None
            else:
                is_old = now - self._since[name] >= self.moving.older
                is_misplaced = free[name] is None and (place is Place.STORE or is_old)
            if is_misplaced:
                assert self.sharer is not None
                return MoveTurn(self.sharer, name, free[name])
        return None

    # --- the store, the disk, and other replicas ----------------------------------------------------------------------------

    @override
    def _do(self, thread: Thread, effect: Any) -> None:
        super()._do(thread, effect)
        if isinstance(effect, moves.ON_DISK):
            self.on_let_go()

    @override
    def _on_disk(self, effect: Any, before: Disk) -> tuple[Any, Disk, Memory]:
        disk, after = cast("SharedDisk", before), None
        match effect:
            case FindShare(part):
                return self._find(part), disk, self.memory
            case NoteMove(part, share):
                self.moves = self.moves.beginning(part, share)
                after = None if self.observer.is_full(self.name) else moves.changed_disk(effect, disk)
            case Detach(parts):
                # Copies that are kept aside need their rows here.
                if not all(share is None or self.store.can_read(share) for share in map(disk.share_of, parts)):
                    return StoreFailed("the store gives no answer"), disk, self.memory
                return super()._on_disk(effect, before)
            case ToShare() | ToDisk() | moves.LoseRows():
                after = moves.changed_disk(effect, disk)
            case BringRows(part, share):
                is_lost = self.cluster.chance(self.store.options.loss) or not self.store.can_read(share)
                after = None if is_lost or self.observer.is_full(self.name) else disk.bringing(part, share)
                outcome = ObjectsInDoubt("no answer, or no room") if after is None else ObjectsThere()
                return outcome, after or disk, self.memory
            case _:
                return super()._on_disk(effect, before)
        return after is not None, after or disk, self.memory

    def _find(self, part: str) -> FoundShare | ShareInDoubt | None:
        """Ask the active replicas for a share with just the rows that are here."""
        doubt: ShareInDoubt | None = None
        content = self.disk.content(part)
        noted = {share for left in self.disk.leaving if left.part == part for share in left.shares}
        others = (name for name in sorted(self._processes) if name != self.name)
        for name in (name for name in others if self.cluster.tree.exists(layout.is_active(Replica(TABLE, name)))):
            theirs = cast("SharedDisk", self.cluster.disks[name])
            share = theirs.share_of(part)
            if not self._serves(name):
                doubt = ShareInDoubt("a replica gives no answer")
            elif share is not None and theirs.content(part) == content:
                if self.store.is_away:
                    doubt = ShareInDoubt("the store gives no answer")
                elif self.store.is_whole(share) and shared_process.gives_share(self._processes[name], part):
                    return FoundShare(share, share in noted)
                else:
                    self.on_unseen(part)
        return doubt
