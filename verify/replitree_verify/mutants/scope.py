"""Mutants of mutations: a scope that leaves out parts with rows to change, and parts that are registered together unread."""

from __future__ import annotations

from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations import scope, table
from replitree_verify.mutations.table import patched

_FOLDING = ("pull_next", "catch_up_with_log", "reload_state", "tidy_up")

SCOPES = (
    Mutant(
        "results-not-compared-together",
        "mutated parts are registered together, whatever content another replica has claimed for them",
        "mutate_crash",
        "ROWS",
        patched(table.NOT_COMPARED_TOGETHER, "make_next"),
    ),
    Mutant(
        "scope-since-after-look",
        "the proposer takes its position after it has judged the parts",
        "scope_behind",
        "MUTATED",
        patched(scope.PLACE_AFTER_LOOK, "accept_command"),
    ),
    Mutant(
        "scope-without-queue",
        "the proposer believes that a part which it has not executed has no rows to change",
        "scope_behind",
        "MUTATED",
        patched(scope.BELIEVE_WHAT_IS_NOT_HERE, "accept_command"),
    ),
    Mutant(
        "scope-of-listed-only",
        "a mutation leaves out the parts that its proposer had not seen",
        "scope_behind",
        "MUTATED",
        patched(scope.ONLY_LISTED, "accept_command"),
    ),
    Mutant(
        "scope-of-inserted-only",
        "a mutation leaves out the parts that another mutation has changed since its proposer looked",
        "scope_changed",
        "I1",
        patched(scope.INSERTED_ONLY, *_FOLDING),
    ),
)
