"""The doctor's judgement of parts that are to move between disks and an object store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from replitree.client.admin.doctor import Severity
from replitree.client.admin.doctor_state import ClusterState
from replitree.client.transport.answers import MoveStatus, MoveWaiting
from tests.client.test_doctor import a_cluster, a_replica, a_table, codes, the


def a_mover(**facts: Any) -> ClusterState:
    moving = replace(MoveStatus(storage="s3://lake/t", parts_left=2), **facts)
    return a_cluster(a_table(a_replica("r1", moving=moving), a_replica("r2")))


@pytest.mark.parametrize(
    ("tries", "severity"), [(4, None), (5, Severity.NOTICE), (9, Severity.NOTICE), (10, Severity.WARNING)]
)
def test_a_part_that_can_not_be_moved(tries: int, severity: Severity | None) -> None:
    state = a_mover(waiting=(MoveWaiting(part="all_0_0_0", reason="the bucket is full", tries=tries),))
    assert codes(state) == ({} if severity is None else {"not-moved": severity})
    if severity is not None:
        assert "all_0_0_0 in" in the(state, "not-moved").text
        assert "the bucket is full" in the(state, "not-moved").text


def test_a_store_that_can_not_be_used_is_a_warning() -> None:
    state = a_mover(problem="no credentials for the object store")
    assert codes(state) == {"store-unusable": Severity.WARNING}
    assert "no credentials" in the(state, "store-unusable").text
