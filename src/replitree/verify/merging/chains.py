"""Chains of parts that borrow: a mutation leaves a part as it is, or writes some of its files and keeps the others.

Of the former all have the same objects.  The latter have a share of their own, and those of all parts before them.

Whoever was away has only some of the chain, such as its last part.  Parts leave a replica in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from replitree.protocol import layout, sharing
from replitree.protocol.effects import (
    ANY_VERSION,
    Check,
    Children,
    Commit,
    Delete,
    Epoch,
    FindPart,
    Link,
    Made,
    Mutate,
    Procedure,
    Publish,
    RemovePart,
    RemoveStaging,
    StagingId,
)
from replitree.protocol.layout import Replica
from replitree.protocol.making import staged_result
from replitree.protocol.parts import parse_part
from replitree.protocol.registration import deregister, finish, register
from replitree.verify.life import Then
from replitree.verify.shared_tables import tasks as shared
from replitree.verify.shared_tables.tasks import CONTENT, replica_of, sharer_of

CHAIN = ("all_0_0_0", "all_0_0_0_1", "all_0_0_0_2")
"""A part, and what two mutations made of it."""

Task: TypeAlias = Generator[Any, Any, Then | None]


@dataclass(frozen=True, slots=True)
class Choose:
    """Outcome: one of these; which one nobody can say."""

    options: tuple[str, ...]


def mutate(name: str) -> Task:
    """Give the part its mutated names, one after the other; each commit takes the part before back."""
    return _mutate_each(name, CHAIN, Link)


def rewrite(name: str, chain: tuple[str, ...]) -> Task:
    """Write a file of the part anew, and one of the result, and so on; each commit takes the part before back."""
    return _mutate_each(name, chain, lambda staging, source, result: Mutate(staging, source, result, "", 1))


Make: TypeAlias = Callable[[StagingId, str, str], Link | Mutate]


def _mutate_each(name: str, chain: tuple[str, ...], make: Make) -> Task:
    epoch = yield from shared.begin(name)
    if epoch is None:
        return None
    for source, result in pairwise(chain):
        if source in ((yield Children(layout.parts(replica_of(name)))) or ()):
            yield from sharing.with_shares(sharer_of(name), _mutate(replica_of(name), epoch, source, result, make))
    return None


def _mutate(replica: Replica, epoch: Epoch, source: str, result: str, make: Make) -> Procedure[None]:
    part, staging = parse_part(result), staged_result(parse_part(result))
    if (yield FindPart(result)) is None:
        made = yield make(staging, source, result)
        if not isinstance(made, Made):  # the store did not take it
            yield RemoveStaging(staging)
            return
        yield Publish(staging, ((part.partition, result),))
    operations = (register(replica, part, CONTENT), deregister(replica, parse_part(source)))
    yield from finish(replica, epoch, (), operations, (part,), (parse_part(source),))


def leave_all(name: str, chain: tuple[str, ...] = CHAIN) -> Task:
    """Begin a process, and let all parts of the chain leave, in any order."""
    epoch = yield from shared.begin(name)
    return None if epoch is None else Then(leave_one, (name, epoch, chain))


def leave_one(name: str, epoch: Epoch, left: tuple[str, ...]) -> Task:
    """Let one part leave, and go on with the others."""
    if not left:
        return None
    part: str = (yield Choose(left)) if len(left) > 1 else left[0]
    replica = replica_of(name)
    if part in ((yield Children(layout.parts(replica))) or ()):
        yield Commit(Check(layout.host(replica), epoch), Delete(layout.part(replica, part), ANY_VERSION))
    if (yield FindPart(part)) is not None:
        yield RemovePart(part)
        yield from shared.let_go(name, epoch)
    return Then(leave_one, (name, epoch, tuple(each for each in left if each != part)))


__all__ = ["CHAIN", "Choose", "leave_all", "leave_one", "mutate", "rewrite"]
