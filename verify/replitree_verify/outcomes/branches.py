"""Every way in which effects end that faults can meet, or that look beyond their process (`effects` says which those are).

Faults, each paid from the model's budget:

* A commit whose answer is lost took place, or its request is *in flight*: it may be applied at any later moment or never, which
  includes that it was lost.  A request that no later state could apply is not kept.
* A session whose view lags reads at its view or at the present; a `GetMany` may fall between (its later reads show what is
  newer).  Answered writes bring the view to the present, and `Sync` does, unless a leader answers that was deposed.  Waiting
  does not: a thread also looks without being woken.
* A read that can't be had closes the procedure, and its thread goes on as the running replica's does.
* A process may die within `Stage`, `Publish`, `FetchMany`, `Merge` and `Mutate`, with part of the work done.  Between effects
  the explorer lets it die anyway.
* A disk may refuse `Stage`, `Publish`, `Merge`, `Mutate` and `Detach`; a fetch may fail.
* A merge or a mutation may give other bytes than elsewhere; one whose result is not needed any more may be cancelled.

Invariant I9 is checked here, where a commit takes place: a process with an epoch commits under the present one or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from replitree.coordination.tree import Read, Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import table_at
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.program.stages import AwaitPulled
from replitree.protocol.rescue.fsck_look import ListAges
from replitree_verify.outcomes import local
from replitree_verify.outcomes.branch import Branch, Request, Scene
from replitree_verify.process import read_requests, restore_duties
from replitree_verify.process.fsck import RepairCommit, aged, taken_from
from replitree_verify.process.lost_parts import declared_part, kept_rows
from replitree_verify.process.restore_duties import (
    LockDisk,
    OpenTable,
    UnlockDisk,
    chosen_parts,
    locked_by,
    wrongly_ended,
    wrongly_repeated,
)
from replitree_verify.process.shares import torn_upload
from replitree_verify.rules.quorum import settled_without
from replitree_verify.world.disk import Folder
from replitree_verify.world.faults import Fault
from replitree_verify.world.memory import State
from replitree_verify.world.model import seat_of
from replitree_verify.world.past import half_way, recovers, remember
from replitree_verify.world.windows import timed

# --- coordination -----------------------------------------------------------------------------------------------------------


def read(effect: Read | ListAges, scene: Scene) -> Iterator[Branch]:
    """Read coordination: as it is, or as a session sees it that lags."""
    here, view = scene.here, scene.view
    now = _answer(effect, here.tree)
    if isinstance(effect, fx.Sync) or view is None:
        yield Branch(now, here, fresh=True)
        # The outcome of a `Sync` is the same either way; what differs is that the view stays where it is (no `fresh`).
        if view is not None and Fault.DEPOSED in scene.faults:
            yield Branch(now, here, Fault.DEPOSED.cost, "answered by a deposed leader")
    else:
        seen = _answer(effect, view)
        # Equal answers are one branch, and the view stays back: from there it can still catch up at the next read.
        if seen == now:
            yield Branch(seen, here)
        else:
            yield Branch(seen, here, fate="stale")
            yield Branch(now, here, fresh=True)
            if isinstance(seen, fx.Many) and isinstance(now, fx.Many):
                yield from (Branch(torn, here, fate="torn", fresh=True) for torn in _torn(seen, now))
    if Fault.CLOSED in scene.faults:
        yield Branch(None, here, Fault.CLOSED.cost, "no answer, given up", closes=True)


def _answer(effect: Read | ListAges, tree: Tree) -> Any:
    return aged(tree, effect.path) if isinstance(effect, ListAges) else timed(tree, effect, answer(tree, effect))


def _torn(seen: fx.Many, now: fx.Many) -> Iterator[fx.Many]:
    """Return what a batch of reads shows when the view moves on in its middle."""
    differ = [position for position, (old, new) in enumerate(zip(seen.nodes, now.nodes, strict=True)) if old != new]
    # A cut at the first node that differs would give the present, and a cut between equal nodes gives what another cut gives.
    for cut in differ[1:]:
        yield fx.Many((*seen.nodes[:cut], *now.nodes[cut:]), now.watched)
    if differ and seen.watched != now.watched:
        yield fx.Many(seen.nodes, now.watched)


def commit(effect: fx.Commit, scene: Scene) -> Iterator[Branch]:
    """Ask coordination for a commit."""
    here = scene.here
    request = Request(here.replica, here.me, here.memory.session, here.memory.epoch, effect.operations)
    tree, outcome, breach = deliver(request, here.tree)
    lost = declared_part(effect) if isinstance(outcome, fx.Applied) else None
    if lost is not None and breach is None:
        breach = kept_rows(lost, here.replica, here.tree, here.disks)
    if isinstance(effect, RepairCommit) and isinstance(outcome, fx.Applied) and breach is None:
        breach = taken_from(effect, here.replica.table, here.disks, here.tree)
    if isinstance(outcome, fx.Applied) and breach is None:
        breach = wrongly_ended(effect, here.memory, here.replica, tree)
    after = here._replace(tree=tree)
    yield Branch(outcome, after, fresh=True, breach=breach)
    if Fault.UNKNOWN not in scene.faults:
        return
    if isinstance(outcome, fx.Applied):
        yield Branch(fx.Unknown(), after, Fault.UNKNOWN.cost, "applied, answer lost", doubtful=True, breach=breach)
    # The request is kept even if it was applicable now: "applied at once" is the branch above, "applied later" is this one.
    if can_apply_later(request, here.tree):
        yield Branch(fx.Unknown(), here, Fault.UNKNOWN.cost, "no answer", sent=request)
    elif not isinstance(outcome, fx.Applied):
        yield Branch(fx.Unknown(), here, Fault.UNKNOWN.cost, "refused, answer lost")


def deliver(request: Request, tree: Tree) -> tuple[Tree, Any, str | None]:
    """Let coordination decide a request.

    Returns
    -------
    tuple
        The tree after it, the outcome, and what it broke.
    """
    after, outcome = tree.commit(request.operations, request.session)
    if not isinstance(outcome, fx.Applied) or after is tree:
        return after, outcome, None  # only checks: what changes nothing breaks nothing, and leaves no trace in the past
    operations, table = request.operations, request.replica.table
    kept = remember(operations, tree, after, table)
    breach = (
        _broken_fence(request, tree) or half_way(operations, tree, table) or settled_without(operations, kept, table)
    )
    return kept, outcome, breach


def _broken_fence(request: Request, before: Tree) -> str | None:
    """Check I9 for a commit that took place."""
    path, garbage = layout.host(request.replica), f"{layout.all_garbage(request.replica.table)}/"
    if all(isinstance(each, fx.Delete) and each.path.startswith(garbage) for each in request.operations):
        return None  # what is garbage is so for good: the process that has deleted it says so
    host, table = before.get(path), request.replica.table
    if before.exists(table.path) and table_at(table.path, before.get(table.path)) != table:
        return f"I9: {request.me.decode()} acts for a table that was dropped, in the next one of its name"
    if (host is None or host.value == DROPPED_HOST) and request.epoch is None:
        return None  # an operator, or a process that joins its replica to the table
    if fx.Check(layout.replica_dropped(request.replica), fx.ANY_VERSION) in request.operations:
        return None  # a process that takes its replica out of a dropped table
    if host is None:
        return f"I9: {request.me.decode()} acts for a replica that has left the table"
    if any(isinstance(operation, fx.Set) and operation.path == path for operation in request.operations):
        if request.epoch is None or host.value == request.me:
            return None  # the commit that takes the replica runs before its process has an epoch
        return f"I9: {request.me.decode()} was replaced by {host.value.decode()} and took the replica back"
    # A replica that joins again under its name may have a process that is another one under the same epoch.
    if request.epoch is not None and int(request.epoch) == int(host.version) and host.value == request.me:
        return None
    if host.value == request.me and fx.Check(path, host.version) in request.operations:
        return None  # it was dropped and has joined again since, and is under this epoch once more
    if host.value == DROPPED_HOST and fx.Check(path, host.version) in request.operations:
        return None  # a process that takes its replica out of a dropped table, and releases what it could not release before
    return f"I9: {request.me.decode()} changed the table under epoch {request.epoch}, which is {host.version} now"


def can_apply_later(request: Request, tree: Tree) -> bool:
    """Whether some later state might apply a request.

    One that only checks changes nothing at any time.  Versions only grow; block ids and results stay; an entry that has left
    the queue below the pointer never comes back, unless the replica recovers; a parent of the log that is closed is not opened
    again, and a table is restored once.
    """
    # Every request that is kept multiplies the states by "it is still in flight", so one that is dead is told apart here.
    if all(isinstance(operation, fx.Check) for operation in request.operations):
        return False
    pointer = tree.get(layout.log_pointer(request.replica))
    for operation in request.operations:
        node = tree.get(operation.path)
        if node is None:
            leaves = (
                isinstance(operation, fx.Delete) and "/queue/" in operation.path and not recovers(tree, request.replica)
            )
            if (
                leaves
                and pointer is not None
                and layout.queue_index(operation.path) < layout.pointer_index(pointer.value)
            ):
                return False
            ends = "/open/" in operation.path or operation.path.endswith("/restoring")
            if ends and isinstance(operation, fx.Check | fx.Delete):
                return False
            continue
        if isinstance(operation, fx.Check | fx.Set) and node.version > operation.version >= 0:
            return False
        stays = "/blocks/" in operation.path or "/results/" in operation.path or operation.path.endswith("/metadata")
        if isinstance(operation, fx.Create) and stays:
            return False
    return True


def probe_owner(effect: fx.ProbeOwner, scene: Scene) -> Iterator[Branch]:
    """Look whether the process that owns a replica is dead."""
    seat, incarnation = seat_of(effect.value)
    memory = scene.memories[seat]
    # A process that lives is UNCLEAR, never ALIVE: a probe proves death only, as a socket that is refused does.
    dead = memory.incarnation > incarnation or not memory.is_there
    yield Branch(fx.Owner.DEAD if dead else fx.Owner.UNCLEAR, scene.here)


def lock(effect: LockDisk | OpenTable | UnlockDisk, scene: Scene) -> Iterator[Branch]:
    """Lock the disk of a replica whose process is away, as a restore does, or start that process."""
    here = scene.here
    match effect:
        case LockDisk():
            disk, table = here.disks[effect.replica], here.replica.table
            found = restore_duties.lock(effect, seat_of(here.me)[0], scene.memories, disk, here.tree, table)
            if found is not None:
                held = (effect.replica, chosen_parts(disk))
                yield Branch(found, here._replace(memory=replace(here.memory, lock=held)))
        case OpenTable():
            table = here.replica.table
            table_is_there = table_at(table.path, here.tree.get(table.path)) == table and here.tree.exists(
                layout.metadata(table)
            )
            # The lock keeps the replica's process out: it would read parts that the restore is choosing.
            if table_is_there and not locked_by(scene.memories, here.replica.name):
                yield Branch(None, here._replace(memory=replace(here.memory, state=State.STARTING)))
        case UnlockDisk():
            breach = wrongly_repeated(effect, here.memory, here.replica.table, here.tree)
            yield Branch(None, here._replace(memory=replace(here.memory, lock=None)), breach=breach)


def read_table(effect: Any, scene: Scene) -> Iterator[Branch]:
    """Read the table as a client does; a read waits until its level can be served."""
    here = scene.here
    found: Any
    match effect:
        case read_requests.ShowRows(number=number):
            told, breach = read_requests.answer_read(effect, here.memory.held, here.disk, here.tree, here.replica)
            yield Branch(told, here, answers=((fx.RequestId(number), told),), breach=breach)
            return
        case read_requests.AwaitAnswers():
            found = read_requests.begin(effect, scene.answers)
        case read_requests.AwaitPointer():
            found = read_requests.pointer_of(here.memory)
        case _:
            found = read_requests.look(effect, here.memory, here.tree, here.replica)
    if found is not None:
        yield Branch(found, here)


# --- the disk -----------------------------------------------------------------------------------------------------------------


def stage(effect: fx.Stage, scene: Scene) -> Iterator[Branch]:
    """Stage rows; a fault leaves a torn folder."""
    here = scene.here
    done = local.stage(effect, here)
    yield Branch(done.outcome, here._replace(memory=done.memory, disk=done.disk))
    folder = done.disk.folder(effect.staging)
    assert folder is not None
    before = torn_upload(effect.staging, here.memory, here.disk)
    torn = here._replace(disk=before.with_folder(Folder(effect.staging, folder.parts, torn=True)))
    if Fault.CRASH in scene.faults:
        yield Branch(None, torn, Fault.CRASH.cost, "half written", dies=True)
    if Fault.DISK in scene.faults:
        yield Branch(fx.StoreFailed("disk full"), torn, Fault.DISK.cost)


def publish(effect: fx.Publish, scene: Scene) -> Iterator[Branch]:
    """Publish what is staged; a crash leaves some of it published."""
    here = scene.here
    done = local.publish(effect, here)
    yield Branch(done.outcome, here._replace(memory=done.memory, disk=done.disk))
    if Fault.CRASH in scene.faults:
        disk = here.disk
        # Without the last rename: a process that dies after that one has published all, which a crash between effects covers.
        for partition, name in effect.names[:-1]:
            renamed = disk.rename(effect.staging, partition, name)
            if renamed is not None and renamed != disk:
                disk = renamed
                yield Branch(None, here._replace(disk=disk), Fault.CRASH.cost, "half renamed", dies=True)
    if Fault.DISK in scene.faults:
        yield Branch(fx.StoreFailed("disk failing"), here, Fault.DISK.cost)


def fetch_many(effect: fx.FetchMany, scene: Scene) -> Iterator[Branch]:
    """Fetch parts; a crash or a fault leaves some of them fetched."""
    here = scene.here
    done = local.fetch_many(effect, here)
    yield Branch(done.outcome, here._replace(disk=done.disk))
    fetched = [
        fetch for fetch, outcome in zip(effect.fetches, done.outcome, strict=True) if isinstance(outcome, fx.Fetched)
    ]
    if Fault.CRASH in scene.faults:
        disk = here.disk
        for fetch in fetched[:-1]:  # after the last one all is fetched: the crash between effects
            disk = local.fetched_to(disk, fetch, here)
            yield Branch(None, here._replace(disk=disk), Fault.CRASH.cost, "half fetched", dies=True)
    if Fault.FETCH in scene.faults and fetched:
        failed = tuple(fx.NotFetched(fetch.part, "no answer") for fetch in effect.fetches)
        yield Branch(failed, here, Fault.FETCH.cost)
        # One fetch that fails among several is tried for each of them; every other subset would multiply the branches.
        for number in range(len(effect.fetches) if len(effect.fetches) > 1 else 0):
            disk, told = here.disk, list(done.outcome)
            told[number] = fx.NotFetched(effect.fetches[number].part, "no answer")
            for fetch, outcome in zip(effect.fetches, told, strict=True):
                if isinstance(outcome, fx.Fetched):
                    disk = local.fetched_to(disk, fetch, here)
            yield Branch(tuple(told), here._replace(disk=disk), Fault.FETCH.cost)


def make(effect: fx.Merge | fx.Mutate, scene: Scene) -> Iterator[Branch]:
    """Merge or mutate; the result may differ from that of others, or not be needed any more."""
    here = scene.here
    done = local.make(effect, here)
    is_paused = here.memory.paused and isinstance(effect, fx.Merge)
    if not is_paused:
        yield Branch(done.outcome, here._replace(memory=done.memory, disk=done.disk))
    # The cancelled result leaves no folder: as a crash before the first byte, which needs no branch of its own.
    unneeded = local.cancelled(effect, here)
    if unneeded is not None:
        yield Branch(unneeded.outcome, here, fate="cancelled")
    if is_paused or not isinstance(done.outcome, fx.Made):
        return
    folder = done.disk.folder(effect.staging)
    assert folder is not None
    torn = torn_upload(effect.staging, here.memory, here.disk).with_folder(replace(folder, torn=True))
    if Fault.CRASH in scene.faults:
        yield Branch(None, here._replace(disk=torn), Fault.CRASH.cost, "half written", dies=True)
    if Fault.DISK in scene.faults:
        yield Branch(fx.StoreFailed("disk full"), here._replace(disk=torn), Fault.DISK.cost)
    if Fault.DIFFERS in scene.faults:
        # The replica's name makes the bytes differ from those of every other replica that also makes other bytes.
        content = f"{done.outcome.content_hash}?{here.replica.name}"
        parts = tuple((partition, content) for partition, _ in folder.parts)
        other = here.disk.with_folder(replace(folder, parts=parts))
        yield Branch(
            fx.Made(content), here._replace(memory=done.memory, disk=other), Fault.DIFFERS.cost, "with other bytes"
        )


def await_pulled(effect: AwaitPulled, scene: Scene) -> Iterator[Branch]:
    """Hear whether an entry applies, or not know it."""
    done = local.await_pulled(effect, scene.here)
    if done is None:
        return
    yield Branch(done.outcome, scene.here)
    # A process forgets what it has pulled when it loads its state anew, which it does only after an answer was lost.
    # An entry in the queue applies.  Of others the parts of the table may tell, or the client hears that it is unknown.
    if Fault.UNKNOWN in scene.faults and not any(item.index == effect.index for item in scene.here.memory.queue):
        yield Branch(replace(done.outcome, applies=None), scene.here, fate="not remembered")


def detach(effect: fx.Detach, scene: Scene) -> Iterator[Branch]:
    """Keep parts aside."""
    here = scene.here
    yield Branch(None, here._replace(disk=here.disk.keeping_aside(effect.parts)))
    if Fault.DISK in scene.faults:
        yield Branch(fx.StoreFailed("disk full"), here, Fault.DISK.cost)
