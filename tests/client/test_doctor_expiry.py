"""The doctor's judgement of rows whose time is over and that are not removed."""

from __future__ import annotations

import pytest

from replitree.client.admin.doctor import Severity
from replitree.client.admin.doctor_state import ClusterState
from replitree.client.transport.answers import ExpiryStatus, expiry_in
from tests.client.test_doctor import a_cluster, a_replica, a_table, codes, the

FOLLOWS = "r1 leads, and removes them"


def told(first: str, second: str, *leaders: str) -> ClusterState:
    """What two replicas say of why they remove nothing."""
    said = [ExpiryStatus(ttl="at + 90 days", reason=reason) for reason in (first, second)]
    replicas = [a_replica(name, expiry=each) for name, each in zip(("r1", "r2"), said, strict=True)]
    return a_cluster(a_table(*replicas, leaders=leaders))


@pytest.mark.parametrize(("first", "second"), [("", FOLLOWS), (FOLLOWS, FOLLOWS)])
def test_a_table_whose_leader_removes_rows_is_well(first: str, second: str) -> None:
    assert codes(told(first, second, "r1")) == {}


def test_a_leader_that_can_not_remove_rows_says_why() -> None:
    state = told("the last removal, at log index 7, is not executed here yet", FOLLOWS, "r1")
    assert codes(state) == {"ttl-idle": Severity.NOTICE}
    assert "log index 7" in the(state, "ttl-idle").text


def test_without_a_leader_no_rows_go() -> None:
    state = told(
        "no replica is known to lead: merges may be paused", "no replica is known to lead: merges may be paused"
    )
    assert "no replica leads" in the(state, "ttl-idle").text
    assert "replitree table resume-merges events" in the(state, "ttl-idle").advice


def test_an_answer_of_another_version_says_nothing() -> None:
    assert expiry_in({"ttl": 7}) is None
    assert expiry_in(None) is None
