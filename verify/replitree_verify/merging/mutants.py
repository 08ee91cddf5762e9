"""Broken rules of merges in an object store; each must be found by name.

*Guards behind each other.*  A mark that its maker keeps is given up when the replica looks for such marks.  So the mutant of a
kept mark leaves out both; and the one that leaves out that look alone needs a mark that came late.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.execute import make_once, making, merge
from replitree.protocol.execute.making import Beaten, Making
from replitree.protocol.shares import letting_go, owning, sharing
from replitree.protocol.shares.share import DeleteObjects, ShareId
from replitree.protocol.shares.share_effects import SharedPart, Sharer, SharesOf
from replitree.protocol.state import work_mark
from replitree.protocol.state.registration import View
from replitree_verify.engine.small_search import Mutant
from replitree_verify.merging.world import DONE

_BRING_OWN, _PUBLISH_RESULT, _FETCH_RESULT = making.bring_own, making.publish_result, making.fetch_result
_LET_GO_OF = letting_go.let_go_of
_TAKE, _OWNING = work_mark.take, owning._owning  # noqa: SLF001 - what is broken here

_Any = Generator[Any, Any, Any]


# --- the mark -----------------------------------------------------------------------------------------------------------------


def _keeps(_sharer: Sharer, _epoch: fx.Epoch, _result: str) -> _Any:
    yield from ()
    return True


def _looks_for_none(_sharer: Sharer, _epoch: fx.Epoch) -> _Any:
    yield from ()
    return 0


def _watches_the_result(path: str) -> _Any:
    """Watch the node of the result instead of the mark's."""
    many = yield fx.GetMany((path,), watch=DONE)
    return None if many.nodes[0] is None else many.nodes[0].value


def _takes_no_mark(_sharer: Sharer, _epoch: fx.Epoch, _result: str, *, anew: bool = False) -> _Any:
    del anew
    yield from ()
    return work_mark.Taken()


def _takes_for_good(sharer: Sharer, epoch: fx.Epoch, result: str, *, anew: bool = False) -> _Any:
    """Take a mark that outlives its session."""
    yield fx.Commit(fx.Create(layout.merged(sharer.replica.table, result), sharer.signature))
    return (yield from _TAKE(sharer, epoch, result, anew=anew))


# --- the result ---------------------------------------------------------------------------------------------------------------


def _registers_anyway(
    made_of: Making,
    staging: fx.StagingId,
    content: str,
    *,
    published: bool,
    marked: bool = False,
    for_all: bool = False,
) -> _Any:
    """Register one's own copy, too, if it is the same."""
    del for_all
    return (yield from _PUBLISH_RESULT(made_of, staging, content, published=published, marked=marked))


def _compares_nothing(
    made_of: Making,
    staging: fx.StagingId,
    content: str,
    *,
    published: bool,
    marked: bool = False,
    for_all: bool = False,
) -> _Any:
    """Register what was made, whatever another replica has registered."""
    first = yield fx.Get(layout.result(made_of.replica.table, made_of.result.name))
    if first is None:
        return (
            yield from _PUBLISH_RESULT(made_of, staging, content, published=published, marked=marked, for_all=for_all)
        )
    as_first = first.value.decode()
    return (yield from _PUBLISH_RESULT(made_of, staging, as_first, published=published, marked=marked))


def _looks_only_before(
    made_of: Making,
    staging: fx.StagingId,
    content: str,
    *,
    published: bool,
    marked: bool = False,
    for_all: bool = False,
) -> _Any:
    """Register what an earlier try has published unless another replica was faster before this commit began."""
    if published and for_all:
        for_all = (yield fx.Get(layout.result(made_of.replica.table, made_of.result.name))) is not None
    return (yield from _PUBLISH_RESULT(made_of, staging, content, published=published, marked=marked, for_all=for_all))


def _discards_the_other(made_of: Making, view: View, sharer: Sharer, staging: fx.StagingId, made: fx.Made) -> _Any:
    """Delete the objects of the result that was taken over: it is the second copy."""
    outcome = yield from _PUBLISH_RESULT(
        made_of, staging, made.content_hash, published=False, marked=True, for_all=True
    )
    if not isinstance(outcome, Beaten):
        return outcome
    fetched = yield from _FETCH_RESULT(made_of, view, later=True)
    for part in (yield SharesOf((made_of.result.name,))):
        yield DeleteObjects(part.share)
    yield from work_mark.give_up(sharer, made_of.epoch, made_of.result.name)
    return fetched


