"""What happens inside one process: effects on its disk and on its memory, without any fault.

One function per effect, from values to values.  The explorer adds every fault to them, the simulator those that its seed draws,
and the conversations those that are asked for: what an effect does is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, cast

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import MutateEntry
from replitree.protocol.core.fold import NOTHING, maximal
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.log import begins_after
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import parse_part
from replitree.protocol.execute.execute import EXECUTE_ENTRIES_MAX, goes_alone
from replitree.protocol.execute.making import MAKING
from replitree.protocol.program.mender_effects import MendTurn
from replitree.protocol.program.stages import (
    Accept,
    Accepted,
    AwaitElection,
    AwaitMutation,
    AwaitOpen,
    AwaitParts,
    AwaitPlace,
    AwaitPull,
    AwaitPulled,
    AwaitStrays,
    AwaitWork,
    ElectionTurn,
    Forget,
    GiveBack,
    KillTurn,
    LeadTurn,
    LookAtParts,
    OpenTurn,
    PlaceTurn,
    PulledTurn,
    PullTurn,
    TakeOver,
    WorkTurn,
)
from replitree.protocol.shares.share_effects import NameShares
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import View, blockers, to_be_detached, to_be_fed, to_be_kept
from replitree_verify.outcomes.chances import can_execute
from replitree_verify.process import lost_parts, mender, moves, shares, uploads
from replitree_verify.world.disk import (
    Disk,
    Folder,
    merged_content,
    mutated_content,
    rows_in,
    staged_parts,
    staged_rewrite,
)
from replitree_verify.world.history import Log
from replitree_verify.world.memory import Memory, State, is_made
from replitree_verify.world.model import Rewrite
from replitree_verify.world.mutation_scope import PartsSeen
from replitree_verify.world.objects import Objects
from replitree_verify.world.shared_disk import SharedDisk


class Here(NamedTuple):
    """A process and what it has at hand.

    Attributes
    ----------
    replica, me
        Which replica it is, and the value by which it owns it.
    memory, disk
        Its own.
    tree
        Coordination as it is now; only waiting looks at it.
    disks
        Every replica's disk, by name: where parts can be fetched.
    partitions
        The partitions that the rows of every request fall into.
    makes
        Whether the replica merges and mutates by itself.
    elects
        Whether only an elected leader proposes merges.
    loses
        Whether parts are declared lost: what a process waits for is looked at closely (`chances`).
    objects
        What is in the object store; None: the table lies on the disks.
    loader
        What the thread is called among those that load the state.
    for_all
        Whether the replica makes results for all where these go into an object store.
    writes_to_disk
        Whether what it writes stays on its disk although the table has an object store.
    rewrites
        What clients bring with rewrites.
    keeps_old
        Whether the files of parts that left the table stay until they are deleted (`process.tags`).
    feeds
        Whether the table has a change feed, for which its parts stay.
    """

    replica: Replica
    me: bytes
    memory: Memory
    disk: Disk
    tree: Tree
    disks: Mapping[str, Disk]
    partitions: tuple[str, ...]
    makes: bool = True
    elects: bool = False
    loses: bool = False
    objects: Objects | None = None
    loader: str = ""
    for_all: bool = True
    writes_to_disk: bool = False
    rewrites: tuple[Rewrite, ...] = ()
    keeps_old: bool = False
    feeds: bool = False


class Done(NamedTuple):
    """What became of an effect."""

    outcome: Any
    memory: Memory
    disk: Disk


# --- the disk -------------------------------------------------------------------------------------------------------------


def stage(effect: fx.Stage, here: Here) -> Done:
    """Write the rows of requests into a folder that is not published yet."""
    rewrite = next((each for each in here.rewrites if each.request in effect.requests), None)
    if rewrite is not None:
        staged = staged_rewrite(rewrite.results, rewrite.inserts)
        parts_of_it = tuple(sorted((*rewrite.results, *rewrite.inserts)))
        return Done(staged, here.memory, here.disk.with_folder(Folder(effect.staging, parts_of_it)))
    parts = staged_parts(here.partitions, effect.requests)
    folder = Folder(effect.staging, tuple((part.partition, part.content_hash) for part in parts))
    disk = here.disk.with_folder(folder)
    if not here.memory.shares.uploads:
        return Done(fx.Staged(parts), here.memory, disk)
    return Done(fx.Staged(parts), *shares.staged_upload(effect.staging, here.partitions[0], here.memory, disk))


def publish(effect: fx.Publish, here: Here) -> Done:
    """Rename what is staged to the parts' own names."""
    disk, missing = here.disk.publish(effect.staging, effect.names)
    return Done(fx.Published(missing), let_go(here.memory, effect.staging), disk)


