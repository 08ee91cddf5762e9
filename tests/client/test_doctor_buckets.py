"""The doctor's judgement of moves of buckets between the shards of a table."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.client.admin.doctor import Severity
from replitree.client.admin.doctor_state import ClusterState
from replitree.client.admin.moving import BucketMove, MovingTable
from tests.client.test_doctor import a_cluster, codes, the


def moving(**facts: Any) -> ClusterState:
    table = MovingTable(name="d", buckets=4, moves=(BucketMove(0, 1, 4),), rows=1200, bytes=5 << 20, **facts)
    return a_cluster(moving=(table,))


@pytest.mark.parametrize(
    ("idle_s", "found"),
    [(2.0, {"buckets-move": Severity.NOTICE}), (301.0, {"moves-stuck": Severity.WARNING})],
)
def test_moves_without_progress_are_worth_a_warning(idle_s: float, found: dict[str, Severity]) -> None:
    state = moving(idle_s=idle_s)
    assert codes(state) == found
    (code,) = found
    assert "4 buckets of the sharded table d move, and 1,200 rows (5 MiB) have arrived" in the(state, code).text
    assert "replitree shard resume d" in the(state, code).advice


def test_rows_that_differ_are_worth_a_warning_with_the_reason() -> None:
    state = moving(refused=3, reason="r2 has prepared 9 rows")
    assert codes(state) == {"buckets-move": Severity.NOTICE, "moved-rows-differ": Severity.WARNING}
    finding = the(state, "moved-rows-differ")
    assert "3 batches of the moves of d" in finding.text
    assert "r2 has prepared 9 rows" in finding.text
    assert "no such row was shown or deleted" in finding.advice
