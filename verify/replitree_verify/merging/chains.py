"""Chains of parts that borrow: a mutation leaves a part as it is, or writes some of its files and keeps the others.

Of the former all have the same objects.  The latter have a share of their own, and those of all parts before them.

A replica that was away has only some of the chain, such as its last part.  Parts leave a replica in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree.protocol.execute.making import staged_result
from replitree.protocol.program.stages import Then
from replitree.protocol.shares import sharing
from replitree.protocol.state.registration import deregister, finish, register
from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.replicas import let_go
from replitree_verify.shared_tables.world import CONTENT, replica_of, sharer_of

CHAIN = ("all_0_0_0", "all_0_0_0_1", "all_0_0_0_2")
"""A part, and what two mutations made of it."""

Task: TypeAlias = Generator[Any, Any, Then | None]


@dataclass(frozen=True, slots=True)
class Choose:
    """Outcome: one of these; any of them."""

    options: tuple[str, ...]


def mutate(name: str) -> Task:
    """Give the part its mutated names, one after the other; each commit takes the part before back."""
    return _mutate_each(name, CHAIN, lambda staging, source, result: fx.Link(staging, source, result, for_all=True))


def rewrite(name: str, chain: tuple[str, ...]) -> Task:
    """Write a file of the part anew, and one of the result, and so on; each commit takes the part before back."""
    return _mutate_each(
        name, chain, lambda staging, source, result: fx.Mutate(staging, source, result, "", 1, for_all=True)
    )


Make: TypeAlias = Callable[[fx.StagingId, str, str], fx.Link | fx.Mutate]


def _mutate_each(name: str, chain: tuple[str, ...], make: Make) -> Task:
    epoch = yield AwaitActive()
    for source, result in pairwise(chain):
        if source in ((yield fx.Children(layout.parts(replica_of(name)))) or ()):
            yield from sharing.with_shares(sharer_of(name), _mutate(replica_of(name), epoch, source, result, make))
    return None


def _mutate(replica: Replica, epoch: fx.Epoch, source: str, result: str, make: Make) -> fx.Procedure[None]:
    part, staging = parse_part(result), staged_result(parse_part(result))
    if (yield fx.FindPart(result)) is None:
        made = yield make(staging, source, result)
        if not isinstance(made, fx.Made):  # the store did not take it
            yield fx.RemoveStaging(staging)
            return
        yield fx.Publish(staging, ((part.partition, result),))
    operations = (register(replica, part, CONTENT), deregister(replica, parse_part(source)))
    yield from finish(replica, epoch, (), operations, (part,), (parse_part(source),))


def leave_all(name: str, chain: tuple[str, ...] = CHAIN) -> Task:
    """Begin a process, and let all parts of the chain leave, in any order."""
    epoch = yield AwaitActive()
    return Then(leave_one, (name, epoch, chain))


def leave_one(name: str, epoch: fx.Epoch, left: tuple[str, ...]) -> Task:
    """Let one part leave, and go on with the others."""
    if not left:
        return None
    part: str = (yield Choose(left)) if len(left) > 1 else left[0]
    replica = replica_of(name)
    if part in ((yield fx.Children(layout.parts(replica))) or ()):
        yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Delete(layout.part(replica, part), fx.ANY_VERSION))
    if (yield fx.FindPart(part)) is not None:
        yield fx.RemovePart(part)
        yield from let_go(name, epoch)
    return Then(leave_one, (name, epoch, tuple(each for each in left if each != part)))


__all__ = ["CHAIN", "Choose", "leave_all", "leave_one", "mutate", "rewrite"]
