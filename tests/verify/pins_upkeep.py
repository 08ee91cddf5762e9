"""What the models and mutants of upkeep and of restoring come to: ids, results, parents of the log, a wiped coordination."""

from __future__ import annotations

PINNED = {
    "ids_clean_clean": (13036, 30439, 30, 81),
    "ids_crash": (13627, 33774, 42, 24),
    "ids_by_age": (2667, 6916, 26, 16),
    "ids_remembered": (2367, 5711, 27, 5),
    "ids_doubt": (1952, 4847, 21, 16),
    "ids_command": (1359, 3247, 20, 16),
    "ids_command_again": (2159, 4428, 34, 38),
    "ids_dropped": (108057, 352088, 60, 8),
    "ids_notes": (39413, 105729, 51, 79),
    "results_queued": (43640, 139070, 45, 6),
    "results_away": (20332, 57414, 49, 6),
    "results_lost": (535, 989, 42, 2),
    "results_killed": (9908, 29569, 41, 3),
    "roll_insert": (33131, 91431, 188, 29),
    "roll_two": (5860, 17724, 19, 32),
    "roll_token": (921, 2202, 15, 9),
    "roll_crash": (77768, 288341, 50, 56),
    "roll_again": (40687, 135261, 45, 34),
    "roll_merge": (4052, 12323, 35, 3),
    "roll_command": (23286, 61509, 187, 29),
    "roll_replaced": (29545, 76899, 66, 33),
    "roll_clean": (7156, 14193, 58, 31),
    "roll_session": (33555, 74639, 218, 44),
    "restore_crash": (11247, 18786, 57, 105),
    "restore_breaks": (2682, 4523, 43, 42),
    "restore_join": (5752, 11423, 107, 19),
    "restore_session": (10445, 25717, 172, 11),
    "restore_start": (1765, 2397, 54, 45),
    "restore_two": (13550, 28830, 99, 47),
    "restored": (75142, 231342, 97, 6),
    "restore_spoilt": (517, 902, 77, 2),
    "restore_detached": (242, 289, 49, 9),
}
"""States, transitions, depth, quiet states."""

NIGHTLY = {
    "ids_session": (122856, 303527, 83, 91),
    "results_join": (940522, 3263858, 72, 18),
    "results_crash": (335106, 1080215, 55, 18),
    "results_doubt": (113607, 320886, 83, 35),
    "restore_join_late": (995320, 2392682, 147, 1713),
}

STEPS = {
    "ids-by-own-clock": 7,
    "newest-ids-forgotten": 7,
    "ids-removed-uncounted": 16,
    "ids-removed-unversioned": 15,
    "remembered-ids-believed": 21,
    "insert-settled-by-its-id-alone": 18,
    "command-settled-by-its-id-alone": 17,
    "start-of-log-asked-before-the-search": 43,
    "dropped-without-looking": 18,
    "note-forgotten-too-early": 13,
    "result-forgotten-before-queues": 17,
    "result-forgotten-without-asking": 9,
    "result-forgotten-for-who-is-away": 27,
    "result-to-come-forgotten": 20,
    "result-forgotten-for-who-joins": 53,
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
    "restored-good-at-once": 3,
    "restore-keeps-what-was-registered": 25,
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
