"""What the models and mutants of a long life come to: cleaning, recovery, joining, dropping."""

from __future__ import annotations

PINNED = {
    "clean_clean": (539, 1152, 19, 18),
    "clean_crash": (8548, 18276, 31, 23),
    "clean_half_dropped": (10, 9, 9, 1),
    "clean_torn": (56855, 151303, 47, 98),
    "clean_pull": (53101, 145034, 90, 12),
    "clean_duplicate": (279, 499, 26, 8),
    "recover_crash": (27350, 54429, 75, 29),
    "recover_get": (933, 1693, 44, 4),
    "recover_merge": (8598, 15173, 56, 12),
    "recover_drop": (35031, 78173, 75, 32),
    "recover_gone": (7975, 15770, 64, 18),
    "recover_source_lost": (49264, 128995, 70, 12),
    "recover_source_returns": (74298, 187971, 88, 16),
    "recover_pointer": (29145, 77370, 45, 41),
    "recover_queue": (650, 1076, 49, 5),
    "recover_hole": (678, 1124, 50, 5),
    "forgiven": (654, 1101, 50, 5),
    "lost_while_running": (53327, 134646, 87, 32),
    "join_clean": (20123, 53613, 74, 22),
    "join_clean_insert": (50449, 123944, 73, 59),
    "drop_activation": (13176, 33913, 73, 13),
    "drop_each_other": (5482, 12576, 27, 4),
    "survive_two": (97137, 266340, 91, 21),
    "survive_behind": (41448, 92475, 103, 13),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "clean_return": (218595, 720461, 71, 18),
    "clean_insert": (901920, 3110935, 127, 64),
    "recover_doubt": (530178, 1668365, 94, 30),
    "recover_session": (1069959, 3154151, 79, 52),
    "recover_away": (1446672, 4732807, 94, 27),
    "recover_mutate": (164879, 443273, 72, 20),
    "recover_own_insert": (701521, 2395973, 136, 111),
    "recover_two": (395191, 1144976, 67, 1),
    "lost_while_making": (632678, 2089746, 110, 92),
    "recover_source_dropped": (793929, 2245842, 143, 14),
    "drop_half": (260809, 791815, 88, 55),
    "drop_session": (990775, 3059051, 346, 79),
}

STEPS: dict[str, int] = {
    "removal-proves-nothing": 38,
    "pointer-before-lost": 38,
    "recovering-pointers-read-once": 40,
    "sources-not-kept-for": 39,
    "added-replicas-unseen": 18,
    "marked-after-removal": 9,
    "marked-though-back": 19,
    "last-good-marked": 9,
    "removal-from-the-top": 10,
    "half-dropped-blocks-cleaning": 8,
    "clone-from-lost": 17,
    "source-unchecked": 27,
    "start-of-log-not-looked-at": 9,
    "removed-entry-awaited": 18,
    "pointer-of-source-unversioned": 39,
    "recovery-ends-away": 38,
    "own-queue-kept": 25,
    "own-parts-kept": 22,
    "parts-before-queue": 30,
    "good-too-early": 17,
    "let-go-of-what-is-to-come": 41,
    "swept-before-recovery": 23,
    "new-replica-is-good": 18,
    "drop-of-active": 10,
    "last-good-dropped": 18,
    "marked-though-joined-again": 44,
    "source-joined-again": 48,
    "recovers-while-executing": 48,
    "recovery-goes-on-in-doubt": 57,
    "tail-believed": 25,
    "drop-goes-on-after-return": 33,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "clean_torn", "clean_pull", "recover_source_returns", "recover_source_lost", "recover_crash", "recover_drop",
    "lost_while_running", "join_clean_insert", "survive_two",
)  # fmt: skip
"""Models that take a second each: not in the fast gate, but their mutants are."""

LONG = (
    "recovers-while-executing", "recovery-goes-on-in-doubt", "source-joined-again", "marked-though-joined-again",
    "tail-believed", "swept-before-recovery", "drop-goes-on-after-return", "recovery-ends-away",
)  # fmt: skip
"""Mutants that are caught only after many thousand states."""
