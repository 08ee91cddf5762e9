"""What the models and mutants of inserts with a quorum come to."""

from __future__ import annotations

PINNED = {
    "quorum_two": (21478, 72563, 50, 5),
    "quorum_three": (71963, 308908, 41, 6),
    "quorum_all": (99405, 397718, 45, 6),
    "quorum_crash": (83880, 293434, 49, 35),
    "quorum_doubt": (72022, 216072, 78, 11),
    "quorum_commit_doubt": (4236, 9399, 37, 35),
    "quorum_expiry": (126855, 403757, 124, 23),
    "quorum_stale": (3878, 10803, 26, 17),
    "quorum_retry": (149737, 547698, 67, 14),
    "quorum_merge": (17958, 56997, 47, 8),
    "quorum_drop": (865, 2015, 29, 3),
    "quorum_mutate": (8214, 27260, 35, 3),
    "quorum_alone": (489, 1109, 23, 3),
    "quorum_all_alone": (1572, 5476, 27, 2),
    "quorum_recover": (931, 1817, 45, 3),
    "quorum_clean": (4487, 12640, 35, 9),
    "quorum_lost": (157749, 509720, 154, 10),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "quorum_drop_again": (963103, 3655887, 79, 24),
}

STEPS = {
    "acknowledged-from-absent-node": 17,
    "settle-without-delete": 13,
    "fail-without-delete": 8,
    "counted-unversioned": 14,
    "counted-at-pull": 1,
    "reactivation-does-not-count": 10,
    "retry-answers-before-quorum": 7,
    "impatient-means-failed": 4,
    "merge-of-open-parts": 5,
    "failed-part-kept-by-late-fetch": 23,
    "block-id-kept-after-fail": 6,
    "recovery-forgets-what-is-open": 24,
    "open-entry-cleaned": 23,
    "lost-though-open": 64,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "quorum_two", "quorum_three", "quorum_all", "quorum_crash", "quorum_doubt", "quorum_expiry", "quorum_retry",
    "quorum_merge", "quorum_lost",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""

LONG = ("lost-though-open",)
"""Caught only after seconds of exploring."""
