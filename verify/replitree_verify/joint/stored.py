"""Objects of joint inserts: what the replicas of a sharded table in an object store have put, noted and let go of.

What a replica stages goes into the store as one share, which is named after the staging id.  Every stage of a replica runs
through `with_shares`, as in the product.  What has a share the disk says, so a process that dies forgets only which shares it
is just writing.

No replica registers a part here, so a share whose entry is in the log stays a noted attempt.  Registering is in the models of
tables (`stored_…`): to them the entry is one of an insert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.sharded.participant import forget_stale
from replitree.protocol.shares.letting_go import give_up_attempts, let_go_of
from replitree.protocol.shares.share import DeleteObjects, ObjectsGone, ObjectsInDoubt, ObjectsThere, ShareId, work_off
from replitree.protocol.shares.share_effects import NameShares, PutShares, Sharer, SharesHere, SharesOf, SharesSettled
from replitree.protocol.shares.sharing import with_shares
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.protocol.state.start import sweep_staging
from replitree_verify.joint.logs import REPLICAS, SEATS, SHARDS, gets_of
from replitree_verify.joint.stages import HasLeft, ReadQueue
from replitree_verify.world.kernel import Kernel, Running, Stage

SHARE_EFFECTS = (NameShares, PutShares, SharesHere, SharesOf, SharesSettled, DeleteObjects, HasLeft)
"""Effects of a replica whose table lies in a store."""

AT_ONCE = (NameShares, SharesOf, SharesSettled, HasLeft)
"""Those that no other thread sees."""


class Objects(NamedTuple):
    """What there is of shares.

    Attributes
    ----------
    writing
        (seat, share) of what a process has named, and not put or given up yet.
    noted
        (seat, share) of what a folder on a disk has in the store.
    leaving
        (seat, share) of what has left a disk, and is to be let go of.
    there
        The shares that have objects.
    """

    writing: frozenset[tuple[str, str]] = frozenset()
    noted: frozenset[tuple[str, str]] = frozenset()
    leaving: frozenset[tuple[str, str]] = frozenset()
    there: frozenset[str] = frozenset()

    def without_folder(self, seat: str, staging: str) -> Objects:
        """Return what there is when a folder has been removed: the disk notes what it had in the store."""
        own = (seat, share_of(staging))
        if own not in self.noted:
            return self
        return self._replace(noted=self.noted - {own}, leaving=self.leaving | {own})

    def after_crash(self, seat: str, tree: Tree) -> Objects:
        """Return what there is when a process has died: it may have put what it was writing, if that was noted."""
        lost = {each for each in self.writing if each[0] == seat}
        put = {
            share for at, share in lost if tree.exists(layout.writing(REPLICAS[SEATS.index(at)].table, ShareId(share)))
        }
        return self._replace(writing=self.writing - lost, there=self.there | put)


class JointStoreKernel(Kernel):
    """Runs the stages of replicas whose shards lie in a store."""

    @override
    def _generator(self, stage: Stage, arguments: tuple[Any, ...]) -> Running:
        # A stage begins with its replica, or with what the replica has prepared.
        owner = arguments[0] if isinstance(arguments[0], Replica) else arguments[0].replica
        return with_shares(sharer_of(owner), super()._generator(stage, arguments))


def share_of(staging: str) -> ShareId:
    """Return the share of what is staged under an id."""
    return ShareId(f"s-{staging}")


def sharer_of(replica: Replica) -> Sharer:
    """Return who a replica is to coordination."""
    return Sharer(replica, f"{replica.name}i")


def store_nodes() -> tuple[fx.Create, ...]:
    """Return what creates the nodes of the store in both shards."""
    return tuple(node for shard in SHARDS for node in sharing_nodes(shard))


def perform(objects: Objects, seat: str, effect: Any) -> tuple[Objects, Any]:
    """Perform an effect of a replica on its process, its disk and its store."""
    match effect:
        case NameShares(staging):
            share = share_of(staging)
            return objects._replace(writing=objects.writing | {(seat, share)}), (share,)
        case PutShares(staging):
            own = (seat, share_of(staging))
            put = objects._replace(
                writing=objects.writing - {own}, noted=objects.noted | {own}, there=objects.there | {own[1]}
            )
            return put, ObjectsThere()
        case SharesSettled(shares):
            return objects._replace(writing=objects.writing - {(seat, share) for share in shares}), None
        case SharesHere():
            known = objects.writing | objects.noted | objects.leaving
            return objects, tuple(sorted(share for at, share in known if at == seat))
        case SharesOf():
            return objects, ()
        case DeleteObjects(share):
            return objects._replace(there=objects.there - {share}), ObjectsGone()
        case HasLeft(share):
            return objects._replace(leaving=objects.leaving - {(seat, share)}), None
    raise AssertionError(effect)


def put_in_doubt(objects: Objects, seat: str, effect: PutShares) -> Iterator[tuple[str, Objects, ObjectsInDoubt]]:
    """Give each way in which the store does not answer a replica that puts."""
    share = share_of(effect.staging)
    after = objects._replace(writing=objects.writing - {(seat, share)})
    yield "takes nothing", after, ObjectsInDoubt("no answer")
    yield "is put without an answer", after._replace(there=after.there | {share}), ObjectsInDoubt("no answer")


def has_to_tidy(objects: Objects, seat: str, tree: Tree) -> bool:
    """Whether a replica has something to let go of, or there is garbage in its shard."""
    garbage = tree.children(layout.all_garbage(REPLICAS[SEATS.index(seat)].table))
    return bool(garbage) or any(at == seat for at, _ in objects.leaving)


def tidy(replica: Replica, epoch: fx.Epoch, left: tuple[ShareId, ...]) -> Running:
    """Let go of what has left the disk, and delete what is garbage, as the product's upkeep does."""
    for share in left:
        if (yield from let_go_of(sharer_of(replica), epoch, "", share)):
            yield HasLeft(share)
    yield from work_off(replica.table)
    return None


