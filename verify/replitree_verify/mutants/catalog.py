"""Mutants: the production procedures with one rule broken, each with the invariant that must notice.

A checker that finds nothing wrong may have looked at nothing.  Each mutant names the model that catches it.  Three of them
are bugs that the explorer found in this code base, kept as the mistakes they were.
"""

from __future__ import annotations

from replitree_verify.mutants.lost import LOST_PARTS
from replitree_verify.mutants.lost_results import LOST_RESULTS
from replitree_verify.mutants.mutant import Mutant, read_mutants
from replitree_verify.mutants.quorum import QUORUMS
from replitree_verify.mutants.read import READING
from replitree_verify.mutations import changes, table
from replitree_verify.mutations.changes import stages_with
from replitree_verify.mutations.table import patched

_ALL_COMMITS = ("insert_group", "pull_next", "execute_next", "catch_up_with_log")
_FOLDING = ("pull_next", "catch_up_with_log", "reload_state", "tidy_up")
_EXECUTING = ("execute_next", "make_next")

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "no-epoch-check",
            "commits do not check the epoch",
            "replaced_insert",
            "I9",
            stages_with(changes.without_check, *_ALL_COMMITS),
        ),
        Mutant(
            "pointer-and-queue-not-atomic",
            "the pointer moves in a commit of its own",
            "pull_and_execute",
            "I1",
            stages_with(changes.pointer_first, "pull_next", "catch_up_with_log"),
        ),
        Mutant(
            "blind-retry-after-unknown",
            "a commit without an answer is sent again",
            "insert_one_token",
            "I2",
            stages_with(changes.retrying_blindly, "insert_group"),
        ),
        Mutant(
            "look-without-new-epoch",
            "after an unknown outcome look without fencing the lost request",
            "insert_one_token",
            "I2",
            stages_with(changes.without_bump, "insert_group"),
        ),
        Mutant(
            "node-before-file",
            "parts are registered before their files are there",
            "pull_and_execute",
            "FILES",
            stages_with(changes.registering_first, "execute_next"),
        ),
        Mutant(
            "staging-swept-too-early",
            "staging is swept before the log's tail was pulled",
            "restart_anywhere",
            "I2",
            {"catch_up_with_log": changes.sweeping_early},
        ),
        Mutant(
            "deduplication-in-two-steps",
            "block ids are looked for first and created later",
            "insert_one_token",
            "I3",
            stages_with(changes.deduplicating_first, "insert_group"),
        ),
        Mutant(
            "reveal-before-register",
            "reads show parts before they are registered",
            "pull_and_execute",
            "SIGHT",
            stages_with(changes.revealing_first, "execute_next"),
        ),
        Mutant(
            "failed-when-unknown",
            'clients hear "failed" when the outcome is unknown',
            "insert_one_token",
            "FAILED",
            stages_with(changes.failing_in_doubt, "insert_group"),
        ),
        Mutant(
            "gap-believed-at-once",
            "a gap in one batch of reads is believed",
            "pull_gap",
            "GAP",
            stages_with(changes.believing_gaps, "pull_next"),
        ),
        Mutant(
            "group-staged-whole-again",
            "a refused group is staged again with the duplicates' rows",
            "insert_groups",
            "I3",
            stages_with(changes.staging_all_again, "insert_group"),
        ),
        Mutant(
            "split-group-staged-whole",
            "each request of a group that could not be staged is staged with the rows of all of them",
            "insert_split",
            "I3",
            stages_with(changes.staging_all_again, "insert_group"),
        ),
        Mutant(
            "replaced-takes-back",
            "a process renews its epoch although `host` names another",
            "replaced_insert",
            "I9",
            stages_with(changes.taking_back, "become_active"),
        ),
        Mutant(
            "activation-at-any-version",
            "the take-over does not depend on the version of `host`",
            "replaced_insert",
            "I9",
            stages_with(changes.any_version, "become_active", "insert_group"),
        ),
        Mutant(
            "staging-listed-after-activation",
            "staging folders are listed after the activation",
            "insert_session",
            "I2",
            {"become_active": changes.listing_last},
        ),
        Mutant(
            "sweep-without-looking",
            "the sweep does not look at the queue",
            "restart_anywhere",
            "I2",
            stages_with(changes.sweeping_everything, "tidy_up"),
        ),
        Mutant(
            "new-session-with-old-epoch",
            "a new session is content with an epoch of the old one",
            "insert_session",
            "CONVERGES",
            {"become_active": changes.content_with_known},
        ),
        Mutant(
            "older-reload-wins",
            "an older reading of the queue replaces a newer one",
            "session_ends",
            "CONVERGES",
            stages_with(changes.older_reload_wins, "reload_state"),
        ),
        Mutant(
            "executed-unnoticed",
            "what a lost answer executed is never shown",
            "pull_and_execute",
            "CONVERGES",
            stages_with(changes.never_noticing, "reload_state", "tidy_up"),
        ),
        Mutant(
            "merge-keeps-lowest-mutation",
            "a merged part is named by the lowest mutation of its sources",
            "mutate_then_merge",
            "I1",
            patched(table.KEEP_LOWEST_MUTATION, *_FOLDING),
        ),
        Mutant(
            "mutation-misses-merging",
            "a mutation leaves parts out that are being merged",
            "mutate_merging",
            "I1",
            patched(table.MUTATE_WHAT_IS_HERE, "make_next"),
        ),
        Mutant(
            "change-of-later-blocks",
            "mutations and drops change what was inserted after them",
            "mutate_later",
            "I1",
            patched(table.CHANGE_LATER_BLOCKS, *_FOLDING),
        ),
        Mutant(
            "drop-before-earlier-insert",
            "a drop does not wait for inserts before it in the queue",
            "drop_insert",
            "I1",
            patched(table.DROP_AT_ONCE, "execute_next"),
        ),
        Mutant(
            "drop-during-merge",
            "a drop does not wait for a merge that is running",
            "drop_merge_pulled",
            "SIGHT",
            patched(table.DROP_DURING_MERGE, "execute_next"),
        ),
        Mutant(
            "drop-before-covered-insert",
            "a drop does not wait for an insert that a merge has overtaken",
            "drop_covered",
            "I1",
            patched(table.DROP_BEFORE_COVERED_INSERT, "execute_next"),
        ),
        Mutant(
            "drop-of-later-blocks",
            "a drop removes what was inserted after it",
            "drop_insert",
            "I1",
            patched(table.DROP_LATER_BLOCKS, "execute_next"),
        ),
        Mutant(
            "drop-of-named-parts",
            "a drop removes the parts that were there at its pull, not what has come of them",
            "drop_behind",
            "I1",
            patched(table.DROP_NAMED_PARTS, "execute_next"),
        ),
        Mutant(
            "drop-leaves-covered-parts",
            "a drop leaves registered parts alone that another part covers",
            "drop_covered",
            "I1",
            patched(table.DROP_UNCOVERED_PARTS, "execute_next"),
        ),
        Mutant(
            "detach-without-inserts",
            "an insert that a detach removes is not brought, so its rows are kept nowhere",
            "detach_insert",
            "KEPT",
            patched(table.OWN_INSERTS_SKIPPED, "execute_next"),
        ),
        Mutant(
            "failure-means-missing",
            "a part that the disk has failed to publish is taken for one that is not there, so a detach keeps nothing of it",
            "detach_failing",
            "KEPT",
            stages_with(table.failure_means_missing, "execute_next"),
        ),
        Mutant(
            "staging-removed-after-failure",
            "the staging of an insert goes although the disk has failed to publish it",
            "drop_failing",
            "I2",
            stages_with(table.staging_removed_after_failure, "execute_next"),
        ),
        Mutant(
            "merge-over-detached",
            "a merge takes the place of a part that is still to be kept aside",
            "detach_hole",
            "KEPT",
            patched(table.DETACHED_HIDDEN, *_EXECUTING),
        ),
        Mutant(
            "drop-before-detach",
            "a drop does not wait for a detach before it in the queue",
            "detach_drop",
            "KEPT",
            patched(table.DROP_BEFORE_DETACH, "execute_next"),
        ),
        Mutant(
            "result-fetched-into-nothing",
            "a result is registered by a commit that deregisters nothing",
            "drop_behind",
            "I1",
            patched(table.RESULT_INTO_NOTHING, "make_next"),
        ),
        Mutant(
            "covering-part-not-pulled",
            "a covering part is fetched whose merge was not pulled yet",
            "merge_behind",
            "I1",
            patched(table.ANY_COVERING_PART, "execute_next"),
        ),
        Mutant(
            "result-not-compared",
            "a result is published without comparing it with others",
            "merge_differs",
            "ROWS",
            stages_with(table.never_comparing, "make_next"),
        ),
        Mutant(
            "result-made-again",
            "a result is made and published again while the commit of the first try may be on its way",
            "merge_made_again",
            "FILES",
            stages_with(table.making_again, "make_next"),
        ),
        Mutant(
            "sources-deregistered-first",
            "sources are taken back before the result is registered",
            "merge_crash",
            "I1",
            stages_with(table.deregistering_first, "make_next"),
        ),
        Mutant(
            "mutation-lets-be",
            "a part gets its mutated name with the rows that it had, although the mutation is not killed",
            "mutate_crash",
            "ROWS",
            stages_with(table.letting_be, "make_next"),
        ),
        Mutant(
            "kill-of-published",
            "a kill takes a result back that a replica has published",
            "mutate_kill",
            "ROWS",
            stages_with(table.killing_published, "kill"),
        ),
        Mutant(
            "command-without-id",
            "a command does not take its id in the commit that puts it into the log",
            "mutate_twice",
            "I3",
            stages_with(table.without_id, "give_command"),
        ),
        Mutant(
            "token-taken-over-unversioned",
            "a block id that a drop freed is taken over whatever has become of it",
            "insert_again",
            "I3",
            stages_with(table.taking_over_unversioned, "insert_group"),
        ),
        Mutant(
            "stands-again-in-doubt",
            "a replica stands for leader again while its first try may be on its way",
            "election",
            "CONVERGES",
            stages_with(table.standing_in_doubt, "stand_next"),
        ),
        Mutant(
            "node-not-looked-for",
            "a replica stands for leader without looking for a node that an earlier process has left",
            "election_crash",
            "CONVERGES",
            patched(table.NODE_NOT_LOOKED_FOR, "stand_next"),
        ),
        Mutant(
            "deposed-leader-unchecked",
            "merges are proposed without checking the epoch",
            "leader_replaced",
            "I9",
            stages_with(changes.without_check, "lead"),
        ),
        Mutant(
            "forgets-too-early",
            "a running replica forgets parts that another one will cover, before that is registered",
            "forget_running",
            "I1",
            patched(table.FORGET_WHAT_IS_TO_COME, "forget_next"),
        ),
        Mutant(
            "older-pull-wins",
            "an older place replaces a newer one, so that a queued insert seems dropped",
            "session_ends_pulling",
            "I1",
            stages_with(table.older_pull_wins, "pull_next"),
        ),
        *read_mutants("log"),
        *read_mutants("cleaning"),
        *read_mutants("recovering"),
        *read_mutants("joining"),
        *LOST_PARTS,
        *QUORUMS,
        *LOST_RESULTS,
        *read_mutants("upkeep"),
        *read_mutants("restoring"),
        *READING,
        *read_mutants("mutating"),
    )
}
"""Every mutant by its name.

Found in this code base: `unpulled-parts-set-aside`, `new-session-with-old-epoch`, `older-reload-wins`, `older-pull-wins`,
`drop-before-covered-insert`, `drop-of-named-parts`, `drop-leaves-covered-parts`, `result-fetched-into-nothing`,
`result-made-again`, `command-without-id`, `detach-without-inserts`, `merge-over-detached`, `drop-before-detach`,
`stands-again-in-doubt`, `recovery-goes-on-in-doubt`, `drop-goes-on-after-return`, `let-go-of-what-is-to-come`,
`tail-believed`, `removed-entry-awaited`, `marked-though-joined-again`, `source-joined-again`.
"""
