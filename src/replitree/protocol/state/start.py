"""Start: what a replica does before it serves, and again whenever it had to activate anew.

1. *list* the staging folders that no running insert holds
2. *activate* (or renew): from here on every commit of an earlier epoch is decided
3. *pull* up to the log's tail as it is after the activation
4. *sweep*: a folder of step 1 whose insert is not in the queue was never committed, and never will be
5. *compare* the parts on disk with the registered ones
6. *forget* the registered parts that another registered part covers

The order is the proof that the sweep deletes no committed rows.  An insert in a listed folder was committed under an epoch
before step 2, or not at all; if it was, its entry is below the tail of step 3, so after the pull it is in the queue, or it was
executed and the folder was renamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, RewriteEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.state.pull import (
    PULL_ENTRIES_MAX,
    Fenced,
    Gap,
    Loaded,
    Place,
    PointerMoved,
    Pulled,
    load,
    pull_log,
)
from replitree.protocol.state.registration import content_of

FORGET_BATCH = 100
"""Registrations taken back in one commit."""

ROUNDS_MAX = 1_000_000
"""Pulls in one catching-up; more means that the log grows faster than this replica can read it."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The replica has pulled everything that was in the log when it began; it stands at `place`."""

    place: Place


@dataclass(frozen=True, slots=True)
class PartsCompared:
    """Registered parts that are not on disk: name and content hash of each."""

    missing: tuple[tuple[str, str], ...]


CatchUp: TypeAlias = CaughtUp | Fenced | Gap


def list_idle_staging() -> fx.Procedure[tuple[fx.StagingId, ...]]:
    """Step 1: the staging folders that no running insert of this process holds."""
    found: tuple[fx.StagingId, ...] = yield fx.ListStaging()
    return found


def catch_up(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[CatchUp]:
    """Step 3: pull until the log's tail, not older than now, is reached.

    `Gap`: the session ended unnoticed, another replica marked this one lost, and entries were removed.
    """
    yield fx.Sync(layout.log(replica.table))
    loaded = yield from load(replica)
    if isinstance(loaded, Fenced):
        return loaded
    place = loaded.place
    for _ in range(ROUNDS_MAX):
        pulled = yield from pull_log(replica, epoch, place, PULL_ENTRIES_MAX)
        match pulled:
            case Pulled(place=place, more=False):
                return CaughtUp(place)
            case Pulled(place=place):
                continue
            case PointerMoved():
                yield fx.Sync(layout.log(replica.table))
                loaded = yield from load(replica)
                if isinstance(loaded, Fenced):
                    return loaded
                place = loaded.place
            case Fenced() | Gap():
                return pulled
    raise AssertionError("the log grows faster than it can be pulled")


def sweep_staging(idle: tuple[fx.StagingId, ...], loaded: Loaded) -> fx.Procedure[int]:
    """Step 4: remove the folders of `idle` whose inserts are not in the queue; return how many."""
    wanted = tuple(item.entry.insert for item in loaded.queue if isinstance(item.entry, GetEntry | RewriteEntry))
    garbage = tuple(staging for staging in idle if staging not in wanted)
    for staging in garbage:
        yield fx.RemoveStaging(staging)
    return len(garbage)


def compare_parts(replica: Replica, loaded: Loaded) -> fx.Procedure[PartsCompared]:
    """Step 5: reveal what is registered and on disk; release what was replaced; set aside unknown parts."""
    on_disk: tuple[str, ...] = yield fx.ListParts()
    held = tuple(part.name for part in loaded.held)
    known = frozenset((*held, *(part.name for item in loaded.queue for part in item.change.added)))
    replaced: list[str] = []
    for name in on_disk:
        part = parse_part(name)
        # Only parts below the pointer are judged: an insert that runs meanwhile may have published one that was not pulled yet.
        if name not in known and part.block_max < loaded.place.pointer.index:
            if loaded.held.covering(part) is not None:
                replaced.append(name)
            else:
                # Of a drop whose process died between its commit and its reveal the feed may need the rows still.
                yield fx.RemovePart(name, unless_fed=True)
    disk = frozenset(on_disk)
    yield fx.Reveal(tuple(name for name in held if name in disk), tuple(replaced))
    lacking = tuple(name for name in held if name not in disk)
    hashes = (yield fx.GetMany(tuple(layout.part(replica, name) for name in lacking))) if lacking else fx.Many(())
    return PartsCompared(
        tuple(
            (name, content_of(node.value)) for name, node in zip(lacking, hashes.nodes, strict=True) if node is not None
        )
    )


def forget_covered(replica: Replica, epoch: fx.Epoch, loaded: Loaded) -> fx.Procedure[bool]:
    """Step 6: take back the registration of parts that another registered part covers; False when it must be done again."""
    for first in range(0, len(loaded.covered), FORGET_BATCH):
        names = loaded.covered[first : first + FORGET_BATCH]
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch),
            *(fx.Delete(layout.part(replica, name), fx.ANY_VERSION) for name in names),
        )
        if not isinstance(committed, fx.Applied):
            return False
    return True
