"""What the models and mutants of lost parts come to."""

from __future__ import annotations

PINNED = {
    "lost_kept": (2227, 5796, 54, 4),
    "lost_kept_away": (4128, 11021, 69, 4),
    "lost_kept_recovering": (423, 734, 80, 2),
    "lost_recovered": (314, 497, 110, 1),
    "lost_everywhere": (8107, 23291, 114, 1),
    "lost_again": (51696, 177742, 94, 5),
    "lost_partitions": (9995, 31127, 81, 2),
    "lost_writer_away": (3291, 8502, 42, 3),
    "lost_staged": (2167, 4202, 95, 1),
    "lost_fetched": (49905, 161411, 98, 9),
    "lost_merge": (2476, 5305, 73, 4),
    "lost_unpulled": (17255, 42423, 130, 3),
    "lost_mended": (292638, 1041506, 93, 5),
    "lost_merging": (6589, 16776, 88, 5),
    "lost_alone": (101, 141, 55, 1),
    "lost_writer_dies": (20679, 59156, 53, 12),
    "lost_fetched_stale": (145097, 477869, 98, 43),
    "lost_again_stale": (266235, 965138, 95, 32),
    "lost_mended_stale": (558901, 1889248, 93, 45),
    "lost_merging_doubt": (204983, 605576, 148, 28),
    "lost_alone_doubt": (4552, 11023, 84, 3),
    "lost_doubt": (5359, 12994, 87, 3),
    "lost_both_ask": (147809, 410175, 72, 78),
    "lost_ids": (2026, 4559, 43, 7),
    "lost_holder_returns": (1355, 2539, 65, 2),
    "lost_note_doubt": (2609, 5041, 68, 8),
    "lost_source": (479, 910, 43, 1),
    "lost_while_made": (48659, 128416, 157, 7),
    "lost_alone_crash": (2284, 4811, 88, 7),
    "lost_result": (32952, 104275, 129, 2),
    "lost_result_mutated": (34296, 107975, 131, 2),
    "lost_result_merged": (1196533, 4548628, 192, 4),
    "lost_result_returns": (294026, 1035525, 132, 6),
    "lost_result_stale": (152553, 478755, 113, 12),
    "lost_killed": (21579, 64865, 88, 3),
    "lost_recovering": (75107, 209560, 124, 6),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "lost_partitions_doubt": (674981, 2695410, 110, 8),
    "lost_fetched_doubt": (880000, 2942258, 132, 42),
    "lost_mended_doubt": (4809764, 18182044, 127, 22),
    "lost_unpulled_stale": (202530, 504980, 130, 108),
    "lost_staged_crash": (300238, 978406, 158, 10),
    "lost_result_doubt": (8907833, 40287722, 155, 10),
    "lost_crash": (80386, 252943, 128, 10),
}

STEPS = {
    "lost-though-kept": 28,
    "lost-though-kept-away": 29,
    "lost-though-kept-by-recovering": 54,
    "searched-without-looking": 39,
    "lost-though-to-come": 21,
    "lost-without-writer": 26,
    "lost-while-registered": 34,
    "lost-without-new-epochs": 40,
    "lost-while-merging": 37,
    "lost-though-whole": 20,
    "notes-read-once": 51,
    "note-in-doubt-believed": 28,
    "empty-part-taken-out": 86,
    "lost-though-mended": 48,
    "lost-though-returned": 35,
    "lost-while-made": 102,
    "made-of-lost-rows-kept": 75,
    "broken-counts-as-holder": 21,
    "broken-source-believed": 42,
    "token-of-half-an-insert": 15,
    "token-of-lost-kept": 15,
    "token-of-another-freed": 38,
    "token-freed-uncounted": 24,
    "merge-of-lost-rows": 68,
    "result-of-lost-rows-kept": 101,
    "broken-result-left": 104,
    "renewed-as-it-was-only": 97,
    "lost-rows-said-whole": 49,
    "kill-of-broken": 76,
    "kill-unversioned": 76,
    "lost-while-recovery-begins": 41,
    "lost-while-recovering": 41,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "lost_everywhere", "lost_again", "lost_fetched", "lost_unpulled", "lost_mended", "lost_writer_dies",
    "lost_fetched_stale", "lost_again_stale", "lost_mended_stale", "lost_merging_doubt", "lost_alone_doubt",
    "lost_doubt", "lost_both_ask", "lost_while_made", "lost_alone_crash",
    "lost_result", "lost_result_mutated", "lost_result_merged", "lost_result_returns", "lost_result_stale", "lost_killed",
    "lost_recovering", "lost_partitions", "lost_merging",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""

LONG = ("renewed-as-it-was-only", "lost-though-mended")
"""Mutants that are caught only after many thousand states."""
