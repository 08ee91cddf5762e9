"""What the models and mutants of lost parts come to."""

from __future__ import annotations

PINNED = {
    "lost_everywhere": (8501, 22712, 116, 4),
    "lost_again": (7077, 16508, 86, 10),
    "lost_partitions": (1839, 4025, 73, 4),
    "lost_writer_away": (2547, 6545, 41, 3),
    "lost_staged": (2064, 3998, 93, 1),
    "lost_fetched": (20012, 62009, 87, 9),
    "lost_merge": (2666, 5387, 77, 8),
    "lost_unpulled": (17217, 42349, 129, 3),
    "lost_mended": (28690, 87906, 63, 5),
    "lost_merging": (1773, 3840, 84, 7),
    "lost_alone": (89, 111, 58, 2),
    "lost_writer_dies": (16410, 46412, 52, 12),
    "lost_fetched_stale": (60211, 191737, 87, 43),
    "lost_again_stale": (42114, 103848, 87, 86),
    "lost_mended_stale": (87713, 266162, 63, 45),
    "lost_merging_doubt": (41173, 117638, 100, 36),
    "lost_alone_doubt": (6615, 16669, 79, 7),
    "lost_doubt": (7856, 19693, 83, 7),
    "lost_both_ask": (141843, 391867, 70, 78),
    "lost_ids": (1934, 4332, 41, 7),
    "lost_holder_returns": (962, 1785, 56, 2),
    "lost_source": (243, 449, 32, 1),
    "lost_while_made": (40413, 107367, 145, 11),
    "lost_alone_crash": (76121, 194208, 194, 22),
    "lost_result": (9385, 24106, 108, 1),
    "lost_result_mutated": (9639, 24678, 110, 1),
    "lost_result_merged": (166483, 527861, 169, 5),
    "lost_result_returns": (96904, 329854, 119, 5),
    "lost_result_stale": (38571, 96852, 94, 5),
    "lost_killed": (19297, 52288, 85, 6),
    "lost_recovering": (39819, 114225, 114, 4),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "lost_partitions_doubt": (158838, 536799, 94, 18),
    "lost_fetched_doubt": (287441, 935361, 103, 32),
    "lost_mended_doubt": (182369, 662007, 68, 12),
    "lost_unpulled_stale": (202363, 504651, 129, 108),
    "lost_staged_crash": (476527, 1412891, 205, 16),
    "lost_result_doubt": (2879468, 11846006, 134, 13),
    "lost_crash": (104304, 269076, 201, 30),
}

STEPS = {
    "lost-though-to-come": 20,
    "lost-without-writer": 25,
    "lost-while-registered": 32,
    "lost-without-new-epochs": 32,
    "lost-while-merging": 28,
    "lost-though-whole": 20,
    "lost-though-mended": 33,
    "lost-though-returned": 32,
    "lost-while-made": 93,
    "made-of-lost-rows-kept": 66,
    "broken-counts-as-holder": 13,
    "broken-source-believed": 29,
    "token-of-half-an-insert": 14,
    "token-of-lost-kept": 14,
    "token-of-another-freed": 34,
    "token-freed-uncounted": 23,
    "merge-of-lost-rows": 60,
    "result-of-lost-rows-kept": 87,
    "broken-result-left": 90,
    "renewed-as-it-was-only": 85,
    "lost-rows-said-whole": 45,
    "kill-of-broken": 63,
    "kill-unversioned": 63,
    "lost-while-recovery-begins": 40,
    "lost-while-recovering": 40,
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
