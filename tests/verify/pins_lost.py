"""What the models and mutants of lost parts come to."""

from __future__ import annotations

PINNED = {
    "lost_everywhere": (11773, 32992, 120, 4),
    "lost_again": (7025, 16744, 83, 5),
    "lost_partitions": (1894, 4214, 71, 2),
    "lost_writer_away": (2547, 6545, 41, 3),
    "lost_staged": (2032, 3936, 91, 1),
    "lost_fetched": (17472, 53989, 86, 9),
    "lost_merge": (3143, 7106, 72, 7),
    "lost_unpulled": (16975, 41883, 127, 3),
    "lost_mended": (22159, 67790, 58, 5),
    "lost_merging": (1910, 4413, 79, 7),
}
"""States, transitions, depth, quiet states."""

STEPS = {
    "lost-though-to-come": 18,
    "lost-without-writer": 23,
    "lost-while-registered": 24,
    "lost-without-new-epochs": 30,
    "lost-while-merging": 26,
    "lost-though-whole": 18,
    "lost-though-mended": 30,
    "token-of-half-an-insert": 12,
    "token-of-lost-kept": 12,
    "merge-of-lost-rows": 58,
}
"""Steps of the shortest counterexample of each mutant."""
