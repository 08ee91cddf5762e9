"""What the models and mutants of inserts with a quorum come to."""

from __future__ import annotations

PINNED = {
    "quorum_two": (20541, 71762, 49, 5),
    "quorum_three": (81022, 361952, 44, 6),
    "quorum_all": (67086, 278448, 42, 6),
    "quorum_crash": (95336, 349289, 52, 39),
    "quorum_doubt": (106125, 342830, 78, 9),
    "quorum_commit_doubt": (4429, 10372, 41, 15),
    "quorum_expiry": (129997, 436173, 124, 23),
    "quorum_stale": (4280, 12525, 28, 17),
    "quorum_retry": (126675, 469681, 69, 14),
    "quorum_merge": (28898, 95722, 48, 9),
    "quorum_drop": (1004, 2331, 29, 3),
    "quorum_mutate": (8762, 29679, 37, 3),
    "quorum_alone": (617, 1548, 21, 3),
    "quorum_all_alone": (16434, 61597, 34, 8),
    "quorum_recover": (976, 1924, 46, 3),
    "quorum_clean": (174466, 760825, 45, 24),
    "quorum_dropped": (38572, 109958, 68, 4),
    "quorum_lost": (254530, 842043, 167, 10),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "quorum_drop_again": (826357, 3262720, 81, 24),
}

STEPS = {
    "acknowledged-from-absent-node": 18,
    "settle-without-delete": 10,
    "fail-without-delete": 9,
    "counted-unversioned": 10,
    "counted-at-pull": 8,
    "reactivation-does-not-count": 16,
    "slower-one-does-not-count": 11,
    "retry-answers-before-quorum": 7,
    "impatient-means-failed": 5,
    "merge-of-open-parts": 5,
    "failed-part-kept-by-late-fetch": 24,
    "block-id-kept-after-fail": 7,
    "recovery-forgets-what-is-open": 24,
    "open-entry-cleaned": 28,
    "dropped-still-counted": 17,
    "dropped-counted-too-long": 17,
    "lost-though-open": 63,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "quorum_two", "quorum_three", "quorum_all", "quorum_crash", "quorum_doubt", "quorum_expiry", "quorum_retry",
    "quorum_merge", "quorum_clean", "quorum_dropped", "quorum_lost",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""

LONG = ("lost-though-open", "open-entry-cleaned")
"""Caught only after seconds of exploring."""
