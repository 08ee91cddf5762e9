"""What happens inside one process: effects on its disk and on its memory, without any fault.

One function per effect, from values to values.  The explorer adds every fault to them, the simulator those that its seed draws,
and the conversations those that are asked for: what an effect does is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol import layout
from replitree.protocol.effects import (
    AdoptEpoch,
    CurrentEpoch,
    Fetched,
    FetchMany,
    FetchPart,
    ListParts,
    ListStaging,
    LogIndex,
    NotFetched,
    Publish,
    Published,
    RemovePart,
    RemoveStaging,
    Reveal,
    Stage,
    Staged,
    StagingId,
)
from replitree.protocol.entries import part_names
from replitree.protocol.execute import EXECUTE_ENTRIES_MAX
from replitree.protocol.layout import Replica
from replitree.protocol.pull import Queued
from replitree.verify.disk import Disk, Folder, staged_parts
from replitree.verify.life import (
    Accept,
    Accepted,
    Appear,
    AskReload,
    AwaitLack,
    AwaitPull,
    AwaitReplica,
    AwaitTrouble,
    AwaitWork,
    GiveBack,
    Halt,
    Lack,
    Mended,
    PullTurn,
    Quieten,
    Release,
    ReportTrouble,
    Serve,
    Stop,
    TakeIn,
    TakeOver,
    WorkTurn,
)
from replitree.verify.memory import Memory, State


@dataclass(frozen=True, slots=True)
class Here:
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
    """

    replica: Replica
    me: bytes
    memory: Memory
    disk: Disk
    tree: Tree
    disks: Mapping[str, Disk]
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an effect."""

    outcome: Any
    memory: Memory
    disk: Disk


def perform_local(effect: Any, here: Here) -> Done | None:
    """Perform an effect on disk or memory; None while what it waits for is not there."""
    return _PERFORM[type(effect)](effect, here)


def is_local(effect: Any) -> bool:
    """Whether an effect touches only the process's own disk and memory (and other disks to read)."""
    return type(effect) in _PERFORM


# --- the disk -------------------------------------------------------------------------------------------------------------


def _stage(effect: Stage, here: Here) -> Done:
    parts = staged_parts(here.partitions, effect.requests)
    folder = Folder(effect.staging, tuple((part.partition, part.content_hash) for part in parts))
    return Done(Staged(parts), here.memory, here.disk.with_folder(folder))


def _publish(effect: Publish, here: Here) -> Done:
    disk, missing = here.disk.publish(effect.staging, effect.names)
    return Done(Published(missing), here.memory, disk)


def _fetch_many(effect: FetchMany, here: Here) -> Done:
    disk = here.disk
    outcomes: list[Fetched | NotFetched] = []
    for fetch in effect.fetches:
        found = disk.content(fetch.part) == fetch.content_hash or has_source(fetch, here.disks)
        if found:
            disk = disk.with_part(fetch.part, fetch.content_hash)
        outcomes.append(Fetched(fetch.part) if found else NotFetched(fetch.part, "nobody has it"))
    return Done(tuple(outcomes), here.memory, disk)


def has_source(fetch: FetchPart, disks: Mapping[str, Disk]) -> bool:
    """Whether one of a fetch's sources has the part with the right content."""
    return any(disks[source].content(fetch.part) == fetch.content_hash for source in fetch.sources if source in disks)


def _list_staging(effect: ListStaging, here: Here) -> Done:
    del effect
    names = (folder.staging for folder in here.disk.folders)
    idle = tuple(name for name in names if name.rpartition(".")[0] not in here.memory.held)
    return Done(idle, here.memory, here.disk)


def _remove_staging(effect: RemoveStaging, here: Here) -> Done:
    return Done(None, here.memory, here.disk.without_folder(effect.staging))


def _list_parts(effect: ListParts, here: Here) -> Done:
    del effect
    return Done(tuple(name for name, _ in here.disk.parts), here.memory, here.disk)


def _remove_part(effect: RemovePart, here: Here) -> Done:
    return Done(None, here.memory, here.disk.without_part(effect.part))


# --- the memory -----------------------------------------------------------------------------------------------------------


def _remember(here: Here, memory: Memory, outcome: Any = None) -> Done:
    return Done(outcome, memory, here.disk)


def _reveal(effect: Reveal, here: Here) -> Done:
    return _remember(here, here.memory.revealing(effect.parts))


def _current_epoch(effect: CurrentEpoch, here: Here) -> Done:
    del effect
    return _remember(here, here.memory, here.memory.epoch)


def _adopt_epoch(effect: AdoptEpoch, here: Here) -> Done:
    return _remember(here, here.memory.adopting(effect.epoch))


def _appear(effect: Appear, here: Here) -> Done:
    del effect
    return _remember(here, replace(here.memory, state=State.STARTING))


def _await_trouble(effect: AwaitTrouble, here: Here) -> Done | None:
    del effect
    return _remember(here, here.memory) if here.memory.trouble and here.memory.running else None


