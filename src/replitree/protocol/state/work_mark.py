"""Work marks: of the replicas that could all make a result, one does it, and the others become owners of it.

A result that goes into an object store need be written only once.  The replica that begins takes its *work mark*, an ephemeral
node with the name of the result.  A replica that finds it taken watches it, and looks again when it is gone:

===========================  ==================================================================================================
the result is registered     take it over: the commit that registered it has ended the mark
it is not                    its maker has failed, or that session has ended: take the mark, and make the result
===========================  ==================================================================================================

A mark only saves work: no commit that registers a part proves that there is one, and no replica deletes anything because there
is none.  So two replicas may make the same result, as when one is paused for longer than its session lasts.  Then
``results/<part>`` decides as always (`protocol.execute.making`), and the later replica discards its own.

Other replicas would wait for a mark without work until its session ends.  So the commit that registers the result ends it; in
every other case its owner gives it up; and `give_up_left` finds a mark that was left because coordination did not answer or a
request was late.

Source: design 3.1 and 6 (``zero_copy_s3/merged``); ``spec/zero_copy.md`` 1.9, scenarios 16 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.values import text_of
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Fenced

ATTEMPTS_MAX = 8
"""How often a mark is asked for again because what was found has just changed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The mark is this replica's: it makes the result."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Another replica has registered the result."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another replica makes it; the mark is watched."""

    replica: str


@dataclass(frozen=True, slots=True)
class MarkUnsettled:
    """It could not be found out who makes it: try again later."""


Took: TypeAlias = Taken | Registered | HeldBy | MarkUnsettled | Fenced


def take(sharer: Sharer, epoch: fx.Epoch, result: str, *, anew: bool = False) -> fx.Procedure[Took]:
    """Take the work mark of a result, if no replica makes it or has made it.

    Parameters
    ----------
    sharer, epoch
        The replica that would make it, and its epoch.
    result
        Name of the part.
    anew
        Also if a replica has registered it, because none can send it.
    """
    table = sharer.replica.table
    path, made = layout.merged(table, result), layout.result(table, result)
    proof, create = fx.Check(layout.host(sharer.replica), epoch), fx.Create(path, sharer.signature, ephemeral=True)
    unmade: tuple[fx.Operation, ...] = () if anew else (fx.Create(made), fx.Delete(made, fx.ANY_VERSION))
    earlier: tuple[fx.Operation, ...] = ()
    for _ in range(ATTEMPTS_MAX):
        outcome = yield fx.Commit(proof, *unmade, *earlier, create)
        match outcome:
            case fx.Applied():
                return Taken()
            case fx.Unknown():
                return MarkUnsettled()
            case fx.Refused(operation=fx.Check()):
                return Fenced()
            case fx.Refused(operation=fx.Create(path=which)) if which == made:
                return Registered()
            case fx.Refused(reason=fx.Reason.NO_NODE, operation=fx.Create()):
                # The table was created by a version without work marks.
                yield fx.Commit(fx.Create(layout.all_merged(table)))
                continue
        holder = yield from _holder(path)
        if holder is not None and holder != sharer.signature:
            return HeldBy(text_of(holder.partition(b"~")[0], path))
        # The mark is this replica's own, of a session that may be ending.
        earlier = () if holder is None else (fx.Delete(path, fx.ANY_VERSION),)
    return MarkUnsettled()


def other_maker(sharer: Sharer, result: str) -> fx.Procedure[str | None]:
    """Return the other replica that makes a result now, and watch its mark; None when there is none."""
    path = layout.merged(sharer.replica.table, result)
    holder = yield from _holder(path)
    return None if holder is None or holder == sharer.signature else text_of(holder.partition(b"~")[0], path)


def _holder(path: str) -> fx.Procedure[bytes | None]:
    """Return the value of a mark and watch it; None when it has just gone."""
    many: fx.Many = yield fx.GetMany((path,), watch=path)
    node = many.nodes[0] if many.watched else None
    return None if node is None else node.value


def give_up(sharer: Sharer, epoch: fx.Epoch, result: str) -> fx.Procedure[bool]:
    """Give up the work mark of a result if it is this replica's; False: it may still be there."""
    path = layout.merged(sharer.replica.table, result)
    node = yield fx.Get(path)
    if node is None or node.value != sharer.signature:
        return True
    outcome = yield fx.Commit(fx.Check(layout.host(sharer.replica), epoch), fx.Delete(path, node.version))
    return not isinstance(outcome, fx.Unknown)


def give_up_left(sharer: Sharer, epoch: fx.Epoch) -> fx.Procedure[int]:
    """Give up the work marks of this replica under which it makes nothing now; return how many."""
    table = sharer.replica.table
    names: tuple[str, ...] = (yield fx.Children(layout.all_merged(table))) or ()
    many: fx.Many = (yield fx.GetMany(tuple(layout.merged(table, name) for name in names))) if names else fx.Many(())
    marks = zip(names, many.nodes, strict=True)
    mine = tuple(name for name, node in marks if node is not None and node.value == sharer.signature)
    # This is asked after the marks were read, so a result that was begun since has no mark among them.
    working: tuple[str, ...] = (yield fx.ResultsInWork()) if mine else ()
    given_up = 0
    for name in mine:
        if name not in working:
            given_up += yield from give_up(sharer, epoch, name)
    return given_up


__all__ = ["HeldBy", "MarkUnsettled", "Registered", "Taken", "Took", "give_up", "give_up_left", "other_maker", "take"]
