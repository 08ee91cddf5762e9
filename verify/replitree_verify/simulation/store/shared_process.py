"""A virtual process of a replica whose table lies in an object store: what it asks of the store, and how long that takes.

What it knows of shares, and what becomes of them on its disk, is that of the explorer's processes (`process.shares`).  Its
procedures run through `sharing.with_shares` from the moment that it knows which replica of its name it is.  Requests to the
store are sent one after the other, each twice when there was no answer; who dies in between leaves what was done by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

from typing_extensions import override

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.parts import parse_part
from replitree.protocol.program import life_in_store
from replitree.protocol.program.mender_effects import AwaitLacking
from replitree.protocol.program.stages import (
    AwaitMove,
    AwaitParts,
    AwaitUpkeep,
    AwaitWork,
    CurrentSharer,
    End,
    GiveBack,
    LeftDisk,
    LetGoEnded,
    MoveTurn,
    Opened,
    UpkeepTurn,
    WorkTurn,
)
from replitree.protocol.shares.share import (
    DeleteObjects,
    LookAtObjects,
    ObjectsGone,
    ObjectsInDoubt,
    ObjectsThere,
    ShareId,
)
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    NameShares,
    PutShares,
    Sharer,
    SharesInDoubt,
)
from replitree.protocol.shares.sharing import with_shares, with_shares_once_open
from replitree_verify.effects.table import TAKES, perform_local
from replitree_verify.outcomes.closed_stages import ROUNDS
from replitree_verify.outcomes.local import Done
from replitree_verify.process import shares, uploads
from replitree_verify.process.shares import ListDetached
from replitree_verify.simulation.observer import Violated
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.process import Process
from replitree_verify.simulation.store.object_store import Change, ObjectStore, deleting, putting
from replitree_verify.simulation.thread import Thread
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory, State
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import MovesKnown
from replitree_verify.world.shared_disk import SharedDisk, kept_aside

TRIES = 2
"""How often a change is asked for before the store is said not to answer."""

UPLOAD_PAUSE = 2 * SECOND
"""How long a client takes about to put objects, and to ask again for its upload."""

TASKS_LOST = 0.2
"""Share of the clients' tasks that die while they put objects."""

PATIENCE = 30 * SECOND
"""How long a replica waits for what another one should make before it makes that itself."""

Wish: TypeAlias = str | tuple[str, ...]
"""What a client uploads: the part of an insert, by its token, or the result of a merge, by its sources."""


_CLIENTS_MERGE = AwaitParts(())
"""A client's merge is proposed once, whoever leads, and whether or not its sources are still there."""

_IDLE = ("puller", "executor", "maker", "mender", "keeper", "upkeep", "mover", "upload")
"""Threads that wait for something to do when a process learns who it is."""


