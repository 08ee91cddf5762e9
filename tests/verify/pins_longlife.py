"""What the models and mutants of a long life come to: cleaning, recovery, joining, dropping."""

from __future__ import annotations

PINNED = {
    "clean_clean": (539, 1152, 19, 18),
    "clean_crash": (9132, 19496, 32, 23),
    "clean_half_dropped": (10, 9, 9, 1),
    "clean_torn": (61266, 163967, 48, 98),
    "clean_duplicate": (279, 499, 26, 8),
    "recover_crash": (29422, 58701, 77, 29),
    "recover_get": (950, 1723, 45, 4),
    "recover_merge": (8667, 15298, 57, 12),
    "recover_drop": (37112, 82833, 76, 32),
    "recover_gone": (8604, 17053, 65, 18),
    "recover_source_lost": (54099, 142712, 71, 12),
    "recover_source_returns": (91168, 236261, 90, 16),
    "recover_pointer": (31405, 83904, 46, 41),
    "recover_queue": (723, 1217, 50, 5),
    "recover_hole": (754, 1271, 51, 5),
    "forgiven": (727, 1243, 50, 5),
    "lost_while_running": (55295, 139928, 89, 32),
    "join_clean": (20412, 54172, 75, 22),
    "join_clean_insert": (52485, 129637, 74, 59),
    "drop_activation": (13676, 34792, 74, 14),
    "drop_each_other": (5482, 12576, 27, 4),
    "survive_two": (99922, 273129, 92, 21),
    "survive_behind": (42899, 95357, 105, 13),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "clean_return": (222984, 731904, 71, 18),
    "clean_insert": (938575, 3254869, 107, 66),
    "recover_doubt": (534071, 1679319, 95, 30),
    "recover_session": (1136777, 3356832, 80, 52),
    "recover_away": (1564829, 5132050, 97, 27),
    "recover_mutate": (534205, 1450794, 78, 20),
    "recover_own_insert": (753394, 2568933, 141, 111),
    "recover_two": (428950, 1245470, 69, 1),
    "lost_while_making": (654605, 2165771, 112, 92),
    "recover_source_dropped": (874175, 2474980, 145, 14),
    "drop_half": (282708, 858553, 89, 55),
    "drop_session": (1039067, 3210439, 356, 79),
}

STEPS: dict[str, int] = {
    "removal-proves-nothing": 38,
    "pointer-before-lost": 39,
    "recovering-pointers-read-once": 40,
    "sources-not-kept-for": 39,
    "added-replicas-unseen": 18,
    "marked-after-removal": 9,
    "marked-though-back": 20,
    "last-good-marked": 9,
    "removal-from-the-top": 10,
    "half-dropped-blocks-cleaning": 5,
    "clone-from-lost": 16,
    "source-unchecked": 27,
    "start-of-log-not-looked-at": 10,
    "pointer-of-source-unversioned": 39,
    "recovery-ends-away": 38,
    "own-queue-kept": 26,
    "own-parts-kept": 22,
    "parts-before-queue": 32,
    "good-too-early": 17,
    "let-go-of-what-is-to-come": 41,
    "swept-before-recovery": 23,
    "new-replica-is-good": 18,
    "drop-of-active": 10,
    "last-good-dropped": 18,
    "marked-though-joined-again": 45,
    "source-joined-again": 48,
    "recovers-while-executing": 48,
    "recovery-goes-on-in-doubt": 57,
    "tail-believed": 25,
    "drop-goes-on-after-return": 33,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "clean_torn", "recover_source_returns", "recover_source_lost", "recover_crash", "recover_drop", "lost_while_running",
    "join_clean_insert", "survive_two",
)  # fmt: skip
"""Models that take a second each: not in the fast gate, but their mutants are."""

LONG = (
    "recovers-while-executing", "recovery-goes-on-in-doubt", "source-joined-again", "marked-though-joined-again",
    "tail-believed", "swept-before-recovery", "drop-goes-on-after-return", "recovery-ends-away",
)  # fmt: skip
"""Mutants that are caught only after many thousand states."""
