"""What the mender of a table on an object store does more than that of a table on local disks.

What was fetched again is owned before it is shown, as in `replica.table.mending`.  All other threads run the replica's own
stages (`protocol.program`), through `sharing.with_shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from replitree.protocol.core.effects import FindPart
from replitree.protocol.core.layout import Replica
from replitree.protocol.program import stages
from replitree.protocol.program.stages import Stage, Then
from replitree.protocol.shares import owning
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.fetch import refetch
from replitree_verify.process import threads
from replitree_verify.process.threads import AwaitLack, Mended

STORE_ID = "the store"

# --- effects on the process ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AsHeld:
    """Forget which parts are lacking that are not held any more.  Outcome: those of these that are left."""

    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ListDetached:
    """Outcome: the shares in which rows of detached parts lie."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait a while, until the same is tried again.  Outcome: None."""


ON_PROCESS = (stages.Opened, stages.CurrentSharer, AsHeld, ListDetached)
"""Effects that take no time."""


def mend_next(replica: Replica) -> Stage:
    """Fetch again what is registered and not whole on disk, and own it before it is shown."""
    wanted: tuple[tuple[str, str], ...] = yield AwaitLack()
    wanted = yield AsHeld(wanted)
    lacking: list[tuple[str, str]] = []
    for name, content in wanted:
        if (yield FindPart(name)) != content:
            lacking.append((name, content))
    still = (yield from refetch(replica, tuple(lacking))) if lacking else ()
    whole = tuple(name for name, _ in wanted if name not in still)
    sharer: Sharer = yield stages.CurrentSharer()
    gone = (yield from owning.own_again(sharer, whole)) if whole else ()
    yield Mended(tuple(name for name in whole if name not in gone))
    if still or gone:
        yield Rest()
    return Then(threads.mend_next, (replica,))


STAGES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {each.__name__: each for each in (mend_next,)}
"""What stands in for the stages of `life` and `longlife`, by their names."""


__all__ = ["ON_PROCESS", "STAGES", "STORE_ID", "AsHeld", "ListDetached", "Rest"]