class SharedProcess(Process):
    """One process of a replica on an object store.

    All parameters are those of `Process`; `store`, `on_let_go`, `wishes` and `new_request` are set before it starts.
    """

    store: ObjectStore
    on_let_go: Callable[[], None]
    sharer: Sharer | None = None
    """Who it is to the others; known since it has opened the store."""
    wishes: dict[str, Wish]
    """What the client of each replica uploads; the next process of the replica goes on with it."""
    new_request: Callable[[], int]
    has_store = takes_shares = False
    """Whether it knows that the table has a store, and whether that is open, so that parts come with their shares."""
    _is_first = False
    """Whether its client has not asked for the present upload yet."""

    @property
    def puts_new_parts(self) -> bool:
        """Whether what is staged goes into the store; otherwise it stays here, and each replica makes its own results."""
        return True

    @override
    def start(self) -> None:
        self._first_tried: dict[fx.LogIndex, int] = {}
        self.has_store = self.cluster.tree.exists(layout.sharing(TABLE))
        super().start()
        self._spawn("upkeep", ROUNDS["upkeep"], self.replica)
        self._go_on_uploading()

    def hear_of_store(self) -> None:
        """Learn that the table has a store, and open it; a process that has begun since then knows it already."""
        if self.alive and self.sharer is None:
            self.has_store = True
            if not any(thread.stage in (shares.open_store, life_in_store.open_store) for thread in self._threads):
                self.duty("open")

    def upload(self, wish: Wish) -> None:
        """Take what its client uploads: a part with the token of an insert, or the result of a merge of some parts."""
        self.wishes[self.name], self._is_first = wish, True
        self._go_on_uploading()

    def _go_on_uploading(self) -> None:
        """Let the client ask for the name of its share, and what follows; it asks again as long as the disk has its upload."""
        if not self.alive or self.name not in self.wishes:
            return
        wish = self.wishes[self.name]
        if isinstance(wish, tuple):
            self._spawn("upload", uploads.prepare_merge, self.replica, wish)
            return
        request = fx.RequestId(self.new_request())
        self.observer.asked(request, wish)
        self._spawn("upload", uploads.begin_upload, self.replica, self.me, ((request, fx.BlockId(wish)),), (), 0)

    @override
    def _over(self, thread: Thread) -> None:
        super()._over(thread)
        if thread.stage is life_in_store.open_store and not self.takes_shares:
            self.takes_shares = isinstance(thread.end, End) and isinstance(thread.end.outcome, life_in_store.Reached)
        if thread.kind == "upload" and self.disk.uploads:
            self.cluster.after(self.cluster.spread(UPLOAD_PAUSE), self._go_on_uploading)
        elif thread.kind == "upload":
            self.wishes.pop(self.name, None)

    @property
    @override
    def rests_in_vain(self) -> bool:
        return True  # a thread that waits for a result is told by a watch, which is not simulated

    # --- threads ------------------------------------------------------------------------------------------------------------

    @override
    def _generator(self, stage: StageFunction, arguments: tuple[Any, ...]) -> fx.Procedure[Any]:
        in_store = life_in_store.stages_in_store(shares.STORE_ID, self.me.decode()) if self.has_store else {}
        shared: StageFunction = in_store.get(stage.__name__, stage)
        generator = self._stages.get(stage.__name__, shared)(*arguments)
        if self.sharer is not None:
            return with_shares(self.sharer, generator)
        return with_shares_once_open(lambda: self.sharer, generator)

    @override
    def _close(self, thread: Thread) -> None:
        if thread.kind == "maker":
            self._end_making()
        super()._close(thread)

    @override
    def duty(self, name: str, *arguments: Any) -> None:
        super().duty(name, *arguments, *((self.cluster.tree.exists(layout.sharing(TABLE)),) if name == "drop" else ()))

    @override
    def _locally(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if isinstance(effect, AwaitUpkeep | AwaitMove):
            is_active = self.memory.state is State.ACTIVE and self.memory.epoch is not None and self.sharer is not None
            turn = self._next_turn(thread) if is_active and not self._rests(thread) else None
            thread.waits = turn is None
            if turn is None:
                return None
            self._told(thread, effect, turn)
            return (turn,)
        if isinstance(effect, AwaitParts) and thread.kind == "upload":
            effect = _CLIENTS_MERGE
        queue = self.memory.queue
        done = super()._locally(thread, effect)
        if isinstance(effect, AwaitWork) and done is not None:
            work: WorkTurn = done[0]
            first = [self._first_tried.setdefault(item.index, self.cluster.now) for item in work.batch]
            is_overdue = self.cluster.now - min(first) > PATIENCE
            sharer = self.sharer if self.puts_new_parts else None
            return (replace(work, view=replace(work.view, sharer=sharer, is_overdue=is_overdue)),)
        if isinstance(effect, GiveBack) and thread.kind == "maker":
            executed = (item for item in queue if item.index in effect.done)
            self._end_making(frozenset(part.name for item in executed for part in item.change.added))
        return done

    @override
    def _performed(self, effect: Any) -> Done | None:
        if effect == _CLIENTS_MERGE:
            return perform_local(effect, self._here()._replace(elects=False))
        done = super()._performed(effect)
        match effect:
            case AwaitLacking() if done is not None:
                return done._replace(outcome=replace(done.outcome, sharer=self.sharer))
            case uploads.AwaitUpload() if done is not None:
                is_first, self._is_first = self._is_first, False
                return done._replace(outcome=replace(done.outcome, is_first=is_first))
        return done

    @override
    def _begin(self, thread: Thread, effect: Any) -> tuple[Any] | None:
        if isinstance(effect, CurrentSharer) and self.sharer is None:
            # The store could not be opened after all: as in the running replica the client hears that.
            self._close(thread)
            return None
        if TAKES[type(effect)] == "known":
            outcome = self._tell(effect)
            self._told(thread, effect, outcome)
            return (outcome,)
        match effect:
            case PutShares(staging):
                self._put(thread, effect, tuple(each for each in self.memory.shares.named if each[0] == staging))
                return None
            case DeleteObjects(share):
                over = partial(self._over_store, thread, effect, ObjectsGone())
                self._change(thread, effect, deleting(share), over)
                return None
            case LookAtObjects():
                self.cluster.after(self.cluster.spread(self.store.options.request), lambda: self._do(thread, effect))
                return None
            case uploads.TellName(share):
                if wrong := uploads.told_too_early(share, self.cluster.tree, TABLE):
                    raise Violated(wrong)
                # Some time later the client puts its objects, or its task dies before the last; then it asks for what follows.
                changes = putting(share)[: 1 if self.cluster.chance(TASKS_LOST) else None]
                done = partial(self._over_store, thread, effect, None, is_done=True)
                put = partial(self._change, thread, effect, changes, lambda _: done())
                self.cluster.after(self.cluster.spread(UPLOAD_PAUSE), put)
                return None
        return super()._begin(thread, effect)

    # --- what it knows ------------------------------------------------------------------------------------------------------

    @property
    def moves(self) -> MovesKnown:
        """What it knows of parts that move; no thread waits for a change of it."""
        return self.memory.moves

    @moves.setter
    def moves(self, moves: MovesKnown) -> None:
        self.memory = replace(self.memory, moves=moves)

    @property
    def disk(self) -> SharedDisk:
        """Its disk as it is now."""
        return cast("SharedDisk", self.cluster.disks[self.name])

    def _tell(self, effect: Any) -> Any:
        """Return the outcome of an effect that takes no time."""
        match effect:
            case Opened(incarnation):
                # An activation opens the store for good; `open_store` has to settle what was left before.
                self.takes_shares = self.takes_shares or self.memory.state is not State.ACTIVE
                sharer = Sharer(self.replica, incarnation)
                if sharer == self.sharer:
                    return None
                self.sharer = sharer
                # Threads that have begun nothing yet go on as this replica.
                for thread in self._threads:
                    if thread.kind in _IDLE and thread.waits and not thread.turns:
                        thread.generator = self._generator(thread.stage, thread.arguments)
                        thread.effect = thread.generator.send(None)
                return None
            case CurrentSharer():
                assert self.sharer is not None
                return self.sharer
            case NameShares() if not self.puts_new_parts:
                return ()
            case SharesInDoubt(doubtful):
                self.observer.seen("shares in doubt")
                self.moves = self.moves.doubting(doubtful)
                return self._remember(self.memory.with_trouble())
            case fx.Untouched():
                return False
            case fx.ResultsInWork():
                return self.memory.results_in_work
            case ListDetached():
                return tuple(share for _, share in self.disk.detached)
        done = self._of_shares(effect, self.disk)
        self._remember(done.memory)
        return done.outcome

    def _of_shares(self, effect: Any, disk: SharedDisk) -> shares.Performed:
        """Perform an effect on what it knows of shares, and on its disk."""
        done = shares.perform(effect, self.replica, self.me, self.memory, self.cluster.tree, disk)
        assert done is not None
        return done

    def _rest_after_round(self, thread: Thread) -> None:
        """Let the next round of a thread come after the interval of upkeep."""
        self._rest(thread, max(self.cluster.spread(self.store.options.upkeep), self._pause()))

    def _next_turn(self, thread: Thread) -> UpkeepTurn | MoveTurn | None:
        """Return what is to be let go of next; when that is nothing, the round ends."""
        assert self.sharer is not None
        assert self.memory.epoch is not None
        for left in shares.to_let_go_of(self.disk, self.moves):
            if str(left.number) not in self.memory.shares.kept:
                left_disk = LeftDisk(str(left.number), left.part, left.shares)
                return UpkeepTurn(self.sharer, self.memory.epoch, left_disk)
        if self.memory.shares.kept:
            self._remember(replace(self.memory, shares=replace(self.memory.shares, kept=())))
        self._rest_after_round(thread)
        return UpkeepTurn(self.sharer, self.memory.epoch, None)

    def _end_making(self, made: frozenset[str] = frozenset()) -> None:
        """Remove what was staged of results in vain, and hold it no more; `made` as of `shares.end_making`."""
        memory, self.cluster.disks[self.name] = shares.end_making(self.memory, self.disk, made)
        self._remember(memory)

    # --- the store ----------------------------------------------------------------------------------------------------------

    def _put(self, thread: Thread, effect: PutShares, named: tuple[tuple[fx.StagingId, str, ShareId], ...]) -> None:
        """Put the objects of one share after the other, and note in each staged part where they are."""

        def done(is_there: bool) -> None:
            if is_there:
                self.cluster.disks[self.name] = self.disk.noting(*named[0])
                self._put(thread, effect, named[1:])
            else:
                self._end_put(effect, is_done=False)
                self._over_store(thread, effect, ObjectsThere(), is_done=False)

        if named:
            self._change(thread, effect, putting(named[0][2]), done)
        else:
            self._end_put(effect, is_done=True)
            self._over_store(thread, effect, ObjectsThere(), is_done=True)

    def _end_put(self, effect: PutShares, *, is_done: bool) -> None:
        self._remember(replace(self.memory, shares=self.memory.shares.put(effect.staging, is_done=is_done)))

    def _over_store(self, thread: Thread, effect: Any, done: Any, is_done: bool) -> None:
        outcome = done if is_done else ObjectsInDoubt("no answer")
        if not is_done:
            self.observer.seen(f"{type(effect).__name__} in doubt")
        self._told(thread, effect, outcome)
        self._resume(thread, outcome)

    def _change(
        self, thread: Thread, effect: Any, changes: tuple[Change, ...], done: Callable[[bool], None], tries: int = TRIES
    ) -> None:
        """Ask the store for one change after the other; `done` is told whether all were answered."""
        if not changes:
            done(True)
            return

        def waits() -> bool:
            return self.alive and thread in self._threads and thread.effect is effect

        def hear(is_answered: bool) -> None:
            if not waits():
                return
            if self.paused_until > self.cluster.now:
                self.cluster.after(self.paused_until - self.cluster.now, lambda: hear(is_answered))
            elif is_answered:
                self._change(thread, effect, changes[1:], done)
            elif tries > 1:
                self._change(thread, effect, changes, done, tries - 1)
            else:
                done(False)

        if fate := self.store.send(changes[0], waits, hear):
            self.observer.seen(fate)

    # --- the disk -----------------------------------------------------------------------------------------------------------

    @override
    def _on_disk(self, effect: Any, before: Disk) -> tuple[Any, Disk, Memory]:
        disk = cast("SharedDisk", before)
        match effect:
            case fx.Discard() | ForgetParts() | LetGoEnded():
                if isinstance(effect, ForgetParts):
                    self.observer.seen("too late to take over")
                done = self._of_shares(effect, disk)
                return done.outcome, done.disk, done.memory
            case LookAtObjects(looked_at):
                is_there = all(map(self.store.can_read, looked_at))
                return ObjectsThere() if is_there else ObjectsInDoubt("not there"), disk, self.memory
            case fx.Detach(parts):
                return None, kept_aside(disk, parts), self.memory
            case fx.Merge() | fx.Mutate() if self.store.is_away:
                return fx.StoreFailed("the store gives no answer"), disk, self.memory
        outcome, after, memory = super()._on_disk(effect, before)
        if isinstance(effect, fx.Link) and isinstance(outcome, fx.Made) and disk.share_of(effect.source) is not None:
            self.observer.seen("borrowed")
        return outcome, after, memory

    @override
    def _do(self, thread: Thread, effect: Any) -> None:
        super()._do(thread, effect)
        if isinstance(effect, LetGoEnded):
            self.on_let_go()

    @override
    def _fetch(self, effect: fx.FetchMany, before: Disk) -> tuple[Any, Disk]:
        outcomes: list[Any] = []
        disk = cast("SharedDisk", before)
        for fetch in effect.fetches:
            outcome, disk = self._take_over(fetch, disk)
            outcomes.append(outcome)
        return tuple(outcomes), disk

    def _take_over(self, fetch: fx.FetchPart, disk: SharedDisk) -> tuple[fx.Fetched | fx.NotFetched, SharedDisk]:
        """Take a part over from a source that has it, or be sent its rows."""
        if disk.content(fetch.part) == fetch.content_hash:
            return fx.Fetched(fetch.part), disk
        if self.observer.is_full(self.name):
            return fx.NotFetched(fetch.part, "disk full"), disk
        for source in (each for each in fetch.sources if self._serves(each)):
            theirs = cast("SharedDisk", self.cluster.disks[source])
            share = theirs.share_of(fetch.part)
            if theirs.content(fetch.part) != fetch.content_hash or not (share is None or self.store.can_read(share)):
                continue
            here = disk.with_part(fetch.part, fetch.content_hash)
            if share is None or not self.takes_shares or self.cluster.chance(self.store.options.rows):
                self.observer.seen("rows sent")
                return fx.Fetched(fetch.part), here
            if gives_share(self._processes[source], fetch.part):
                self.observer.seen("taken over")
                return fx.Fetched(fetch.part), here.having(fetch.part, share)
        return fx.NotFetched(fetch.part, "nobody has it"), disk


def gives_share(source: Process, part: str) -> bool:
    """Whether a replica lets others own a part's share: before it owns that itself, none can."""
    return parse_part(part) in source.memory.held