def fetch_many(effect: fx.FetchMany, here: Here) -> Done:
    """Fetch parts from the first replica that can send each of them."""
    disk = here.disk
    outcomes: list[fx.Fetched | fx.NotFetched] = []
    for fetch in effect.fetches:
        found = disk.content(fetch.part) == fetch.content_hash or _source(fetch, here) is not None
        if found:
            disk = fetched_to(disk, fetch, here)
        outcomes.append(fx.Fetched(fetch.part) if found else fx.NotFetched(fetch.part, "nobody has it"))
    return Done(tuple(outcomes), here.memory, disk)


def fetched_to(disk: Disk, fetch: fx.FetchPart, here: Here) -> Disk:
    """Return a disk with a part that can be fetched: with its rows, or with the shares that these lie in."""
    source = None if disk.content(fetch.part) == fetch.content_hash else _source(fetch, here)
    fetched = disk.with_part(fetch.part, fetch.content_hash)
    if not isinstance(source, SharedDisk) or not isinstance(fetched, SharedDisk):
        return fetched
    return fetched.having(fetch.part, *source.shares_of(fetch.part)).with_files(fetch.part, source.files_of(fetch.part))


def _source(fetch: fx.FetchPart, here: Here) -> Disk | None:
    """Return the first disk from which a part can be fetched.

    A replica gives a part's shares to others once it owns them.  They read the manifest, which the writer puts last.
    """
    for name in (each for each in fetch.sources if each in here.disks):
        disk = here.disks[name]
        if disk.content(fetch.part) != fetch.content_hash:
            continue
        if here.objects is None:
            return disk
        is_owned = here.tree.exists(layout.part(Replica(here.replica.table, name), fetch.part))
        if is_owned and all(map(here.objects.has_manifest, cast("SharedDisk", disk).shares_of(fetch.part))):
            return disk
    return None


def make(effect: fx.Merge | fx.Mutate | fx.Link | fx.MakeEmpty, here: Here) -> Done:
    """Stage a result of published parts, or one without rows."""
    partition = parse_part(effect.result).partition
    match effect:
        case fx.Merge(sources=sources):
            pass
        case fx.Mutate(source=source) | fx.Link(source=source):
            sources = (source,)
        case _:
            sources = ()
    contents = [content for source in sources if (content := here.disk.content(source)) is not None]
    if len(contents) < len(sources):
        return Done(fx.StoreFailed("a source is not on disk"), here.memory, here.disk)
    match effect:
        case fx.Mutate():
            content = mutated_content(partition, contents[0], effect.command)
        case fx.Link():
            content = contents[0]
        case _:
            content = merged_content(partition, contents)
    # The folder is held until it is published or removed: a sweep takes only idle ones.
    held = replace(here.memory, staging=tuple(sorted({*here.memory.staging, effect.staging})))
    disk = here.disk.with_folder(Folder(effect.staging, ((partition, content),)))
    if isinstance(effect, fx.Link | fx.Mutate) and isinstance(disk, SharedDisk):
        # What is linked has the shares of its source; what is mutated writes some files, and keeps the others.
        for share in disk.shares_of(effect.source) if isinstance(effect, fx.Link) or here.objects is not None else ():
            disk = disk.noting(effect.staging, partition, share)
    return Done(fx.Made(content), *shares.staged_upload(effect.staging, partition, held, disk))


def untouched(effect: fx.Untouched, here: Here) -> Done:
    """Tell whether a mutation would change no row of a part."""
    content = here.disk.content(effect.source)
    partition = parse_part(effect.source).partition
    is_so = content is not None and mutated_content(partition, content, effect.command) == content
    return Done(is_so, here.memory, here.disk)


def cancelled(effect: fx.Merge | fx.Mutate, here: Here) -> Done | None:
    """Return how the making of a result ends that the table does not need any more."""
    place = here.memory.place
    if here.memory.paused and isinstance(effect, fx.Merge):
        return Done(fx.Cancelled("merges are paused"), here.memory, here.disk)
    if place is None or place.parts.covering(parse_part(effect.result)) is not None:
        return None
    return Done(fx.Cancelled("the table does not need it any more"), here.memory, here.disk)