def _makes_its_own(made_of: Making, view: View) -> _Any:
    return (yield from _BRING_OWN(made_of, replace(view, sharer=None)))


def _needs_all(_making: Making, _sharer: Sharer) -> _Any:
    yield from ()
    return False


def _deletes_what_has_left(sharer: Sharer, epoch: fx.Epoch, part: str, share: ShareId) -> _Any:
    yield DeleteObjects(share)
    return (yield from _LET_GO_OF(sharer, epoch, part, share))


def _marks_no_borrowed(sharer: Sharer, part: SharedPart, standing: Any) -> tuple[fx.Operation, ...]:
    return _OWNING(sharer, part, standing) if part.is_new else ()


def _puts_whatever_is_staged(sharer: Sharer, effect: fx.Stage | fx.Merge | fx.Mutate | fx.Link) -> _Any:
    outcome = yield effect
    if not isinstance(outcome, fx.Staged | fx.Made):
        return outcome
    return (yield from sharing._put(sharer, effect.staging)) or outcome  # noqa: SLF001


MUTANTS = (
    Mutant(
        "own-result-put",
        "a replica that makes a result for itself puts it into the store, because new parts belong there by now",
        "shared_merge_switched",
        "ONE",
        {(sharing, "_staged"): _puts_whatever_is_staged},
    ),
    Mutant(
        "mark-kept",
        "a replica that could not make the result keeps its mark, and none looks for such marks",
        "shared_merge_paused",
        "STUCK",
        {(make_once, "give_up"): _keeps, (work_mark, "give_up_left"): _looks_for_none},
    ),
    Mutant(
        "late-mark-kept",
        "a mark that came late stays",
        "shared_merge_paused_doubt",
        "STUCK",
        {(work_mark, "give_up_left"): _looks_for_none},
    ),
    Mutant(
        "waits-for-the-result",
        "who finds a mark waits for the result, whatever becomes of the mark",
        "shared_merge_paused",
        "STUCK",
        {(work_mark, "_holder"): _watches_the_result},
    ),
    Mutant(
        "mark-is-persistent",
        "a mark does not end with its session",
        "shared_merge_expiry",
        "DONE",
        {(make_once, "take"): _takes_for_good},
    ),
    Mutant(
        "no-mark",
        "no replica takes a mark, and both register what they made",
        "shared_merge_once",
        "ONE",
        {(make_once, "take"): _takes_no_mark, (make_once, "publish_result"): _registers_anyway},
    ),
    Mutant(
        "everybody-makes",
        "every replica makes its own, as on local disks",
        "shared_merge_once",
        "ONE",
        {(merge, "bring"): _makes_its_own},
    ),
    Mutant(
        "second-copy-kept",
        "who comes later registers its own copy, since it is the same",
        "shared_merge_expiry",
        "ONE",
        {(make_once, "publish_result"): _registers_anyway},
    ),
    Mutant(
        "not-compared",
        "who comes later registers its own copy, and compares nothing",
        "shared_merge_differs",
        "SAME",
        {(make_once, "publish_result"): _compares_nothing},
    ),
    Mutant(
        "other-discarded",
        "who comes later deletes the objects of the other one",
        "shared_merge_expiry",
        "WHOLE",
        {(make_once, "_publish"): _discards_the_other},
    ),
    Mutant(
        "twin-kept",
        "what a killed process had published is registered beside what another replica has made since",
        "shared_merge_killed",
        "ONE",
        {(make_once, "_is_not_needed"): _needs_all},
    ),
    Mutant(
        "faster-overlooked",
        "what an earlier try has published is registered beside what another replica registers just before",
        "shared_merge_doubt",
        "ONE",
        {(make_once, "publish_result"): _looks_only_before},
    ),
    Mutant(
        "borrowed-unmarked",
        "a part that a mutation left as it is has no mark: the objects go with its source",
        "borrow_chain",
        "MARKED",
        {(owning, "_owning"): _marks_no_borrowed},
    ),
    Mutant(
        "result-unmarked-in-part",
        "a part that has files of its source marks what was written for it only",
        "borrow_files_twice",
        "MARKED",
        {(owning, "_owning"): _marks_no_borrowed},
    ),
    Mutant(
        "source-discarded",
        "who has written a file anew deletes the objects of the source, which has left its disk",
        "borrow_files_twice",
        "WHOLE",
        {(letting_go, "let_go_of"): _deletes_what_has_left},
    ),
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)


__all__ = ["MUTANTS", "find_mutant"]
