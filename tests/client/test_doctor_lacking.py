"""What the doctor says of parts that are lacking, and of rows that were lost."""

from __future__ import annotations

import pytest

from replitree.client.admin.doctor_state import Lacking
from replitree.client.transport.answers import MoveStatus
from tests.client.test_doctor import a_cluster, a_replica, a_table, the


@pytest.mark.parametrize(
    ("insert_parts", "advice"),
    [
        ({"p1_3_3_0": 1}, "p1_3_3_0 was a whole insert: insert it again, its token is free"),
        (
            {"p1_3_3_0": 7},
            "p1_3_3_0 was one of 7 parts of that insert: insert the rows of partition p1 again with a new token",
        ),
        ({"p1_3_3_0": 0}, "p1_3_3_0 had rows of partition p1 only"),
        ({}, "p1_3_3_0 had rows of partition p1 only"),
    ],
)
def test_the_advice_about_tokens_is_that_of_the_insert(insert_parts: dict[str, int], advice: str) -> None:
    replica = a_replica("r2", declared_lost={"p1_3_3_0": 17}, lost_insert_parts=insert_parts)
    assert advice in the(a_cluster(a_table(a_replica("r1"), replica)), "rows-lost").advice


def test_parts_that_are_lacking_everywhere_are_told_with_the_next_command_and_the_copies_that_were_not_used() -> None:
    copies = {"all_0_0_0": {"leaving/all_0_0_0_0": "data-0.parquet is missing"}}
    lacking = a_replica(
        "r2", lacking=(Lacking(part="all_0_0_0"),), unusable_copies=copies, moving=MoveStatus(storage="file:///store")
    )
    finding = the(a_cluster(a_table(a_replica("r1", active=False), lacking)), "lost-parts")
    assert "leaving/all_0_0_0_0 (data-0.parquet is missing)" in finding.text
    assert finding.advice.startswith("start the server of r1")
    assert "replitree fsck events --repair" in finding.advice
    assert "below detached/" in finding.advice