def let_go(memory: Memory, staging: fx.StagingId) -> Memory:
    """Return a memory that does not hold a result's folder any more."""
    # An insert's own folder stays held after its publish: `Release` ends that, when the stage is over.
    if not staging.startswith(MAKING) or staging not in memory.staging:
        return memory
    return replace(memory, staging=tuple(each for each in memory.staging if each != staging))


def list_staging(effect: fx.ListStaging, here: Here) -> Done:
    """Return the folders of staging that no thread holds."""
    del effect
    held = here.memory.staging
    names = (folder.staging for folder in here.disk.folders)
    # An insert of several groups has a folder `ID.N` for each; its thread holds `ID`.
    idle = tuple(name for name in names if name not in held and name.rpartition(".")[0] not in held)
    return Done(idle, here.memory, here.disk)


# --- the memory -----------------------------------------------------------------------------------------------------------


def remember(here: Here, memory: Memory, outcome: Any = None) -> Done:
    """Return how an effect ends that changes the memory alone."""
    return Done(outcome, memory, here.disk)


def reveal(effect: fx.Reveal, here: Here) -> Done:
    """Show parts, and remove the files of those that they replace."""
    memory = here.memory.revealing(effect.parts, effect.gone)
    if here.keeps_old:
        return Done(None, memory, here.disk.retiring(effect.gone, tuple(part.name for part in memory.held)))
    # A part that went and came back with the same name stays on disk.
    shown = {part.name for part in memory.held}
    return Done(None, memory, here.disk.without_parts(*(name for name in effect.gone if name not in shown)))


def find(effect: fx.FindPart, here: Here) -> Done:
    """Return the content of a published part, which is not old from here on: it is to be registered."""
    disk, content = here.disk, here.disk.content(effect.part)
    if content is not None and effect.part in disk.old:
        disk = disk.with_part(effect.part, content)
    return Done(content, here.memory, disk)


def list_parts(_effect: fx.ListParts, here: Here) -> Done:
    """List the parts on disk, without those that are marked as old."""
    return Done(tuple(name for name, _ in here.disk.parts if name not in here.disk.old), here.memory, here.disk)


def set_aside(effect: fx.RemovePart, here: Here) -> Done:
    """Take a part out of the table's folder; what is kept aside counts only where a tag may need it.

    The feed has the part of an insert still: it is old, as if its process had not died before it could say so.
    """
    if effect.unless_fed and here.feeds and parse_part(effect.part).is_inserted:
        return Done(None, here.memory, here.disk.retiring((effect.part,), ()))
    disk = here.disk.keeping_aside((effect.part,)) if here.keeps_old else here.disk
    return Done(None, here.memory, disk.without_parts(effect.part))


def await_pull(_effect: AwaitPull, here: Here) -> Done | None:
    """Wait until the puller has something to read."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    # A reload goes before the log: what was read of pointer and queue may be older than what a commit has moved.
    if memory.reload or memory.place is None:
        return remember(here, replace(memory, reload=False), PullTurn(memory.epoch, None))
    table, index = here.replica.table, memory.place.pointer.index
    log = here.tree.get(layout.log(table))
    # A pointer before the beginning of the log wakes the puller too: it then finds out that its replica is lost.
    if here.tree.exists(layout.log_entry(table, index)) or (log is not None and begins_after(table, log, index)):
        return remember(here, memory, PullTurn(memory.epoch, memory.place))
    return None


def await_work(effect: AwaitWork, here: Here) -> Done | None:
    """Wait until an entry of the queue can be executed, and take it."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None or memory.place is None:
        return None
    lane = [item for item in memory.queue if is_made(item) is effect.makes and item.index not in memory.running]
    # Entries that were never tried come first; of the postponed ones those that wait longest: none keeps another from its turn.
    waiting = sorted(
        (item for item in lane if item.index in memory.waiting), key=lambda item: memory.waiting.index(item.index)
    )
    ready = _batch([item for item in lane if item.index not in memory.waiting]) or _batch(
        [item for item in waiting if can_execute(item, _view(item, here), here)]
    )
    if not ready:
        return None
    running = tuple(sorted((*memory.running, *(item.index for item in ready))))
    return remember(
        here,
        replace(memory, running=running),
        WorkTurn(memory.epoch, _view(ready[0], here), tuple(ready)),
    )


