"""Mutants: the production procedures with one rule broken, each with the invariant that must notice.

A checker that finds nothing wrong may have looked at nothing.  Each mutant names the model that catches it.  Three of them
are bugs that the explorer found in this code base, kept as the mistakes they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replitree.verify import mutations
from replitree.verify.kernel import Stage
from replitree.verify.mutations import stages_with


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule.

    Attributes
    ----------
    name, description
        For people.
    model
        Name of the model that catches it.
    breaks
        The invariant that notices: what the violation begins with.
    stages
        The broken stages, by the name of the stage that each replaces.
    """

    name: str
    description: str
    model: str
    breaks: str
    stages: Mapping[str, Stage]


_ALL_COMMITS = ("insert_group", "pull_next", "execute_next", "catch_up_with_log")

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "no-epoch-check",
            "commits do not check the epoch",
            "replaced_insert",
            "I9",
            stages_with(mutations.without_check, *_ALL_COMMITS),
        ),
        Mutant(
            "pointer-and-queue-not-atomic",
            "the pointer moves in a commit of its own",
            "pull_and_execute",
            "I1",
            stages_with(mutations.pointer_first, "pull_next", "catch_up_with_log"),
        ),
        Mutant(
            "acknowledge-before-commit",
            "clients hear of an insert when it is staged",
            "insert_one_token",
            "I2",
            stages_with(mutations.answering_early, "insert_group"),
        ),
        Mutant(
            "blind-retry-after-unknown",
            "a commit without an answer is sent again",
            "insert_one_token",
            "I2",
            stages_with(mutations.retrying_blindly, "insert_group"),
        ),
        Mutant(
            "look-without-new-epoch",
            "after an unknown outcome look without fencing the lost request",
            "insert_one_token",
            "I2",
            stages_with(mutations.without_bump, "insert_group"),
        ),
        Mutant(
            "node-before-file",
            "parts are registered before their files are there",
            "pull_and_execute",
            "FILES",
            stages_with(mutations.registering_first, "execute_next"),
        ),
        Mutant(
            "staging-swept-too-early",
            "staging is swept before the log's tail was pulled",
            "restart_anywhere",
            "I2",
            {"catch_up_with_log": mutations.sweeping_early},
        ),
        Mutant(
            "deduplication-in-two-steps",
            "block ids are looked for first and created later",
            "insert_one_token",
            "I3",
            stages_with(mutations.deduplicating_first, "insert_group"),
        ),
        Mutant(
            "reveal-before-register",
            "reads show parts before they are registered",
            "pull_and_execute",
            "SIGHT",
            stages_with(mutations.revealing_first, "execute_next"),
        ),
        Mutant(
            "failed-when-unknown",
            'clients hear "failed" when the outcome is unknown',
            "insert_one_token",
            "FAILED",
            stages_with(mutations.failing_in_doubt, "insert_group"),
        ),
        Mutant(
            "gap-believed-at-once",
            "a gap in one batch of reads is believed",
            "pull_gap",
            "GAP",
            stages_with(mutations.believing_gaps, "pull_next"),
        ),
        Mutant(
            "group-staged-whole-again",
            "a refused group is staged again with the duplicates' rows",
            "insert_groups",
            "I3",
            stages_with(mutations.staging_all_again, "insert_group"),
        ),
        Mutant(
            "replaced-takes-back",
            "a process renews its epoch although `host` names another",
            "replaced_insert",
            "I9",
            stages_with(mutations.taking_back, "become_active"),
        ),
        Mutant(
            "activation-at-any-version",
            "the take-over does not depend on the version of `host`",
            "replaced_insert",
            "I9",
            stages_with(mutations.any_version, "become_active", "insert_group"),
        ),
        Mutant(
            "staging-listed-after-activation",
            "staging folders are listed after the activation",
            "insert_session",
            "I2",
            {"become_active": mutations.listing_last},
        ),
        Mutant(
            "sweep-without-looking",
            "the sweep does not look at the queue",
            "restart_anywhere",
            "I2",
            stages_with(mutations.sweeping_everything, "tidy_up"),
        ),
        Mutant(
            "unpulled-parts-set-aside",
            "parts that were not pulled yet count as garbage",
            "session_ends",
            "I2",
            stages_with(mutations.judging_all, "tidy_up"),
        ),
        Mutant(
            "new-session-with-old-epoch",
            "a new session is content with an epoch of the old one",
            "insert_session",
            "CONVERGES",
            {"become_active": mutations.content_with_known},
        ),
        Mutant(
            "older-reload-wins",
            "an older reading of the queue replaces a newer one",
            "session_ends",
            "SIGHT",
            stages_with(mutations.older_reload_wins, "reload_queue"),
        ),
        Mutant(
            "executed-unnoticed",
            "what a lost answer executed is never shown",
            "pull_and_execute",
            "CONVERGES",
            stages_with(mutations.never_noticing, "reload_queue", "tidy_up"),
        ),
    )
}
"""Every mutant by its name.

Found in this code base: `unpulled-parts-set-aside`, `new-session-with-old-epoch`, `older-reload-wins`.
"""
