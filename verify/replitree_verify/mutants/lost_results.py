"""The mutants of what was made of lost parts, and of a recovery beside a declaration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import Check, Commit, Operation, Procedure
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute import execute_lost, mutate
from replitree.protocol.program.stages import AwaitWork
from replitree.protocol.state.registration import finish
from replitree.protocol.upkeep import lost
from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations.changes import Asked, Change
from replitree_verify.mutations.stages import leaving_out, with_both, with_change, with_others

Some = Generator[Any, Any, Any]


def _nothing_forgotten(*_: Any) -> Procedure[tuple[Operation, ...]]:
    yield from ()
    return ()


def _left_as_it_is(replica: Replica, epoch: Any, view: Any, item: Any, cover: Any) -> Some:
    """Execute a loss without looking at what was made of the part."""
    del view, cover
    return (yield from finish(replica, epoch, (item.index,)))


def _not_later(*_: Any) -> tuple[()]:
    return ()


def foreseeing(*_: Any) -> Change:
    """Try again only when the same would be found."""

    def change(effect: Any) -> Asked:
        if isinstance(effect, AwaitWork):
            effect = replace(effect, later_forms=_not_later)
        return (yield effect)

    return change


def _never(*_: Any) -> bool:
    return False


def _whole_at_once(*_: Any) -> Procedure[bool]:
    """Say of whatever is on the disk again that it is whole."""
    yield from ()
    return False


def _of_lost(operation: Operation, commit: Commit) -> bool:
    del commit
    return isinstance(operation, Check) and operation.path.endswith("/is_lost")


def _of_source(operation: Operation, commit: Commit) -> bool:
    del commit
    return isinstance(operation, Check) and "/parts/" in operation.path


LOST_RESULTS = (
    Mutant(
        "result-of-lost-rows-kept",
        "what results say of a part that was made of a lost one stays: what is made of what is left is thrown away, for ever",
        "lost_result",
        "CONVERGES",
        with_others({(lost, "_forgotten_results"): _nothing_forgotten}, "declare"),
    ),
    Mutant(
        "broken-result-left",
        "a broken part that was made of a lost one is left as it is, and wants content that no replica makes any more",
        "lost_result",
        "CONVERGES",
        with_others({(execute_lost, "_renew"): _left_as_it_is}, "execute_next"),
    ),
    Mutant(
        "renewed-as-it-was-only",
        "a broken part that was made of a lost one waits for itself, although it was merged on by all others",
        "lost_result_merged",
        "CONVERGES",
        with_both(foreseeing, {(execute_lost, "later_forms"): _not_later}, "execute_next"),
    ),
    Mutant(
        "lost-rows-said-whole",
        "a part that was made of a lost one, and whose files come back, is said to be whole",
        "lost_result_returns",
        "LOST",
        with_others({(lost, "_is_to_be_made_anew"): _whole_at_once}, "tell"),
    ),
    Mutant(
        "kill-of-broken",
        "a kill claims for a result the content of a source that is noted broken, and lost since",
        "lost_killed",
        "CONVERGES",
        with_others({(mutate, "is_broken"): _never}, "kill"),
    ),
    Mutant(
        "kill-unversioned",
        "a kill does not check in its commit that the source is still whole",
        "lost_killed",
        "CONVERGES",
        with_change(leaving_out(_of_source), "kill"),
    ),
    Mutant(
        "lost-while-recovery-begins",
        "who declares a part lost does not check that no other replica has begun to recover since",
        "lost_recovering",
        "LOST",
        with_change(leaving_out(_of_lost), "declare"),
    ),
    Mutant(
        "lost-while-recovering",
        "who declares a part lost believes what a replica has registered that is taking over another one's state",
        "lost_recovering",
        "LOST",
        with_others({(lost, "_is_taking_over"): _never}, "declare"),
    ),
)
"""Mutations of what a declaration does to results, and of what comes after."""
