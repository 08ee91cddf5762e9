"""States, moves and depth of each model of a tablet: if they change and the code does not say why, that is a finding."""

from __future__ import annotations

PINNED = {
    "take_over": (3608, 11977, 23),
    "take_over_twice_away": (13201, 46255, 25),
    "pipeline": (12146, 47798, 26),
    "lost_answers": (5141, 22506, 26),
    "references": (10265, 40948, 28),
    "free_entries": (69482, 308137, 38),
    "repeated": (20878, 87198, 35),
    "repeated_pair": (26923, 112785, 35),
    "failing": (423, 1197, 11),
    "free_three": (787, 3032, 12),
    "generations_left_out": (1865, 6306, 33),
    "same_generation": (398, 1280, 17),
    "same_generation_of_two": (566, 1482, 14),
    "snapshot_collected": (18943, 72183, 26),
    "total_snapshot": (19034, 72347, 26),
    "damaged": (11897, 42903, 25),
    "complete_crash": (207622, 1287781, 35),
    "complete_lost": (555695, 3442318, 34),
}

STEPS = {
    "reads-without-fence": 15,
    "tail-not-restored": 16,
    "damaged-is-absent": 19,
    "quorums-do-not-meet": 13,
    "fence-without-majority": 16,
    "fence-without-issuer": 23,
    "zero-entry-not-awaited": 13,
    "doubt-is-nothing": 13,
    "references-not-looked-for": 18,
    "predecessor-is-the-one-before": 28,
    "declined-looked-at-again": 29,
    "mask-left-out": 31,
    "mask-from-the-other-end": 29,
    "dependencies-not-awaited": 4,
    "references-not-awaited": 3,
    "confirmed-over-holes": 6,
    "barrier-at-the-snapshot": 21,
    "step-used-again": 8,
}
"""How long the shortest way to each mutant's breach is."""

FAST = (
    "take_over",
    "lost_answers",
    "failing",
    "free_three",
    "generations_left_out",
    "same_generation",
    "same_generation_of_two",
)
"""Models that are quick enough for `make check`."""

QUICK = (
    "tail-not-restored",
    "fence-without-majority",
    "fence-without-issuer",
    "zero-entry-not-awaited",
    "doubt-is-nothing",
    "quorums-do-not-meet",
    "predecessor-is-the-one-before",
    "dependencies-not-awaited",
    "references-not-awaited",
    "confirmed-over-holes",
    "step-used-again",
)
"""Mutants that are caught as quickly."""