def _batch(items: list[Queued]) -> list[Queued]:
    """Return what is executed first: inserts that may go together, or one other entry."""
    ready: list[Queued] = []
    for item in items[:EXECUTE_ENTRIES_MAX]:
        if ready and goes_alone(item):
            break
        ready.append(item)
        if goes_alone(item):
            break
    return sorted(ready, key=lambda item: item.index)


def _view(item: Queued, here: Here) -> View:
    """Return the state by which an entry is executed."""
    memory = here.memory
    assert memory.place is not None
    # Merges and mutations wait for what they are made of; only other entries that go alone need those before them to be over.
    before = blockers(memory.queue, memory.running, item.index) if goes_alone(item) and not is_made(item) else ()
    broken = frozenset(parse_part(name) for name, _ in memory.lacking)
    kept = to_be_kept(memory.queue)
    detached, opened = to_be_detached(memory.queue), memory.place.open
    sharer = shares.sharer_of(here.replica, memory.shares) if here.objects is not None and here.for_all else None
    makes = here.makes and not memory.paused
    fed = to_be_fed(memory.queue, opened) if here.feeds else PartSet()
    return View(
        memory.place.parts, memory.held, before, makes, kept, broken, opened, detached=detached, fed=fed, sharer=sharer
    )


def give_back(effect: GiveBack, here: Here) -> Done:
    """Note what an executor has done, and what it puts off."""
    memory = here.memory.executed(effect.batch, effect.done, tuple(each.index for each in effect.postponed))
    if here.objects is None or here.loader != "maker":
        return remember(here, memory)
    done = (item for item in here.memory.queue if item.index in effect.done)
    made = frozenset(part.name for item in done for part in item.change.added)
    return Done(None, *shares.end_making(memory, cast("SharedDisk", here.disk), made))


def take_over(effect: TakeOver, here: Here) -> Done:
    """Take over what was loaded."""
    memory = here.memory.loaded(effect.loaded, here.loader)
    if memory is None:  # memory has moved on since the load began: the stage loads again
        return remember(here, here.memory, outcome=None)
    return remember(here, memory, tuple(name for name, _ in memory.lacking))


def accept(effect: Accept, here: Here) -> Done | None:
    """Take a group of inserts, as soon as the process is active."""
    taken = accepted(here, effect.requests[0].id)
    if taken is None:
        return None
    held = tuple(sorted((*here.memory.staging, taken.staging)))
    return remember(here, replace(here.memory, staging=held), taken)


def look_at_parts(effect: LookAtParts, here: Here) -> Done:
    """Look for rows that a mutation covers."""
    memory = here.memory
    found = ((part, here.disk.content(part.name)) for part in memory.held)
    rows = tuple((part, rows_in(content)) for part, content in found if content is not None)
    return remember(here, memory, PartsSeen(effect.command, None if memory.torn else memory.place, rows))


def accepted(here: Here, request: int) -> Accepted | None:
    """Return what an active process works with that takes a request."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    # Without a place the search for the block in the log begins at its start, which is slower and never wrong.
    log_from = memory.place.pointer.index if memory.place is not None else fx.LogIndex(0)
    return Accepted(here.me, memory.epoch, log_from, fx.StagingId(f"{here.me.decode()}-{request}"))


def await_parts(effect: AwaitParts, here: Here) -> Done | None:
    """Wait until the parts that a leader merges are there."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None or memory.place is None:
        return None
    if here.elects and not memory.leads:
        return None
    there = all(parse_part(name) in memory.place.parts for name in effect.names)
    return remember(here, memory, LeadTurn(memory.epoch, memory.place.pointer.index)) if there else None


def await_pulled(effect: AwaitPulled, here: Here) -> Done | None:
    """Wait until an entry is pulled, and return whether it applies."""
    memory = here.memory
    if memory.place is None or memory.torn or memory.place.pointer.index <= effect.index:
        return None
    # What the log below its pointer has changed: a process remembers it, unless it has started since (`branches`).
    items = Log(here.tree, here.replica.table).entries
    applies = next((item.change != NOTHING for item in items if item.index == effect.index), None)
    return remember(here, memory, PulledTurn(memory.place, applies))


