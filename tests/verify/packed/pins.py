"""What the packed models come to.  The published ones are as other checkers have counted them, to the unit."""

from __future__ import annotations

TL, RP, QB, QV = "published/truncate-log", "published/replication", "published/quorum", "published/quorum-views"
QP, RQ, QQ = "mended/quorum-partitions", "mended/replication-queues", "mended/quorum-queues"
BOUNDED = {"history": 2, "reads": 2}
WEAK_KEEPS = ("QuorumSelect", "ReadAfterWrite", "NoReadOfFailed", "AckedDurable")
"""What also a read without check keeps."""


def size(replicas: int, records: int, **more: int) -> dict[str, int]:
    return {"replicas": replicas, "records": records, **more}


SMALL = [
    (TL, size(3, 4), 25_581, 4_354, 20),
    (TL, size(3, 5), 57_981, 9_772, 24),
    (TL, size(3, 7), 216_305, 35_988, 32),
    (TL, size(4, 5), 699_817, 92_288, 30),
    (TL, size(4, 7), 3_427_113, 443_424, 40),
    (RP, size(3, 4), 379_647, 71_116, 20),
    (RP, size(2, 6), 2_034_466, 460_974, 27),
    (QB, size(3, 2), 42_745, 9_208, 17),
    (QB, size(3, 3), 383_177, 84_056, 23),
    (QB, size(3, 4), 2_093_217, 470_072, 28),
    (QB, size(3, 3, **BOUNDED), 1_219_289, 245_232, 24),
    (QB, size(3, 2, **BOUNDED), 94_205, 18_744, 18),
    (QV, {}, 2_669_161, 419_976, 21),
    ("mended/truncate-log", {}, 1_403_765, 139_184, 28),
    ("mended/replication", {}, 2_189_461, 303_160, 20),
    ("mended/quorum", {}, 3_880_567, 670_624, 22),
    ("mended/quorum-lagging", {}, 5_219_299, 907_000, 22),
    (QP, {}, 5_790_749, 1_201_472, 29),
    (RQ, size(2, 3), 1_383_017, 131_972, 23),
    (QQ, {}, 629_508, 80_437, 16),
    (QQ, size(2, 3), 6_008_257, 688_294, 16),
]
"""Model, limits, generated, states, depth."""

LARGE = [
    (TL, size(3, 20), 21_137_725, 3_425_114, 84),
    (TL, size(5, 5), 8_387_333, 902_572, 36),
    (TL, size(5, 7), 53_870_981, 5_658_180, 48),
    (RP, size(3, 5), 5_438_895, 1_006_512, 27),
    (RQ, size(2, 4), 86_054_269, 6_816_586, 29),
    (QQ, size(3, 3), 211_712_463, 20_536_804, 22),
]

WITH_FRONTIER = (25_475, 29_657)
"""States of quorum 3 x 2 with at most two reads, and those with one more: the checked read, the weak one."""

VIEWS_WITHOUT_SYNC = 605_232
"""States of `QV` where reads do not sync."""

ONCE_FOR_ALL = [
    (TL, size(6, 5), 96_191_964, 9_113_744, 42),
    (TL, size(5, 10), 409_495_198, 45_092_762, 66),
]
"""The same, where an insert is counted once for a state, whoever may take it."""

SYMMETRIC = [
    (TL, size(3, 7), 7_578),
    (TL, size(4, 7), 28_908),
    (TL, size(5, 5), 18_528),
    (RP, size(3, 4), 12_374),
    (RP, size(3, 5), 171_953),
    (RQ, size(3, 3), 2_113_678),
    (QQ, {}, 17_896),
    (QQ, size(3, 3), 3_853_800),
    (QB, size(3, 3), 14_958),
    (QB, size(3, 4), 81_424),
]

