"""What a process of a model does, and what it answers to the shipped procedures about its disk.

The stages of the life thread activate a replica, as far as `Opened`; then `settle` does what they do to its shares.  A process
that is active does its tasks.  After a crash, or after trouble, the replica is activated again, and does the task that was not
done.  It knows what is done from coordination alone: from its registration.

Inserts and entries of the log are shortened to what they stage and register, which runs through `with_shares`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.run import translate
from replitree.protocol.program import life, life_in_store
from replitree.protocol.program.stages import CurrentSharer, Stage, Then
from replitree.protocol.shares import share, sharing
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import (
    ForgetParts,
    HasPart,
    NameShares,
    PutShares,
    SharedPart,
    Sharer,
    SharesOf,
    SharesSettled,
)
from replitree_verify.sharing.checking import Keep
from replitree_verify.sharing.world import INCARNATION, TABLE, shares_in
from replitree_verify.world.objects import PutObjects

_T = TypeVar("_T")
Running = Generator[Any, Any, _T]


@dataclass(frozen=True, slots=True)
class Process:
    """What a process knows by itself.

    Attributes
    ----------
    replica, epoch
        Whose process it is, and under which epoch it works.
    parts
        What it has staged, or taken over.
    named
        The shares that it gives to what it stages, and puts.
    """

    replica: Replica
    epoch: fx.Epoch
    parts: tuple[SharedPart, ...] = ()
    named: tuple[ShareId, ...] = ()

    @property
    def sharer(self) -> Sharer:
        """Who it is to coordination."""
        return Sharer(self.replica, INCARNATION)

    def run(self, procedure: fx.Procedure[_T]) -> Running[_T]:
        """Run a shipped procedure, and answer what it asks of process and disk."""
        return translate(procedure, self._answer)

    def _answer(self, effect: Any) -> Running[Any]:
        match effect:
            case fx.Stage():
                for each in self.parts:
                    yield Keep(self.replica, each.part, each.share)
                return fx.Staged(())
            case NameShares():
                return self.named
            case PutShares():
                return (yield PutObjects(*self.named))
            case SharesOf(parts):
                return tuple(each for each in self.parts if each.part in parts)
            case HasPart():
                return False
            case SharesSettled() | ForgetParts():
                return None
        return (yield effect)

    def insert(self, part: str) -> Running[Any]:
        """Stage and register a part, as the procedures of a local table do, and keep its shares."""
        return self.run(sharing.with_shares(self.sharer, _insert(self, part)))

    def take_over(self, part: str) -> Running[fx.Committed]:
        """Register a part of which another replica has told the shares, and own them."""
        return self.run(sharing.with_shares(self.sharer, _register(self, part)))


def _insert(process: Process, part: str) -> fx.Procedure[Any]:
    staged = yield fx.Stage(fx.StagingId("s"), ())
    return (yield from _register(process, part)) if isinstance(staged, fx.Staged) else staged


def _register(process: Process, part: str) -> fx.Procedure[fx.Committed]:
    value = " ".join(each.share for each in process.parts).encode()
    outcome: fx.Committed = yield fx.Commit(
        fx.Check(layout.host(process.replica), process.epoch), fx.Create(layout.part(process.replica, part), value)
    )
    return outcome


def new_share(part: str, name: str, attempt: int) -> ShareId:
    """Return the name of a share that an attempt of a replica writes."""
    return ShareId(f"{part}-{name}-{attempt}")


def told_parts(part: str, value: bytes) -> tuple[SharedPart, ...]:
    """Return the shares of a part that another registration names."""
    return tuple(SharedPart(part, each, is_new=False) for each in shares_in(value))


def settle(replica: Replica, me: bytes) -> Stage:
    """Settle the shares that earlier processes have left: the end of an activation."""
    epoch: fx.Epoch = yield fx.CurrentEpoch()
    sharer: Sharer = yield CurrentSharer()
    if not (yield from life_in_store.settle_shares(sharer, epoch)):
        return Then(life.become_active, (replica, me))
    return None


def is_trouble(replica: Replica, outcome: Any) -> bool:
    """Whether a process needs a new epoch after a commit: the outcome is unknown, or its epoch is not the last one."""
    match outcome:
        case fx.Refused(operation=fx.Check(path=path)):
            return path == layout.host(replica)
    return isinstance(outcome, fx.Unknown)


def clean() -> Running[None]:
    """Work the garbage off."""
    yield from share.work_off(TABLE)


__all__ = [
    "Process",
    "Running",
    "clean",
    "is_trouble",
    "new_share",
    "settle",
    "told_parts",
]
