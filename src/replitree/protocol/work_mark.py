"""Work marks: of the replicas that could all make a result, one does it, and the others own what it has made.

A result that goes into an object store need be written once.  Who begins takes its *work mark*, an ephemeral node with the name
of the result; who finds it taken waits, watches it, and looks again when it is gone:

===========================  ==================================================================================================
the result is registered     take it over: the commit that registered it has ended the mark
it is not                    whoever made it has failed, or its session has ended: take the mark, and make it
===========================  ==================================================================================================

A mark saves work, and does nothing else: no commit that registers something proves that there is one, and nobody deletes
anything because there is none.  So two replicas may make the same result, such as when one is paused for longer than its
session lasts.  Then ``results/<part>`` decides as ever (`protocol.making`), and who comes later discards what it has made.

A mark that nobody works under would be waited for until its session ends.  So it ends with the commit that registers the
result; in every other case who took it gives it up; and what was left all the same, because coordination did not answer or
because a request was late, `give_up_left` finds.

Source: design 3.1 and 6 (``zero_copy_s3/merged``); ``spec/zero_copy.md`` 1.9, scenarios 16 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Epoch,
    Get,
    GetMany,
    Many,
    Operation,
    Procedure,
    Reason,
    Refused,
    ResultsInWork,
    Unknown,
)
from replitree.protocol.pull import Fenced
from replitree.protocol.share_effects import Sharer

ATTEMPTS_MAX = 8
"""How often a mark is asked for again because what was found has just changed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The mark is this replica's: it makes the result."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Somebody has registered the result."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another replica makes it; the mark is watched."""

    replica: str


@dataclass(frozen=True, slots=True)
class Unsettled:
    """It could not be found out who makes it: try again later."""


Took: TypeAlias = Taken | Registered | HeldBy | Unsettled | Fenced


def take(sharer: Sharer, epoch: Epoch, result: str, *, anew: bool = False) -> Procedure[Took]:
    """Take the work mark of a result, if nobody makes it and nobody has made it.

    Parameters
    ----------
    sharer, epoch
        Who would make it.
    result
        Name of the part.
    anew
        Also when somebody has registered it: nobody can send it.
    """
    table = sharer.replica.table
    path, made = layout.merged(table, result), layout.result(table, result)
    proof, create = Check(layout.host(sharer.replica), epoch), Create(path, sharer.signature, ephemeral=True)
    unmade: tuple[Operation, ...] = () if anew else (Create(made), Delete(made, ANY_VERSION))
    earlier: tuple[Operation, ...] = ()
    for _ in range(ATTEMPTS_MAX):
        outcome = yield Commit(proof, *unmade, *earlier, create)
        match outcome:
            case Applied():
                return Taken()
            case Unknown():
                return Unsettled()
            case Refused(operation=Check()):
                return Fenced()
            case Refused(operation=Create(path=which)) if which == made:
                return Registered()
            case Refused(reason=Reason.NO_NODE, operation=Create()):  # the table is older than work marks
                yield Commit(Create(layout.all_merged(table)))
                continue
        holder = yield from _holder(path)
        if holder is not None and holder != sharer.signature:
            return HeldBy(holder.partition(b"~")[0].decode())
        earlier = () if holder is None else (Delete(path, ANY_VERSION),)  # mine, of a session that may be ending
    return Unsettled()


def other_maker(sharer: Sharer, result: str) -> Procedure[str | None]:
    """Return the other replica that makes a result now, and watch its mark; None when there is none."""
    holder = yield from _holder(layout.merged(sharer.replica.table, result))
    return None if holder is None or holder == sharer.signature else holder.partition(b"~")[0].decode()


def _holder(path: str) -> Procedure[bytes | None]:
    """Return the value of a mark and watch it; None when it has just gone."""
    many: Many = yield GetMany((path,), watch=path)
    node = many.nodes[0] if many.watched else None
    return None if node is None else node.value


def give_up(sharer: Sharer, epoch: Epoch, result: str) -> Procedure[bool]:
    """Give up the work mark of a result if it is this replica's; False: it may still be there."""
    path = layout.merged(sharer.replica.table, result)
    node = yield Get(path)
    if node is None or node.value != sharer.signature:
        return True
    outcome = yield Commit(Check(layout.host(sharer.replica), epoch), Delete(path, node.version))
    return not isinstance(outcome, Unknown)


def give_up_left(sharer: Sharer, epoch: Epoch) -> Procedure[int]:
    """Give up the work marks of this replica under which it makes nothing now; return how many.

    Which results it makes is asked after the marks were read: what was begun since is not among them.
    """
    table = sharer.replica.table
    names: tuple[str, ...] = (yield Children(layout.all_merged(table))) or ()
    many: Many = (yield GetMany(tuple(layout.merged(table, name) for name in names))) if names else Many(())
    marks = zip(names, many.nodes, strict=True)
    mine = tuple(name for name, node in marks if node is not None and node.value == sharer.signature)
    working: tuple[str, ...] = (yield ResultsInWork()) if mine else ()
    given_up = 0
    for name in mine:
        if name not in working:
            given_up += yield from give_up(sharer, epoch, name)
    return given_up


__all__ = ["HeldBy", "Registered", "Taken", "Took", "Unsettled", "give_up", "give_up_left", "other_maker", "take"]