def begin_in_store(replica: Replica, idle: tuple[fx.StagingId, ...]) -> Running:
    """Do what a start does behind its activation: it sweeps, and gives up the attempts of which nothing is on the disk."""
    yield from sweep_staging(idle, (yield ReadQueue()))
    epoch = yield fx.CurrentEpoch()
    yield from give_up_attempts(sharer_of(replica), epoch)
    yield from forget_stale(replica)
    return None


def wrong(tree: Tree, objects: Objects) -> Iterator[str]:
    """Give what does not hold of objects in a state."""
    for shard, _, entry in gets_of(tree):
        share = share_of(entry.insert)
        attempt = tree.get(layout.writing(SHARDS[shard], share))
        if share not in objects.there:
            yield f"J3: the objects of {entry.insert} are gone"
        if (entry.replica, share) not in objects.noted:
            yield f"J3: the disk of {entry.replica} does not know the objects of {entry.insert}"
        if attempt is None or attempt.value != sharer_of(Replica(SHARDS[shard], entry.replica)).signature:
            yield f"J3: the attempt of {entry.insert} is not noted, so no replica can own its objects"
    known = {
        name
        for shard in SHARDS
        for parent in (layout.all_writing(shard), layout.all_garbage(shard))
        for name in tree.children(parent) or ()
    }
    for each in objects.there - known:
        yield f"OBJECTS: {each} is neither noted nor garbage"


def wrong_at_rest(tree: Tree, objects: Objects) -> Iterator[str]:
    """Give what does not hold of objects where nothing is left to do."""
    named = {share_of(entry.insert) for _, _, entry in gets_of(tree)}
    held = {share for _, share in objects.noted}
    # An attempt that a replica could not give up stays until its next activation, which gives it up.
    noted = {share for shard in SHARDS for share in tree.children(layout.all_writing(shard)) or ()}
    for share in objects.there - named - held - noted:
        yield f"OBJECTS: {share} has no owner, and stays"


__all__ = [
    "AT_ONCE",
    "SHARE_EFFECTS",
    "JointStoreKernel",
    "Objects",
    "begin_in_store",
    "has_to_tidy",
    "perform",
    "put_in_doubt",
    "share_of",
    "store_nodes",
    "tidy",
    "wrong",
    "wrong_at_rest",
]