def await_mutation(effect: AwaitMutation, here: Here) -> Done | None:
    """Wait until a mutation is in the queue."""
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    found = [item for item in memory.queue if isinstance(item.entry, MutateEntry) and item.entry.id == effect.id]
    return remember(here, memory, KillTurn(memory.epoch, found[0])) if found else None


def await_strays(_effect: AwaitStrays, here: Here) -> Done | None:
    """Wait until a registered part is covered by another one."""
    if here.memory.state is not State.ACTIVE or here.memory.epoch is None:
        return None
    registered = tuple(map(parse_part, here.tree.children(layout.parts(here.replica)) or ()))
    return remember(here, here.memory, here.memory.epoch) if len(maximal(registered)) < len(registered) else None


def await_election(effect: AwaitElection, here: Here) -> Done | None:
    """Wait until a replica has to stand for leader, has won or lost, or has to resign."""
    memory, names = here.memory, here.tree.children(layout.leader_election(here.replica.table)) or ()
    own = "" if effect.path is None else effect.path.rpartition("/")[2]
    if memory.epoch is None or not memory.is_there:
        return None
    if memory.state is not State.ACTIVE:
        return remember(here, memory, ElectionTurn(memory.epoch, resigns=True)) if own in names else None
    settled = own in names and (names[0] == own) is memory.leads
    return None if settled else remember(here, memory, ElectionTurn(memory.epoch, resigns=False))


def await_open(_effect: AwaitOpen, here: Here) -> Done | None:
    """Wait until an insert is open."""
    epoch, place = here.memory.epoch, here.memory.place
    if here.memory.state is not State.ACTIVE or epoch is None or place is None or not place.open:
        return None
    return remember(here, here.memory, OpenTurn(epoch, place.open))


def await_place(effect: AwaitPlace, here: Here) -> Done | None:
    """Wait until the pointer has come so far below its parent."""
    epoch, place = here.memory.epoch, here.memory.place
    if here.memory.state is not State.ACTIVE or epoch is None or place is None:
        return None
    below = place.pointer.index % layout.PARENT_ENTRIES
    return remember(here, here.memory, PlaceTurn(epoch, place)) if below >= effect.pulled else None


def forget(_effect: Forget, here: Here) -> Done:
    """Forget all that belongs to a table which the replica has left."""
    memory = here.memory
    begun = Memory(memory.incarnation, memory.session, state=memory.state)
    return remember(here, replace(begun, staging=memory.staging, shares=memory.shares, moves=memory.moves))


# --- what the rooms of `process` perform --------------------------------------------------------------------------------------


def lose(effect: Any, here: Here) -> Done | None:
    """Perform an effect of `lost_parts`."""
    done = lost_parts.perform(effect, here.replica, here.memory, here.tree, here.disks)
    return None if done is None else Done(done.outcome, done.memory, done.disk)


def mend(effect: Any, here: Here) -> Done | None:
    """Perform an effect of the mender."""
    done = mender.perform(effect, here.replica, here.memory, here.tree, here.disks, here.objects)
    if done is None:
        return None
    outcome = done.outcome
    if isinstance(outcome, MendTurn) and here.objects is not None:
        outcome = replace(outcome, sharer=shares.sharer_of(here.replica, here.memory.shares))
    return Done(outcome, done.memory, done.disk)


def share(effect: Any, here: Here) -> Done | None:
    """Perform an effect on what a process knows of its shares."""
    if isinstance(effect, NameShares) and here.writes_to_disk:
        return remember(here, here.memory, ())
    return _on_shared_disk(shares.perform, effect, here)


def move(effect: Any, here: Here) -> Done | None:
    """Perform an effect of the mover."""
    return _on_shared_disk(moves.perform, effect, here)


def _on_shared_disk(
    perform: Callable[[Any, Replica, bytes, Memory, Tree, SharedDisk], shares.Performed | None], effect: Any, here: Here
) -> Done | None:
    done = perform(effect, here.replica, here.me, here.memory, here.tree, cast("SharedDisk", here.disk))
    return None if done is None else Done(*done)


def upload(effect: Any, here: Here) -> Done | None:
    """Perform an effect of uploads."""
    done = uploads.perform(effect, here.me, here.memory, cast("SharedDisk", here.disk))
    return None if done is None else Done(*done)
