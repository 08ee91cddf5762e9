"""The mutants of reads."""

from __future__ import annotations

from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations import read as m
from replitree_verify.mutations.read import with_change, with_others

READING = (
    Mutant(
        "read-without-sync",
        "a linearizable read asks for the end of the log without a commit or a sync before",
        "read_linearizable",
        "I8",
        with_change(m.without_sync, "find_position"),
    ),
    Mutant(
        "read-only-syncs",
        "a linearizable read believes a sync, which a leader answers that was deposed",
        "read_deposed",
        "I8",
        with_change(m.only_synced, "find_position"),
    ),
    Mutant(
        "end-of-log-before-commit",
        "a linearizable read asks for the end of the log, and commits afterwards",
        "read_linearizable",
        "I8",
        with_others(m.END_BEFORE_COMMIT, "find_position"),
    ),
    Mutant(
        "read-at-own-pointer",
        "a linearizable read takes what its replica has pulled for the whole log",
        "read_linearizable",
        "I8",
        with_others(m.OWN_POINTER, "find_position"),
    ),
    Mutant(
        "read-once-pulled",
        "a read waits until entries are pulled, not until they are executed",
        "read_linearizable",
        "I8",
        with_change(m.once_pulled, "show_rows"),
    ),
    Mutant(
        "read-across-sessions",
        "a commit is believed although the session has changed since",
        "read_session",
        "I8",
        with_change(m.same_session, "find_position"),
    ),
    Mutant(
        "read-of-closed-parent",
        "the end of the log is asked for below the parent that the replica pulls from, which is closed",
        "read_roll",
        "I8",
        with_others(m.END_OF_OWN_PARENT, "find_position"),
    ),
    Mutant(
        "sequential-shows-visible",
        "a sequential read shows what its replica shows anyway, a later entry without an earlier one",
        "read_sequential",
        "I8",
        with_change(m.what_is_visible, "show_rows"),
    ),
    Mutant(
        "client-forgets",
        "a client that goes to another replica does not say what it has seen and written",
        "read_sequential",
        "I8",
        with_change(m.forgetful, "begin_read"),
    ),
    Mutant(
        "merged-part-invisible",
        "a part that was merged beyond the read's position is not shown, and neither are its sources",
        "read_merge",
        "I8",
        with_others(m.BELOW_ONLY, "show_rows"),
    ),
    Mutant(
        "merge-awaited-unseen",
        "of a merge that is not executed a read shows neither the result nor the sources",
        "read_merge",
        "I8",
        with_others(m.RESULTS_ONLY, "show_rows"),
    ),
    Mutant(
        "read-shows-open",
        "a linearizable read shows the rows of an insert whose quorum is open, and may yet fail",
        "read_quorum",
        "I8",
        with_others(m.OPEN_TOO, "show_rows"),
    ),
)