MUTANTS = {
    (TL, "lost-comes-back"): ("ValidLogPointer", 7),
    (TL, "cleaned-to-the-maximum"): ("ValidLogPointer", 4),
    (TL, "cleaned-without-mark"): ("ValidLogPointer", 7),
    (TL, "never-cleaned"): ("IsLogCleared", 11),
    (TL, "nobody-is-lost"): ("NobodyLost", 6),
    (RP, "merge-keeps-sources"): ("Converged", 14),
    (RP, "rows-are-counted"): ("NoDup", 6),
    (RP, "merged-rows-are-counted"): ("MergeDisjoint", 7),
    (RP, "rows-are-counted-at-rest"): ("CaughtUpNoDup", 18),
    (RP, "equivalent-for-ever"): ("EquivalentForEver", 2),
    (QB, "weak-read"): ("NoStale", 8),
    (QB, "weak-read-seen-by-order"): ("MonotonicRead", 9),
    (QB, "quorum-ends-early"): ("QuorumSelect", 3),
    (QB, "reads-open-quorum"): ("ReadAfterWrite", 5),
    (QB, "reads-failed"): ("NoReadOfFailed", 6),
    (QB, "no-quorum-fails"): ("NotFailedParts", 4),
    (QB, "failed-although-ended"): ("AckedDurable", 7),
    (QV, "stale-reads"): ("NoStale", 9),
    (QV, "reads-elsewhere"): ("MonotonicRead", 12),
    (QV, "view-goes-back"): ("MonotonicReplica", 12),
    (QV, "quorum-ends-early"): ("QuorumSelect", 3),
    ("mended/truncate-log", "removed-unchecked"): ("ValidLogPointer", 9),
    ("mended/truncate-log", "last-good-marked"): ("OneIsGood", 7),
    ("mended/truncate-log", "clone-from-lost"): ("ValidLogPointer", 11),
    ("mended/truncate-log", "recovering-not-kept-for"): ("ValidLogPointer", 10),
    ("mended/truncate-log", "not-marked"): ("ValidLogPointer", 7),
    ("mended/truncate-log", "marked-though-back"): ("WhoServesIsGood", 2),
    ("mended/truncate-log", "clone-forgotten"): ("ValidLogPointer", 10),
    ("mended/replication", "insert-comes-back"): ("NoDup", 7),
    ("mended/replication", "merge-of-taken"): ("Converged", 20),
    ("mended/replication", "merges-that-overlap"): ("NoDup", 11),
    ("mended/replication", "merge-of-overlapping"): ("MergeDisjoint", 12),
    ("mended/replication", "again-without-id"): ("NoDup", 3),
    ("mended/replication", "again-without-id-at-rest"): ("CaughtUpNoDup", 9),
    ("mended/replication", "rolled-back-in-doubt"): ("Durable", 2),
    ("mended/replication", "sources-stay"): ("NoDup", 7),
    ("mended/replication", "covered-by-number"): ("Converged", 9),
    ("mended/quorum", "read-without-sync"): ("NoStale", 8),
    ("mended/quorum", "failed-not-skipped"): ("PROBES", 0),
    ("mended/quorum", "failed-kept"): ("Detached", 6),
    ("mended/quorum", "acknowledged-unseen"): ("Acknowledged", 6),
    ("mended/quorum", "majority-of-the-living"): ("QuorumSelect", 5),
    ("mended/quorum", "parts-counted"): ("NoHole", 10),
    ("mended/quorum", "log-loses-its-end"): ("Acknowledged", 6),
    (RQ, "insert-comes-back"): ("NoDup", 5),
    (RQ, "merge-of-taken"): ("NoDup", 7),
    (RQ, "forgotten"): ("TableRestored", 3),
    (RQ, "rolled-back"): ("Durable", 2),
    (RQ, "sources-stay"): ("NoDup", 4),
    (RQ, "dropped-comes-back"): ("TableRestored", 6),
    (RQ, "drop-at-once"): ("TableRestored", 4),
    (RQ, "lost-though-there"): ("LossProven", 3),
    (RQ, "recovered-too-early"): ("TableRestored", 4),
    (QQ, "counted-unheld"): ("QuorumSelect", 3),
    (QQ, "settled-before-the-number"): ("QuorumSelect", 4),
    (QQ, "vacuous-wait"): ("ToldAsItIs", 3),
    (QQ, "open-shown"): ("FailedNotShown", 4),
    (QQ, "read-without-sync"): ("NoStale", 5),
    (QQ, "failed-though-settled"): ("EndsOnce", 3),
    (QP, "merge-of-open"): ("MergeOfCommitted", 5),
    (QP, "last-kept-by-drop"): ("ReadsGoOn", 6),
    (QP, "stale-copy-written"): ("ReadsGoOn", 11),
    (QP, "last-of-table"): ("NoHole", 10),
    (QP, "behind-inserts"): ("NoHole", 9),
    ("mended/quorum-lagging", "stale-reads"): ("NoStale", 8),
    ("mended/quorum-lagging", "reads-elsewhere"): ("MonotonicRead", 9),
    ("mended/quorum-lagging", "two-sessions"): ("ReadYourWrites", 11),
    ("mended/quorum-lagging", "two-sessions-stale"): ("NoStale", 9),
    ("mended/quorum-lagging", "two-sessions-elsewhere"): ("MonotonicRead", 12),
    ("mended/quorum-lagging", "view-goes-back"): ("MonotonicSession", 11),
    ("mended/quorum-lagging", "view-goes-back-two-sessions"): ("MonotonicSession", 13),
}
"""Who catches it, and the states of the shortest way there."""

UP_TO_THE_VIOLATION = {
    (RP, "rows-are-counted"): 1_418,
    (QB, "weak-read"): 3_738,
    (QB, "weak-read-seen-by-order"): 9_170,
}
"""States that are generated before the first violation is seen, if the actions are tried in the published order."""
