"""What the models and mutants of upkeep and of restoring come to: ids, results, parents of the log, a wiped coordination."""

from __future__ import annotations

PINNED = {
    "ids_clean_clean": (13010, 30384, 30, 81),
    "ids_crash": (12398, 30850, 41, 24),
    "ids_by_age": (2667, 6916, 26, 16),
    "ids_remembered": (2367, 5711, 27, 5),
    "ids_doubt": (1952, 4847, 21, 16),
    "ids_command": (1359, 3247, 20, 16),
    "ids_command_again": (2277, 4716, 35, 38),
    "ids_dropped": (97139, 321448, 61, 8),
    "ids_notes": (39413, 105729, 51, 79),
    "results_queued": (43640, 139070, 45, 6),
    "results_away": (20008, 56478, 48, 6),
    "results_lost": (514, 949, 41, 2),
    "results_killed": (9908, 29569, 41, 3),
    "roll_insert": (32188, 88852, 187, 29),
    "roll_two": (5860, 17724, 19, 32),
    "roll_token": (921, 2202, 15, 9),
    "roll_crash": (74834, 279706, 49, 56),
    "roll_again": (40580, 135067, 44, 34),
    "roll_merge": (4052, 12323, 35, 3),
    "roll_command": (22585, 59627, 186, 29),
    "roll_replaced": (27956, 72811, 64, 33),
    "roll_clean": (6577, 12992, 58, 31),
    "roll_session": (31904, 70934, 216, 44),
    "restore_crash": (11664, 19368, 57, 105),
    "restore_breaks": (2835, 4748, 43, 42),
    "restore_again": (79, 101, 25, 2),
    "restore_join": (5686, 11314, 106, 19),
    "restore_session": (10131, 24928, 168, 11),
    "restore_start": (1774, 2405, 53, 45),
    "restore_two": (13661, 29121, 98, 47),
    "restored": (73964, 227827, 95, 6),
    "restore_spoilt": (513, 896, 76, 2),
    "restore_detached": (235, 280, 47, 9),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "ids_session": (116759, 288129, 82, 91),
    "results_join": (937674, 3255520, 71, 18),
    "results_crash": (309217, 1005515, 54, 18),
    "results_doubt": (113499, 320676, 82, 35),
    "restore_join_late": (1058453, 2537863, 146, 1713),
}

STEPS = {
    "ids-by-own-clock": 7,
    "newest-ids-forgotten": 7,
    "ids-removed-uncounted": 16,
    "ids-removed-unversioned": 15,
    "remembered-ids-believed": 22,
    "insert-settled-by-its-id-alone": 17,
    "command-settled-by-its-id-alone": 17,
    "start-of-log-asked-before-the-search": 44,
    "dropped-without-looking": 18,
    "note-forgotten-too-early": 13,
    "result-forgotten-before-queues": 19,
    "result-forgotten-without-asking": 9,
    "result-forgotten-for-who-is-away": 26,
    "result-to-come-forgotten": 20,
    "result-forgotten-for-who-joins": 52,
    "roll-over-unfenced": 9,
    "parent-left-open": 4,
    "rolled-over-twice": 5,
    "insert-below-closed-parent": 4,
    "merge-below-closed-parent": 4,
    "command-below-closed-parent": 4,
    "pull-stays-below-closed-parent": 11,
    "closed-parent-left-behind": 10,
    "restore-not-resumable": 6,
    "restore-taken-over-by-itself": 16,
    "restore-unfenced": 27,
    "restored-and-refused": 21,
    "restored-with-anything": 25,
    "restored-good-at-once": 3,
    "restore-keeps-what-was-registered": 26,
    "restore-takes-what-is-broken": 13,
    "restore-brings-back-detached": 16,
    "restored-from-two-replicas": 15,
    "restored-log-begins-anew": 3,
}
"""Steps of the shortest counterexample of each mutant."""

SLOW = (
    "ids_clean_clean", "ids_crash", "ids_dropped", "ids_notes", "results_queued", "results_away", "results_killed",
    "roll_insert", "roll_two", "roll_crash", "roll_again", "roll_merge", "roll_command", "roll_replaced", "roll_clean",
    "roll_session", "restore_crash", "restore_join", "restore_session", "restore_start", "restore_two", "restored",
)  # fmt: skip
"""Models that take a second each, or nearly: not in the fast gate, but their mutants are."""

LONG = ("start-of-log-asked-before-the-search", "result-forgotten-for-who-joins")
"""Mutants that are caught only after many thousand states."""
