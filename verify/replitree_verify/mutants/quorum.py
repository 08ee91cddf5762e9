"""The mutants of inserts with a quorum: who counts, who answers, who gives up, and what others do with open inserts."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import fold, layout
from replitree.protocol.core.entries import FailEntry, GetEntry, quorum_of
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part
from replitree.protocol.execute import drop, execute
from replitree.protocol.execute.drop import must_wait
from replitree.protocol.insert import quorum
from replitree.protocol.insert.quorum import Awaited, QuorumEnded
from replitree.protocol.membership import table
from replitree.protocol.program import life, puller, quorum_waiter
from replitree.protocol.program.stages import AwaitDecided, AwaitPull, QuorumTurn, Stage, TakeIn, Then
from replitree.protocol.state import counted
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import View
from replitree.protocol.upkeep import clean_log, lost
from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations.changes import Asked, Change
from replitree_verify.mutations.stages import leaving_out, with_change, with_others
from replitree_verify.mutations.table import Patches

_FOLDING = ("pull_next", "catch_up_with_log", "reload_state", "tidy_up")
_COUNTING = ("execute_next", "tidy_up", "reload_state")
_GIVING_UP = ("await_quorum", "give_up_open")


# --- counting -----------------------------------------------------------------------------------------------------------------


def _is_node_deleted(operation: fx.Operation, commit: fx.Commit) -> bool:
    del commit
    return isinstance(operation, fx.Delete) and "/quorum/status/" in operation.path


def counting_unversioned(*_: Any) -> Change:
    """Count oneself whatever the others have done."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            kept = (
                replace(each, version=fx.ANY_VERSION)
                if isinstance(each, fx.Set) and "/quorum/status/" in each.path
                else each
                for each in effect.operations
            )
            effect = fx.Commit(*kept)
        return (yield effect)

    return change


def _counting_at_pull(replica: Replica, count: int) -> Change:
    """Count oneself as soon as an entry is pulled."""
    del count
    epoch = fx.Epoch(0)

    def change(effect: Any) -> Asked:
        nonlocal epoch
        outcome = yield effect
        if isinstance(effect, AwaitPull):
            epoch = outcome.epoch
        if isinstance(effect, TakeIn):
            for item in effect.entries:
                if isinstance(item.entry, GetEntry) and quorum_of(item.entry):
                    yield from quorum.join(replica, epoch, item.index, item.entry)
        return outcome

    return change


def _not_again(*_: Any) -> Generator[Any, Any, None]:
    yield from ()


def _open_no_more(*_: Any) -> int:
    return 0


# --- answering ----------------------------------------------------------------------------------------------------------------


def _settled_at_any_rate(
    table: TablePlace, awaited: Awaited, known: QuorumEnded | None = None
) -> Generator[Any, Any, None]:
    """Take it for settled when its node is gone."""
    del table, known
    yield from quorum.answer_all(awaited, fx.Inserted(awaited.index))


def _answering_retry_at_once(replica: Replica, awaited: tuple[Awaited, ...], *given_up: bool) -> Stage:
    """Answer a retry by the insert that it repeats, whatever becomes of that."""
    first, left = awaited[0], awaited[1:]
    if not first.is_duplicate:
        return (yield from quorum_waiter.await_quorum(replica, awaited, *given_up))
    for request in first.requests:
        yield fx.Answer(request, fx.Duplicate(first.index))
    return Then(quorum_waiter.await_quorum, (replica, left)) if left else None


def _failing_impatiently(replica: Replica, awaited: tuple[Awaited, ...]) -> Stage:
    """Tell those who wait that it has failed, without giving it up."""
    del replica
    turn: QuorumTurn = yield AwaitDecided(awaited[0].index, is_given_up=False)
    if not turn.is_decided:
        yield from quorum.answer_all(awaited[0], fx.NotInserted("no replica has come in time"))
    return None


# --- what others do with it ---------------------------------------------------------------------------------------------------


def _nothing_is_open(part: Part, opened: tuple[fx.LogIndex, ...]) -> bool:
    del part, opened
    return False


def _fails_at_once(view: View, item: Queued) -> bool:
    return not isinstance(item.entry, FailEntry) and must_wait(view, item)


def _no_ids(table: TablePlace, insert: GetEntry) -> Generator[Any, Any, tuple[fx.Operation, ...]]:
    del table, insert
    yield from ()
    return ()


def _forgetting_open(replica: Replica, *_: Any) -> Change:
    """Take over a pointer without what is open there."""
    path = layout.log_pointer(replica)

    def change(effect: Any) -> Asked:
        if isinstance(effect, fx.Commit):
            kept = (
                replace(each, value=each.value.partition(b" ")[0])
                if isinstance(each, fx.Set) and each.path == path
                else each
                for each in effect.operations
            )
            effect = fx.Commit(*kept)
        return (yield effect)

    return change


def _plan_without_open(
    cleaner: Replica, replicas: tuple[clean_log.Seen, ...], first: fx.LogIndex, keep: clean_log.Keep
) -> clean_log.Plan | None:
    return _PLAN(cleaner, tuple(replace(seen, opened=()) for seen in replicas), first, keep)


def not_taken_back(*_: Any) -> Generator[Any, Any, bool]:
    """Leave the name of a replica that is dropped where it is."""
    yield from ()
    return True


