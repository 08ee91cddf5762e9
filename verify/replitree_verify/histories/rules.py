"""The rules that a history must keep, and what it is called when it does not.

*L6* holds for every read that promises an order, and for the log itself: inserts are ordered by one log, whatever is read.
*S7* is asked of reads that promise an order: an eventual one may show an insert that waits for its quorum, and then fails.
*L4* asks of a linearizable read to show what any earlier read of the log showed, of any client.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.wire.history_format import Level


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes
    ----------
    number
        What it is called in reports.
    anomaly
        The name of its violation.
    level
        The weakest level whose promise is broken.
    says
        What happened, when it does not hold.
    """

    number: str
    anomaly: str
    level: Level
    says: str


RULES = {
    rule.number: rule
    for rule in (
        Rule("S1", "garbage_read", "eventual", "a read shows a row that no client inserted"),
        Rule("S2", "aborted_read", "eventual", "a read shows an insert that failed"),
        Rule("S3", "duplicate_rows", "eventual", "a row is there twice"),
        Rule("S4", "torn_insert", "eventual", "a read shows some rows of an insert and not the others"),
        Rule("S5", "lost_write", "eventual", "no closing read shows an acknowledged insert"),
        Rule("S6", "divergence", "eventual", "closing reads at two replicas differ"),
        Rule("S7", "dirty_read", "sequential", "a read shows an insert before it counts, or one whose quorum failed"),
        Rule("S8", "ack_without_quorum", "eventual", "an insert was acknowledged that too few replicas had"),
        Rule("P1", "wedged_replica", "eventual", "after the faults one replica answers nothing, and others do"),
        Rule("P2", "unavailable", "eventual", "after the faults no replica answers"),
        Rule("L1", "stale_read", "linearizable", "a read lacks an insert that was acknowledged before it began"),
        Rule("L2", "future_read", "eventual", "a read shows an insert that came after it"),
        Rule("L3", "hole", "sequential", "a read lacks an insert that is in the log below what it shows"),
        Rule("L4", "nonmonotonic_read", "linearizable", "a read lacks what an earlier one showed"),
        Rule("L5", "long_fork", "sequential", "each of two reads lacks what the other one shows"),
        Rule(
            "L6",
            "write_order_inversion",
            "sequential",
            "an insert counts before one that was acknowledged before it began",
        ),
        Rule("Q1", "nonmonotonic_read", "sequential", "a read lacks what the same client saw before"),
        Rule("Q2", "read_your_writes", "sequential", "a read lacks an insert that its client had been told of"),
        Rule("W1", "no_order", "sequential", "no order of the operations explains what all reads of some rows show"),
        Rule("Q4", "nonmonotonic_read", "sequential", "a read lacks what its replica showed before"),
    )
}
"""All rules by their numbers, in the order of reports."""

ALL = frozenset(RULES)
