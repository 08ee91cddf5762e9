"""What a replica of a table on an object store asks of its process and its disk, as explorer and simulator perform it.

Every procedure of such a replica runs through `with_shares`, and some stages of its life thread are others: `StoreKernel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.execute.making import MAKING, result_of
from replitree.protocol.membership.table import mark_dropped
from replitree.protocol.program import life_in_store, table_drop
from replitree.protocol.program.stages import (
    AwaitCleaning,
    AwaitIdle,
    AwaitUpkeep,
    CurrentSharer,
    LeftDisk,
    LetGoEnded,
    Opened,
    Stage,
    Stop,
    Then,
    UpkeepTurn,
)
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    NameShares,
    SharedPart,
    Sharer,
    SharesHere,
    SharesOf,
    SharesSettled,
)
from replitree.protocol.shares.sharing import with_shares
from replitree_verify.patches.patch import PatchedStages
from replitree_verify.world.disk import Disk
from replitree_verify.world.kernel import Kernel, Running
from replitree_verify.world.kernel import Stage as StageFunction
from replitree_verify.world.memory import Memory, SharesKnown, State
from replitree_verify.world.model import seat_of
from replitree_verify.world.moves import MovesKnown
from replitree_verify.world.shared_disk import Left, SharedDisk

STORE_ID = "the store"
TRIES = 2
"""How often a process tries in one epoch to let go of something, and as often again when that has a chance."""


@dataclass(frozen=True, slots=True)
class ListDetached(fx.Effect):
    """Outcome: the shares in which rows of detached parts lie."""


class Performed(NamedTuple):
    """What became of an effect."""

    outcome: Any
    memory: Memory
    disk: SharedDisk


class StoreKernel(Kernel):
    """Runs the stages of the program as a replica of a table on an object store does.

    Parameters
    ----------
    replaced
        As of `Kernel`.
    asks
        Whether a replica may join again, so that a process has to ask which replica of its name it is.
    """

    def __init__(self, replaced: Mapping[str, StageFunction] | None = None, *, asks: bool = False) -> None:
        super().__init__(
            {
                **life_in_store.stages_in_store(STORE_ID, ""),
                **{name: partial(_as_seat, name) for name in ("take_stand", "join_again")},
            }
        )
        # A mutant changes what stands in for a stage, and what runs around it, too.
        assert replaced is None or isinstance(replaced, PatchedStages)
        # One that only changes how effects are performed has no hunks here.
        self._patch = replaced.patch if replaced is not None and replaced.patch.hunks else None
        self._asks = asks

    @override
    def _generator(self, stage: StageFunction, arguments: tuple[Any, ...]) -> Running:
        # A stage begins with its replica, or with what has that among more: an inserter, a proposer.
        owner = arguments[0] if isinstance(arguments[0], Replica) else arguments[0].replica

        def begin() -> Running:
            running = super(StoreKernel, self)._generator(stage, arguments)
            return translate(running, _with_current_sharer) if self._asks else with_shares(sharer_of(owner), running)

        return begin() if self._patch is None else self._patch.around(begin)


def _as_seat(stage: str, replica: Replica, me: bytes, *more: Any) -> Running:
    """Run a stage that gives the replica the incarnation of its seat."""
    return life_in_store.stages_in_store(STORE_ID, incarnation_of(seat_of(me)[0]))[stage](replica, me, *more)


def _with_current_sharer(effect: Any) -> Running:
    """Perform an effect, and keep the shares of what it stages or registers for the replica that the process is now."""
    if not isinstance(effect, fx.Stage | fx.Merge | fx.Mutate | fx.Link | fx.Commit):
        return (yield effect)

    def alone() -> Running:
        return (yield effect)

    return (yield from with_shares((yield CurrentSharer()), alone()))


def incarnation_of(seat: str) -> str:
    """Return the incarnation that a process of a seat gives to its replica when that joins."""
    return f"{seat}i"


def sharer_of(replica: Replica, known: SharesKnown = SharesKnown()) -> Sharer:  # noqa: B008 - immutable
    """Return who a replica is to coordination, as far as its process knows."""
    return Sharer(replica, known.incarnation or incarnation_of(replica.name))


def perform(effect: Any, replica: Replica, me: bytes, memory: Memory, tree: Tree, disk: SharedDisk) -> Performed | None:
    """Perform an effect of this room; None while what it waits for is not there."""
    known = memory.shares
    match effect:
        case AwaitUpkeep():
            turn = _upkeep_turn(replica, memory, tree, disk)
            return None if turn is None else Performed(turn, memory, disk)
        case NameShares(staging):
            named, known = _name(staging, me, known, disk)
            return Performed(named, replace(memory, shares=known), disk)
        case Opened(incarnation):
            if tree.exists(layout.replica_path(replica)):
                store = tree.get(layout.sharing(replica.table))
                assert store is not None
                assert store.value == STORE_ID.encode(), "the replicas have agreed on it"
            other = "" if incarnation == incarnation_of(replica.name) else incarnation
            memory = replace(memory, shares=replace(known, incarnation=other))
        case SharesSettled(shares):
            memory = replace(memory, shares=known.settled(shares), moves=memory.moves.settled(shares))
        case fx.Discard(part):
            disk = disk.without_parts(part)
        case ForgetParts(parts):
            contents = tuple((part, content) for part in parts if (content := disk.content(part)) is not None)
            memory, disk = memory.lacks(contents), disk.without_parts(*parts)
        case LetGoEnded(left, is_gone=False):
            memory = replace(memory, shares=replace(known, kept=(*known.kept, left.name)))
        case LetGoEnded(left):
            memory = replace(memory, shares=known.settled(left.shares))
            disk = disk.without_left(int(left.name))
        case _:
            return Performed(_told(effect, replica, memory, disk), memory, disk)
    return Performed(None, memory, disk)


def _told(effect: Any, replica: Replica, memory: Memory, disk: SharedDisk) -> Any:
    """Return the outcome of an effect that changes nothing."""
    match effect:
        case fx.ResultsInWork():
            return memory.results_in_work
        case CurrentSharer():
            return sharer_of(replica, memory.shares)
        case SharesOf(parts):
            pairs = ((part, share) for part in parts for share in disk.shares_of(part))
            return tuple(SharedPart(part, share, share in memory.shares.new) for part, share in pairs)
        case SharesHere():
            return tuple(sorted(disk.all_shares | memory.shares.new | memory.moves.shares))
        case HasPart(part):
            return disk.content(part) is not None
    raise AssertionError(effect)


def is_held(tree: Tree, table: layout.TablePlace, result: str, by: Sharer) -> bool:
    """Whether a replica has the work mark of a result."""
    mark = tree.get(layout.merged(table, result))
    return mark is not None and mark.value == by.signature


def discarding(shares: tuple[ShareId, ...], memory: Memory, disk: SharedDisk) -> tuple[Memory, SharedDisk]:
    """Give up uploads that are not staged."""
    kept = tuple(each for each in memory.shares.uploads if each[1] not in shares)
    return replace(memory, shares=replace(memory.shares, uploads=kept)), disk.discarding(*shares)


def end_making(memory: Memory, disk: SharedDisk, made: frozenset[str] = frozenset()) -> tuple[Memory, SharedDisk]:
    """Remove what was staged of results in vain, and hold it no more; give up what clients have put of results that are there.

    `made`: the names of these.
    """
    uploads = tuple(share for staging, share in memory.shares.uploads if result_of(staging) in made)
    if uploads:
        memory, disk = discarding(uploads, memory, disk)
    making = tuple(staging for staging in memory.staging if staging.startswith(MAKING))
    for staging in making:
        disk = disk.without_folder(staging)
    left = tuple(staging for staging in memory.staging if staging not in making)
    return (replace(memory, staging=left) if making else memory), disk


def _name(
    staging: fx.StagingId, me: bytes, known: SharesKnown, disk: SharedDisk
) -> tuple[tuple[ShareId, ...], SharesKnown]:
    """Give each staged part a share that has none: what is linked has those of its source."""
    folder = disk.folder(staging)
    parts = () if folder is None else folder.parts
    partitions = []
    for partition, content in parts:
        noted = tuple(sorted(share for id_, each, share in disk.staged if (id_, each) == (staging, partition)))
        # A part here, as it is: what only borrows has files of its own, too.
        is_linked = any(noted == disk.shares_of(name) for name, each in disk.parts if each == content)
        is_uploaded = not known.new.isdisjoint(noted)  # a client has put the objects
        if not noted or not (is_linked or is_uploaded):
            partitions.append(partition)
    numbers = range(known.count, known.count + len(partitions))
    shares = tuple(ShareId(f"{me.decode()}-{number}") for number in numbers)
    named = tuple((staging, partition, share) for partition, share in zip(partitions, shares, strict=True))
    count = known.count + len(partitions)
    return shares, replace(known, named=(*known.named, *named), new=known.new.union(shares), count=count)


def staged_upload(staging: fx.StagingId, partition: str, memory: Memory, disk: Disk) -> tuple[Memory, Disk]:
    """Let what was staged have the objects of an upload, if it was made of one."""
    share = dict(memory.shares.uploads).get(staging)
    if share is None:
        return memory, disk
    noted = cast("SharedDisk", disk).without_uploads(share).noting(staging, partition, share)
    return replace(memory, shares=memory.shares.staged(staging)), noted


def torn_upload(staging: fx.StagingId, memory: Memory, disk: Disk) -> Disk:
    """Return the disk of a process that died while it staged: it forgets an upload before it stages a part of it."""
    share = dict(memory.shares.uploads).get(staging)
    return disk if share is None else cast("SharedDisk", disk).without_uploads(share)


def to_let_go_of(disk: SharedDisk, moves: MovesKnown) -> tuple[Left, ...]:
    """Return what has left a disk, or is noted there, and may be let go of now."""
    return tuple(left for left in disk.leaving if moves.shares.isdisjoint(left.shares))


def _upkeep_turn(replica: Replica, memory: Memory, tree: Tree, disk: SharedDisk) -> UpkeepTurn | None:
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    sharer = sharer_of(replica, memory.shares)
    for left in to_let_go_of(disk, memory.moves):
        tries = memory.shares.kept.count(str(left.number))
        # As long as the part is registered, it is let go of only once it is here again.
        has_chance = disk.content(left.part) is not None or not tree.exists(layout.part(replica, left.part))
        if tries < TRIES or (has_chance and tries < 2 * TRIES):
            return UpkeepTurn(sharer, memory.epoch, LeftDisk(str(left.number), left.part, left.shares))
    # A work mark under which the replica makes nothing now is left, too.
    idle = set(tree.children(layout.all_merged(replica.table)) or ()).difference(memory.results_in_work)
    if tree.children(layout.all_garbage(replica.table)) or any(
        is_held(tree, replica.table, result, by=sharer) for result in idle
    ):
        return UpkeepTurn(sharer, memory.epoch, None)
    return None


# --- duties -------------------------------------------------------------------------------------------------------------------


def open_store(replica: Replica) -> Stage:
    """Get an object store while the replica is active."""
    epoch: fx.Epoch = yield AwaitCleaning()
    return Then(life_in_store.open_store, (replica, epoch, STORE_ID, sharer_of(replica).incarnation))


def leave_table(replica: Replica, me: bytes, shared: bool = True, has_stopped: bool = False) -> Stage:
    """Drop the table, let the replica's threads end, and leave; `shared`: the table has an object store."""
    if not has_stopped:
        yield AwaitCleaning()
        yield Stop((yield from mark_dropped(replica.table)))
        yield AwaitIdle()
    return Then(table_drop.release_shares, (replica, me)) if shared else Then(table_drop.leave_table, (replica, False))


LEAVING = (leave_table, table_drop.release_shares, table_drop.leave_table)
"""The stages of a replica that leaves its dropped table."""

DUTIES: dict[str, StageFunction] = {"open": open_store}
"""What a model can ask for, by name."""