def _taken_back_last(parent: str, proof: fx.Check) -> Generator[Any, Any, bool]:
    """Take the name of a replica that is dropped back when its parts are gone already."""
    place, _, what = parent.rpartition("/")
    deleted = yield from _DELETE_CHILDREN(parent, proof)
    if not deleted or what != "parts":
        return deleted
    path, _, name = place.rpartition("/")
    return (yield from counted.count_no_more(Replica(TablePlace(path.rpartition("/")[0]), name), proof))


_PLAN = clean_log.plan
_DELETE_CHILDREN = table._delete_children  # noqa: SLF001 - what is broken here
IGNORED: Patches = {(fold, "is_open"): _nothing_is_open}
ONCE: Patches = {(drop, "must_wait"): _fails_at_once}
IDS_KEPT: Patches = {(quorum, "free_blocks"): _no_ids}
NOT_AGAIN: Patches = {(life, "rejoin"): _not_again, (puller, "rejoin"): _not_again}
FIRST_OR_NEVER: Patches = {(execute, "join_all"): _not_again}
VACUOUS: Patches = {(quorum_waiter, "answer_awaited"): _settled_at_any_rate}
LOST_THOUGH_OPEN: Patches = {(lost, "quorum_of"): _open_no_more}
CLEANED: Patches = {(clean_log, "plan"): _plan_without_open}
NOT_TAKEN_BACK: Patches = {(table, "count_no_more"): not_taken_back}
TAKEN_BACK_LAST: Patches = {**NOT_TAKEN_BACK, (table, "_delete_children"): _taken_back_last}

QUORUMS = (
    Mutant(
        "acknowledged-from-absent-node",
        "who waits for a quorum takes it for reached when its node is gone",
        "quorum_two",
        "QUORUM",
        with_others(VACUOUS, "await_quorum"),
    ),
    Mutant(
        "settle-without-delete",
        "who completes the number leaves the node, and the next one settles again",
        "quorum_two",
        "QUORUM",
        with_change(leaving_out(_is_node_deleted), *_COUNTING),
    ),
    Mutant(
        "fail-without-delete",
        "who gives up leaves the node, and the insert settles after it has failed",
        "quorum_two",
        "QUORUM",
        with_change(leaving_out(_is_node_deleted), *_GIVING_UP),
    ),
    Mutant(
        "counted-unversioned",
        "a replica that counts itself does not check whether another one has meanwhile",
        "quorum_all_alone",
        "QUORUM",
        with_change(counting_unversioned, *_COUNTING),
    ),
    Mutant(
        "counted-at-pull",
        "a replica counts itself when it has pulled the entry, and not the parts",
        "quorum_two",
        "QUORUM",
        with_change(_counting_at_pull, "pull_next"),
    ),
    Mutant(
        "reactivation-does-not-count",
        "a replica that died between its registration and its counting does not count itself later",
        "quorum_all_alone",
        "QUORUM",
        with_others(NOT_AGAIN, "tidy_up", "reload_state"),
    ),
    Mutant(
        "slower-one-does-not-count",
        "a replica that is not the first to count itself registers the parts, and leaves it at that",
        "quorum_all_alone",
        "QUORUM",
        with_others(FIRST_OR_NEVER, "execute_next"),
    ),
    Mutant(
        "retry-answers-before-quorum",
        "a retry is answered by the insert that it repeats while that one is open",
        "quorum_retry",
        "QUORUM",
        {"await_quorum": _answering_retry_at_once},
    ),
    Mutant(
        "impatient-means-failed",
        "who has lost patience says that the insert has failed, and it goes on",
        "quorum_two",
        "FAILED",
        {"await_quorum": _failing_impatiently},
    ),
    Mutant(
        "merge-of-open-parts",
        "a part is merged while its insert is open, and stays when that fails",
        "quorum_merge",
        "I1",
        with_others(IGNORED, *_FOLDING),
    ),
    Mutant(
        "failed-part-kept-by-late-fetch",
        "a failure does not wait for a fetch that runs, which registers the part afterwards",
        "quorum_two",
        "I1",
        with_others(ONCE, "execute_next"),
    ),
    Mutant(
        "block-id-kept-after-fail",
        "an insert that has failed keeps its token, so that a retry counts as its duplicate",
        "quorum_two",
        "QUORUM",
        with_others(IDS_KEPT, *_GIVING_UP),
    ),
    Mutant(
        "recovery-forgets-what-is-open",
        "a lost replica takes over a pointer without the inserts that are open there",
        "quorum_recover",
        "I1",
        with_change(_forgetting_open, "recover_state"),
    ),
    Mutant(
        "open-entry-cleaned",
        "the entry of an open insert is removed from the log, and a replica that comes back can't count itself",
        "quorum_clean",
        "QUORUM",
        with_others(CLEANED, "clean_entries"),
    ),
    Mutant(
        "dropped-still-counted",
        "a replica that is dropped stays counted for open inserts, and joins again under its name, with nothing",
        "quorum_dropped",
        "QUORUM",
        with_others(NOT_TAKEN_BACK, "drop_other", "join_again"),
    ),
    Mutant(
        "dropped-counted-too-long",
        "a replica that is dropped is counted until after its parts are gone",
        "quorum_dropped",
        "QUORUM",
        with_others(TAKEN_BACK_LAST, "drop_other", "join_again"),
    ),
    Mutant(
        "lost-though-open",
        "a part is declared lost while its insert is open, which settles with an empty part",
        "quorum_lost",
        "QUORUM",
        with_others(LOST_THOUGH_OPEN, "declare"),
    ),
)
"""Every one of them is a bug that a table with quorums has had, or could have."""
