"""What the models and mutants of reads come to."""

from __future__ import annotations

PINNED = {
    "read_linearizable": (76391, 214687, 50, 24),
    "read_deposed": (1856, 3879, 23, 8),
    "read_crash": (2111, 5534, 28, 8),
    "read_session": (63516, 153429, 52, 207),
    "read_roll": (4184, 9144, 29, 10),
    "read_sequential": (20688, 70168, 39, 6),
    "read_eventual": (921, 2312, 27, 4),
    "read_merge": (17358, 53694, 36, 12),
    "read_drop": (8683, 21485, 30, 74),
    "read_quorum": (43575, 162983, 45, 6),
}
"""States, transitions, depth, quiet states."""

STEPS = {
    "read-without-sync": 10,
    "read-only-syncs": 11,
    "end-of-log-before-commit": 11,
    "read-at-own-pointer": 11,
    "read-once-pulled": 14,
    "read-across-sessions": 11,
    "read-of-closed-parent": 14,
    "sequential-shows-visible": 13,
    "client-forgets": 6,
    "merged-part-invisible": 23,
    "merge-awaited-unseen": 18,
    "read-shows-open": 16,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = ("read_linearizable", "read_session", "read_sequential", "read_merge", "read_quorum")
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""
