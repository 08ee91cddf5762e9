"""The mutants of a restore."""

from __future__ import annotations

from replitree_verify.mutants.mutant import Mutant
from replitree_verify.mutations import restore as m
from replitree_verify.mutations.stages import with_both, with_others

RESTORING = (
    Mutant(
        "restore-not-resumable",
        "a restore that was cut off is refused when it is begun again, because the table is there",
        "restore_crash",
        "CONVERGES",
        with_others(m.NEVER_AGAIN, "restore_disk"),
    ),
    Mutant(
        "restore-taken-over-by-itself",
        "a part that is registered already, by a commit whose answer was lost, is taken for the work of another process",
        "restore_crash",
        "CONVERGES",
        with_both(m.taken_over_by_itself, {}, "restore_disk"),
    ),
    Mutant(
        "restore-unfenced",
        "the commits of a restore do not check that no other run has begun since",
        "restore_breaks",
        "RESTORED",
        with_both(m.unfenced, {}, "restore_disk"),
    ),
    Mutant(
        "restored-and-refused",
        "a restore that is repeated after its end is refused, because the table is there",
        "restore_again",
        "RESTORED",
        with_others(m.NEVER_FINISHED, "repeat_restore"),
    ),
    Mutant(
        "restored-with-anything",
        "a repeated restore says that the table is restored, although the disk has other parts by now",
        "restore_again",
        "RESTORED",
        with_others(m.FINISHED_WITH_ANYTHING, "repeat_restore"),
    ),
    Mutant(
        "restored-good-at-once",
        "the replica is good from the moment that the nodes are there, before its parts are registered",
        "restore_join",
        "I1",
        with_others(m.GOOD_AT_ONCE, "restore_disk"),
    ),
    Mutant(
        "restore-keeps-what-was-registered",
        "what an earlier run has registered stays, although it is not whole any more",
        "restore_breaks",
        "RESTORED",
        with_others(m.KEEPING, "restore_disk"),
    ),
    Mutant(
        "restore-takes-what-is-broken",
        "a part whose files are not what its manifest says is taken",
        "restore_spoilt",
        "FILES",
        with_others(m.WHOLE_OR_NOT, "restore_disk"),
    ),
    Mutant(
        "restore-brings-back-detached",
        "a part that was detached, and that is still among the parts of the disk, is taken",
        "restore_detached",
        "RESTORED",
        with_others(m.NEVER_DETACHED, "restore_disk"),
    ),
    Mutant(
        "restored-from-two-replicas",
        "the node that says whose parts the table gets is not respected",
        "restore_two",
        "I1",
        with_both(m.unmarked, m.OWN_OR_NOT, "restore_disk"),
    ),
    Mutant(
        "restored-log-begins-anew",
        "the log of a restored table begins below the first parent, with indexes that were used",
        "restore_join",
        "DENSE",
        with_both(m.in_its_first_parent, m.FIRST_AGAIN, "restore_disk"),
    ),
)
"""Mutations of making a table of what a disk has."""
