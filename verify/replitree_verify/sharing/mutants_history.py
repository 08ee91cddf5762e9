"""More bugs that shared storage has had elsewhere: what each did, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares import share
from replitree.protocol.shares.share import (
    DeleteObjects,
    LetGo,
    NotOwned,
    Owned,
    Owning,
    PutObjects,
    ShareId,
    ShareOwner,
    Sharing,
)
from replitree_verify.engine.small_search import Mutant

_TAKE_OVER = share.take_over

Shares = tuple[ShareId, ...]
Operations = tuple[fx.Operation, ...]


def _deletes_what_it_could_not_take(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    """Tidy up after a take-over that failed, with the objects."""
    outcome = yield from _TAKE_OVER(owner, shares, register)
    if isinstance(outcome, NotOwned):
        for each in shares:
            yield DeleteObjects(each)
    return outcome


def _ephemeral_marks(owner: ShareOwner, shares: Shares) -> Iterator[fx.Operation]:
    for each in shares:
        yield fx.Create(owner.mark(each), ephemeral=True)


# --- a number of owners, beside the marks -------------------------------------------------------------------------------------


def _writes_a_number(owner: ShareOwner, own: ShareId, _borrowed: Shares, register: Operations) -> Sharing[Owning]:
    yield PutObjects(own)
    place = layout.share(owner.replica.table, own)
    outcome = yield fx.Commit(owner.proof, fx.Create(place, b"1"), fx.Create(owner.mark(own)), *register)
    return _owning(outcome)


def _adds_one(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    place = layout.share(owner.replica.table, shares[0])
    node = yield fx.Get(place)
    if node is None:
        return NotOwned("it is gone")
    more = fx.Set(place, b"%d" % (int(node.value) + 1), node.version)
    return _owning((yield fx.Commit(owner.proof, more, fx.Create(owner.mark(shares[0])), *register)))


def _owning(outcome: Any) -> Owning:
    if isinstance(outcome, fx.Applied):
        return Owned()
    return NotOwned("refused") if isinstance(outcome, fx.Refused) else fx.InDoubt()


def _takes_one_off(owner: ShareOwner, shares: Shares, deregister: Operations) -> Sharing[LetGo | NotOwned | fx.InDoubt]:
    """Take one off in one commit and leave in the next; who comes to none deletes the objects."""
    own, table = shares[0], owner.replica.table
    node = yield fx.Get(layout.share(table, own))
    if node is None:
        return NotOwned("it is gone")
    left = int(node.value) - 1
    fewer = yield fx.Commit(owner.proof, fx.Set(layout.share(table, own), b"%d" % left, node.version))
    if not isinstance(fewer, fx.Applied):
        return fx.InDoubt()
    mark = fx.Delete(owner.mark(own), fx.ANY_VERSION)
    if left > 0:
        outcome = yield fx.Commit(owner.proof, mark, *deregister)
        return LetGo(()) if isinstance(outcome, fx.Applied) else fx.InDoubt()
    gone = fx.Delete(layout.share(table, own), fx.ANY_VERSION), fx.Create(layout.garbage(table, own))
    outcome = yield fx.Commit(owner.proof, mark, *gone, *deregister)
    if isinstance(outcome, fx.Refused):
        yield DeleteObjects(own)
    return LetGo((own,)) if isinstance(outcome, fx.Applied) else fx.InDoubt()


# --- a mark that stands for nothing -------------------------------------------------------------------------------------------


def _does_not_look(owner: ShareOwner, shares: Shares, register: Operations) -> Sharing[Owning]:
    """Register a part whose share can't be marked any more, without marks."""
    outcome = yield from _TAKE_OVER(owner, shares, register)
    if isinstance(outcome, NotOwned):
        return _owning((yield fx.Commit(fx.Check(layout.host(owner.replica), owner.epoch), *register)))
    return outcome


HISTORY_MUTANTS = (
    Mutant(
        "failed-take-over-deletes",
        "a take-over that failed, because the store did not answer, removes what it was to take over, with the objects",
        "share_store",
        "THERE",
        {(share, "take_over"): _deletes_what_it_could_not_take},
    ),
    Mutant(
        "mark-is-ephemeral",
        "a mark that stands for a registered part ends with the session of who made it",
        "share_crash",
        "MARKED",
        {(share, "_marks"): _ephemeral_marks},
    ),
    Mutant(
        "owners-in-a-number",
        "owners are counted in a number that is changed apart from the registration: a crash in between counts one twice",
        "share_crash",
        "THERE",
        {
            (share, "write_share"): _writes_a_number,
            (share, "take_over"): _adds_one,
            (share, "let_go"): _takes_one_off,
        },
    ),
    Mutant(
        "marks-are-optional",
        "what can't be marked is registered all the same: its objects are a corpse",
        "share_two",
        "MARKED",
        {(share, "take_over"): _does_not_look},
    ),
)

__all__ = ["HISTORY_MUTANTS"]
