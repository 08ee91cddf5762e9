"""What the models and mutants of lost parts come to."""

from __future__ import annotations

PINNED = {
    "lost_kept": (494, 1125, 31, 4),
    "lost_kept_away": (1298, 3196, 46, 4),
    "lost_kept_recovering": (231, 381, 64, 2),
    "lost_recovered": (224, 315, 108, 2),
    "lost_everywhere": (8509, 22726, 117, 4),
    "lost_again": (7085, 16523, 87, 10),
    "lost_partitions": (1847, 4040, 74, 4),
    "lost_writer_away": (3291, 8502, 42, 3),
    "lost_staged": (2167, 4202, 95, 1),
    "lost_fetched": (21258, 66120, 88, 9),
    "lost_merge": (2749, 5540, 78, 8),
    "lost_unpulled": (17255, 42423, 130, 3),
    "lost_mended": (30524, 93771, 65, 5),
    "lost_merging": (2097, 4632, 86, 7),
    "lost_alone": (90, 112, 59, 2),
    "lost_writer_dies": (20679, 59156, 53, 12),
    "lost_fetched_stale": (63896, 204174, 88, 43),
    "lost_again_stale": (42122, 103863, 88, 86),
    "lost_mended_stale": (93088, 283072, 65, 45),
    "lost_merging_doubt": (49580, 142062, 104, 36),
    "lost_alone_doubt": (6928, 17426, 80, 7),
    "lost_doubt": (8199, 20528, 84, 7),
    "lost_both_ask": (147809, 410175, 72, 78),
    "lost_ids": (2026, 4559, 43, 7),
    "lost_holder_returns": (1014, 1887, 57, 2),
    "lost_source": (243, 449, 32, 1),
    "lost_while_made": (42705, 113645, 147, 11),
    "lost_alone_crash": (4552, 10277, 140, 12),
    "lost_result": (9395, 24124, 110, 1),
    "lost_result_mutated": (9649, 24696, 112, 1),
    "lost_result_merged": (166483, 527861, 169, 5),
    "lost_result_returns": (100390, 341485, 121, 5),
    "lost_result_stale": (38571, 96852, 94, 5),
    "lost_killed": (20157, 54984, 87, 6),
    "lost_recovering": (44207, 127377, 116, 6),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "lost_partitions_doubt": (166036, 560829, 95, 18),
    "lost_fetched_doubt": (297462, 970861, 105, 32),
    "lost_mended_doubt": (193491, 703813, 70, 12),
    "lost_unpulled_stale": (202530, 504980, 130, 108),
    "lost_staged_crash": (300238, 978406, 158, 10),
    "lost_result_doubt": (2879468, 11846006, 134, 13),
    "lost_crash": (24104, 61675, 147, 20),
}

STEPS = {
    "lost-though-kept": 21,
    "lost-though-kept-away": 21,
    "lost-though-kept-by-recovering": 54,
    "searched-without-looking": 27,
    "lost-though-to-come": 21,
    "lost-without-writer": 26,
    "lost-while-registered": 27,
    "lost-without-new-epochs": 33,
    "lost-while-merging": 30,
    "lost-though-whole": 21,
    "lost-though-mended": 34,
    "lost-though-returned": 33,
    "lost-while-made": 95,
    "made-of-lost-rows-kept": 68,
    "broken-counts-as-holder": 14,
    "broken-source-believed": 35,
    "token-of-half-an-insert": 15,
    "token-of-lost-kept": 15,
    "token-of-another-freed": 36,
    "token-freed-uncounted": 24,
    "merge-of-lost-rows": 61,
    "result-of-lost-rows-kept": 89,
    "broken-result-left": 92,
    "renewed-as-it-was-only": 85,
    "lost-rows-said-whole": 47,
    "kill-of-broken": 65,
    "kill-unversioned": 65,
    "lost-while-recovery-begins": 41,
    "lost-while-recovering": 41,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "lost_everywhere", "lost_again", "lost_fetched", "lost_unpulled", "lost_mended", "lost_writer_dies",
    "lost_fetched_stale", "lost_again_stale", "lost_mended_stale", "lost_merging_doubt", "lost_alone_doubt",
    "lost_doubt", "lost_both_ask", "lost_while_made", "lost_alone_crash",
    "lost_result", "lost_result_mutated", "lost_result_merged", "lost_result_returns", "lost_result_stale", "lost_killed",
    "lost_recovering",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""

LONG = ("renewed-as-it-was-only",)
"""Mutants that are caught only after many thousand states."""
