"""What the models and mutants of lost parts come to."""

from __future__ import annotations

PINNED = {
    "lost_everywhere": (7926, 20990, 113, 4),
    "lost_again": (6430, 14918, 84, 10),
    "lost_partitions": (1768, 3848, 71, 4),
    "lost_writer_away": (2547, 6545, 41, 3),
    "lost_staged": (2048, 3967, 92, 1),
    "lost_fetched": (18045, 55916, 84, 9),
    "lost_merge": (2953, 6470, 74, 8),
    "lost_unpulled": (17096, 42116, 128, 3),
    "lost_mended": (22713, 69420, 59, 5),
    "lost_merging": (1883, 4272, 81, 7),
    "lost_alone": (85, 105, 56, 2),
    "lost_writer_dies": (16410, 46412, 52, 12),
    "lost_fetched_stale": (55522, 176895, 84, 43),
    "lost_again_stale": (37463, 92164, 85, 86),
    "lost_mended_stale": (69740, 212084, 59, 45),
    "lost_merging_doubt": (43126, 131195, 96, 31),
    "lost_alone_doubt": (5763, 14389, 77, 7),
    "lost_doubt": (6873, 17095, 81, 7),
    "lost_both_ask": (122707, 338071, 68, 78),
    "lost_ids": (1791, 4015, 39, 7),
    "lost_holder_returns": (815, 1505, 51, 2),
    "lost_source": (219, 402, 31, 1),
    "lost_while_made": (46550, 129924, 142, 11),
    "lost_alone_crash": (66494, 167849, 190, 22),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "lost_partitions_doubt": (140999, 472846, 92, 18),
    "lost_fetched_doubt": (265794, 907132, 99, 31),
    "lost_mended_doubt": (128159, 464324, 63, 12),
    "lost_unpulled_stale": (201647, 503250, 128, 108),
    "lost_staged_crash": (689681, 2003220, 203, 18),
    "lost_crash": (93380, 238900, 197, 30),
}

STEPS = {
    "lost-though-to-come": 19,
    "lost-without-writer": 24,
    "lost-while-registered": 25,
    "lost-without-new-epochs": 31,
    "lost-while-merging": 27,
    "lost-though-whole": 19,
    "lost-though-mended": 31,
    "lost-though-returned": 30,
    "lost-while-made": 92,
    "made-of-lost-rows-kept": 65,
    "broken-counts-as-holder": 13,
    "broken-source-believed": 29,
    "token-of-half-an-insert": 13,
    "token-of-lost-kept": 13,
    "token-of-another-freed": 32,
    "token-freed-uncounted": 22,
    "merge-of-lost-rows": 59,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "lost_everywhere", "lost_again", "lost_fetched", "lost_unpulled", "lost_mended", "lost_writer_dies",
    "lost_fetched_stale", "lost_again_stale", "lost_mended_stale", "lost_merging_doubt", "lost_alone_doubt",
    "lost_doubt", "lost_both_ask", "lost_while_made", "lost_alone_crash",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""
