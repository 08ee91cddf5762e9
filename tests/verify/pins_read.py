"""What the models and mutants of reads come to."""

from __future__ import annotations

PINNED = {
    "read_linearizable": (68855, 192455, 49, 24),
    "read_crash": (1828, 4728, 27, 8),
    "read_session": (58965, 141928, 52, 207),
    "read_roll": (3803, 8308, 28, 10),
    "read_sequential": (20688, 70168, 39, 6),
    "read_eventual": (921, 2312, 27, 4),
    "read_merge": (15175, 46717, 35, 12),
    "read_drop": (8683, 21485, 30, 74),
    "read_quorum": (38130, 141007, 44, 6),
}
"""States, transitions, depth, quiet states."""

STEPS = {
    "read-without-sync": 10,
    "end-of-log-before-sync": 8,
    "read-at-own-pointer": 10,
    "read-once-pulled": 13,
    "read-across-sessions": 9,
    "read-of-closed-parent": 11,
    "sequential-shows-visible": 13,
    "client-forgets": 6,
    "merged-part-invisible": 23,
    "merge-awaited-unseen": 18,
    "read-shows-open": 15,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = ("read_linearizable", "read_session", "read_sequential", "read_merge", "read_quorum")
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""