def _await_replica(effect: AwaitReplica, here: Here) -> Done | None:
    return None if here.tree.exists(effect.is_active) else _remember(here, here.memory)


def _await_pull(effect: AwaitPull, here: Here) -> Done | None:
    del effect
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    if memory.reload or memory.pointer is None:
        return _remember(here, replace(memory, reload=False), PullTurn(memory.epoch, None))
    if here.tree.exists(layout.log_entry(here.replica.table, memory.pointer.index)):
        return _remember(here, memory, PullTurn(memory.epoch, memory.pointer))
    return None


def _await_work(effect: AwaitWork, here: Here) -> Done | None:
    del effect
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    ready = tuple(item for item in memory.queue if item.index not in memory.waiting or _can_execute(item, here))
    if not ready:
        return None
    return _remember(here, memory, WorkTurn(memory.epoch, ready[:EXECUTE_ENTRIES_MAX]))


def _await_lack(effect: AwaitLack, here: Here) -> Done | None:
    del effect
    memory = here.memory
    return _remember(here, memory, memory.lacking) if memory.state is State.ACTIVE and memory.lacking else None


def _lack(effect: Lack, here: Here) -> Done:
    return _remember(here, replace(here.memory, lacking=tuple(sorted({*here.memory.lacking, *effect.parts}))))


def _mended(effect: Mended, here: Here) -> Done:
    lacking = tuple((name, content) for name, content in here.memory.lacking if name not in effect.parts)
    return _remember(here, replace(here.memory, lacking=lacking))


def _can_execute(item: Queued, here: Here) -> bool:
    """Whether trying a postponed entry again has a chance: everything it needs is somewhere."""
    folder = here.disk.folder(item.entry.insert)
    staged = dict(folder.parts) if folder is not None and not folder.torn else {}
    wanted = zip(part_names(item.entry, item.index), item.entry.parts, strict=True)
    return all(
        partition in staged or any(disk.content(name) == part.content_hash for disk in here.disks.values())
        for (partition, name), part in wanted
    )


def _quieten(effect: Quieten, here: Here) -> Done:
    del effect
    return _remember(here, replace(here.memory, trouble=False))


def _serve(effect: Serve, here: Here) -> Done:
    del effect
    memory = here.memory
    served = replace(memory, state=State.ACTIVE, waiting=()) if memory.running and not memory.trouble else memory
    return _remember(here, served)


def _stop(effect: Stop, here: Here) -> Done:
    del effect
    return _remember(here, replace(here.memory, state=State.STOPPED))


def _halt(effect: Halt, here: Here) -> Done:
    del effect
    return _remember(here, replace(here.memory, state=State.HALTED))


def _report_trouble(effect: ReportTrouble, here: Here) -> Done:
    del effect
    return _remember(here, here.memory.with_trouble())


def _ask_reload(effect: AskReload, here: Here) -> Done:
    del effect
    return _remember(here, replace(here.memory, reload=True))


def _take_over(effect: TakeOver, here: Here) -> Done:
    memory, gone = here.memory.reloaded(effect.pointer, effect.queue)
    return _remember(here, memory, gone)


def _take_in(effect: TakeIn, here: Here) -> Done:
    return _remember(here, here.memory.pulled(effect.pointer, effect.entries))


def _give_back(effect: GiveBack, here: Here) -> Done:
    return _remember(here, here.memory.executed(effect.done, effect.postponed))


def _accept(effect: Accept, here: Here) -> Done | None:
    memory = here.memory
    if memory.state is not State.ACTIVE or memory.epoch is None:
        return None
    log_from = memory.pointer.index if memory.pointer is not None else LogIndex(here.replica.table.base)
    staging = StagingId(f"{here.me.decode()}-{effect.requests[0].id}")
    accepted = Accepted(here.me, memory.epoch, log_from, staging)
    return _remember(here, replace(memory, held=tuple(sorted((*memory.held, staging)))), accepted)


def _release(effect: Release, here: Here) -> Done:
    held = tuple(each for each in here.memory.held if each != effect.staging)
    return _remember(here, replace(here.memory, held=held))


_PERFORM: dict[type, Callable[[Any, Here], Done | None]] = {
    Stage: _stage,
    Publish: _publish,
    FetchMany: _fetch_many,
    ListStaging: _list_staging,
    RemoveStaging: _remove_staging,
    ListParts: _list_parts,
    RemovePart: _remove_part,
    Reveal: _reveal,
    CurrentEpoch: _current_epoch,
    AdoptEpoch: _adopt_epoch,
    Appear: _appear,
    AwaitTrouble: _await_trouble,
    AwaitReplica: _await_replica,
    AwaitPull: _await_pull,
    AwaitWork: _await_work,
    AwaitLack: _await_lack,
    Lack: _lack,
    Mended: _mended,
    Quieten: _quieten,
    Serve: _serve,
    Stop: _stop,
    Halt: _halt,
    ReportTrouble: _report_trouble,
    AskReload: _ask_reload,
    TakeOver: _take_over,
    TakeIn: _take_in,
    GiveBack: _give_back,
    Accept: _accept,
    Release: _release,
}
