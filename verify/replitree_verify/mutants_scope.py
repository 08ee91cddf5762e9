"""Mutants of mutations: a scope that leaves out parts with rows to change, and parts that are registered together unread."""

from __future__ import annotations

from replitree_verify import mutations_scope, mutations_table
from replitree_verify.mutant import Mutant
from replitree_verify.mutations_table import patched

_FOLDING = ("pull_next", "catch_up_with_log", "reload_state", "tidy_up")

SCOPES = (
    Mutant(
        "results-not-compared-together",
        "mutated parts are registered together, whatever content another replica has claimed for them",
        "mutate_crash",
        "ROWS",
        patched(mutations_table.NOT_COMPARED_TOGETHER, "make_next"),
    ),
    Mutant(
        "scope-since-after-look",
        "the proposer takes its position after it has judged the parts",
        "scope_behind",
        "MUTATED",
        patched(mutations_scope.PLACE_AFTER_LOOK, "accept_command"),
    ),
    Mutant(
        "scope-without-queue",
        "the proposer believes that a part which it has not executed has no rows to change",
        "scope_behind",
        "MUTATED",
        patched(mutations_scope.BELIEVE_WHAT_IS_NOT_HERE, "accept_command"),
    ),
    Mutant(
        "scope-of-listed-only",
        "a mutation leaves out the parts that its proposer had not seen",
        "scope_behind",
        "MUTATED",
        patched(mutations_scope.ONLY_LISTED, "accept_command"),
    ),
    Mutant(
        "scope-of-inserted-only",
        "a mutation leaves out the parts that another mutation has changed since its proposer looked",
        "scope_changed",
        "I1",
        patched(mutations_scope.INSERTED_ONLY, *_FOLDING),
    ),
)
