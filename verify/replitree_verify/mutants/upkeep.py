"""The mutants of upkeep: deduplication ids and results that are forgotten, parents of the log."""

from __future__ import annotations

from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations import upkeep as m
from replitree_verify.mutations.stages import with_change, with_others

UPKEEP = (
    Mutant(
        "ids-by-own-clock",
        "the age of ids is taken from another clock than that of coordination",
        "ids_by_age",
        "WINDOW",
        with_others(m.OWN_CLOCK, "forget_ids"),
    ),
    Mutant(
        "newest-ids-forgotten",
        "of too many ids the newest are forgotten",
        "ids_crash",
        "WINDOW",
        with_others(m.NEWEST_FIRST, "forget_ids"),
    ),
    Mutant(
        "ids-removed-uncounted",
        "a cleaner that removes ids does not prove that no other one has removed any",
        "ids_clean_clean",
        "WINDOW",
        with_change(m.uncounted, "forget_ids"),
    ),
    Mutant(
        "ids-removed-unversioned",
        "an id is removed although an insert has taken it over since it was read",
        "ids_notes",
        "WINDOW",
        with_change(m.unversioned, "forget_ids"),
    ),
    Mutant(
        "remembered-ids-believed",
        "what is remembered of an id is not compared with what it is now",
        "ids_remembered",
        "WINDOW",
        with_others(m.KNOWN_BELIEVED, "forget_ids"),
    ),
    Mutant(
        "insert-settled-by-its-id-alone",
        "an insert in doubt whose id is not there is taken for one that never came",
        "ids_doubt",
        "I3",
        with_others(m.INSERT_BY_ID_ALONE, "insert_group"),
    ),
    Mutant(
        "command-settled-by-its-id-alone",
        "a command in doubt whose id is not there is taken for one that never came",
        "ids_command",
        "I3",
        with_others(m.COMMAND_BY_ID_ALONE, "give_command"),
    ),
    Mutant(
        "start-of-log-asked-before-the-search",
        "an insert whose entry was removed during the search is taken for one from before the drop",
        "ids_dropped",
        "I3",
        with_change(m.log_begins_where_it_began, "forget_ids"),
    ),
    Mutant(
        "dropped-without-looking",
        "whether an insert came before a drop is not looked up in the log",
        "ids_dropped",
        "I3",
        with_others(m.SEARCH_SKIPPED, "forget_ids", "clean_ids"),
    ),
    Mutant(
        "note-forgotten-too-early",
        "the note of a drop is forgotten while the id of an older insert is there",
        "ids_notes",
        "NOTES",
        with_others(m.ANY_NOTE, "forget_ids"),
    ),
    Mutant(
        "result-forgotten-before-queues",
        "who forgets results takes what replicas have pulled for executed",
        "results_queued",
        "ROWS",
        with_change(m.without_queues, "forget_results"),
    ),
    Mutant(
        "result-forgotten-without-asking",
        "a result is forgotten as soon as it has left",
        "results_queued",
        "ROWS",
        with_others(m.NEEDED_BY_NOBODY, "forget_results"),
    ),
    Mutant(
        "result-forgotten-for-who-is-away",
        "who forgets results does not ask what a replica needs that is away and not lost",
        "results_away",
        "ROWS",
        with_change(m.all_are_lost, "forget_results"),
    ),
    Mutant(
        "result-to-come-forgotten",
        "the claim of a killed mutation is forgotten where the mutation was not pulled yet",
        "results_killed",
        "ROWS",
        with_others(m.NOT_THERE, "note_results"),
    ),
    Mutant(
        "result-forgotten-for-who-joins",
        "who forgets results does not prove that no replica was added",
        "results_join",
        "ROWS",
        with_change(m.unseen_added, "forget_results"),
    ),
    Mutant(
        "roll-over-unfenced",
        "the log is rolled over without a check of the epoch",
        "roll_replaced",
        "I9",
        with_change(m.unfenced, "roll"),
    ),
    Mutant(
        "parent-left-open",
        "who rolls over leaves the old parent open",
        "roll_insert",
        "DENSE",
        with_change(m.closed_or_open, "roll"),
    ),
    Mutant(
        "rolled-over-twice",
        "who finds the next parent there appends a last entry all the same",
        "roll_two",
        "DENSE",
        with_change(m.rolling_again, "roll"),
    ),
    Mutant(
        "insert-below-closed-parent",
        "an insert does not check that the log goes on below its parent",
        "roll_insert",
        "DENSE",
        with_change(m.closed_or_open, "insert_group"),
    ),
    Mutant(
        "merge-below-closed-parent",
        "merges are proposed without a check that the log goes on below their parent",
        "roll_merge",
        "DENSE",
        with_change(m.closed_or_open, "lead"),
    ),
    Mutant(
        "command-below-closed-parent",
        "a command does not check that the log goes on below its parent",
        "roll_command",
        "DENSE",
        with_change(m.closed_or_open, "give_command"),
    ),
    Mutant(
        "pull-stays-below-closed-parent",
        "who pulls the last entry of a parent looks for the next one below the same parent",
        "roll_crash",
        "CONVERGES",
        with_others(m.NEXT_IN_PARENT, "pull_next", "catch_up_with_log"),
    ),
    Mutant(
        "closed-parent-left-behind",
        "who cleans the log beyond the border of two parents leaves the entries below the closed one",
        "roll_clean",
        "DENSE",
        with_others(m.NOTHING_LEFT_BELOW, "clean_entries"),
    ),
)
"""Mutations of what leaders and cleaners do now and then."""
