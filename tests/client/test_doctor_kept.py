"""The doctor's judgement of what is kept after it has left the table: for readers, tags and the change feed."""

from __future__ import annotations

import pytest

from replitree.client.admin.doctor import Severity
from replitree.wire.consumer_status import ConsumerStatus
from tests.client.test_doctor import GIB, a_cluster, a_replica, a_table, codes, the


def test_leases_that_keep_much_for_long_are_worth_a_word() -> None:
    held = {"leases": 2, "old_parts": 9, "old_bytes": 4 * GIB, "old_since_s": 9000.0}
    table = a_table(a_replica("r1"), a_replica("r2", **held))
    assert codes(a_cluster(table)) == {"old-parts": Severity.NOTICE}
    for less in ({"leases": 0}, {"old_bytes": 100}, {"old_since_s": 60.0}):
        assert codes(a_cluster(a_table(a_replica("r1"), a_replica("r2", **{**held, **less})))) == {}


@pytest.mark.parametrize(("keeper", "code"), [("tagged", "tagged-parts"), ("feed", "feed-large")])
def test_tags_and_a_feed_that_keep_much_are_worth_a_word(keeper: str, code: str) -> None:
    kept = {"old_parts": 9, "old_bytes": 4 * GIB, "old_since_s": 9000.0}
    kept |= {f"{keeper}_parts": 8, f"{keeper}_bytes": 4 * GIB}
    # What they keep is not blamed on a lease.
    table = a_table(a_replica("r1"), a_replica("r2", leases=1, **kept))
    finding = the(a_cluster(table), code)
    assert codes(a_cluster(table)) == {code: Severity.NOTICE}
    assert "8 parts" in finding.text
    assert "4.0 GiB" in finding.text
    assert codes(a_cluster(a_table(a_replica("r1"), a_replica("r2", **{**kept, f"{keeper}_bytes": 100})))) == {}


def test_a_feed_with_holes_is_worth_more_where_no_replica_has_all() -> None:
    one, other = a_replica("r1", feed_missing=3), a_replica("r2")
    assert the(a_cluster(a_table(one, other)), "feed-incomplete").severity is Severity.NOTICE
    finding = the(a_cluster(a_table(one, a_replica("r2", feed_missing=1))), "feed-incomplete")
    assert finding.severity is Severity.WARNING
    assert "3 parts on r1" in finding.text
    assert "OffsetExpired" in finding.text
    # Nothing is read at a replica that does not serve.
    away = a_replica("r2", active=False)
    assert the(a_cluster(a_table(one, away)), "feed-incomplete").severity is Severity.WARNING


def a_consumer(**facts: float | str) -> ConsumerStatus:
    return ConsumerStatus(
        **{  # type: ignore[arg-type]
            "name": "etl",
            "index": 41,
            "idle_s": 60.0,
            "hold_s": 600.0,
            "bytes": 0,
            "bytes_max": 4 * GIB,
            **facts,
        }
    )


def test_a_consumer_that_has_used_up_half_of_a_limit_is_behind() -> None:
    assert codes(a_cluster(a_table(a_replica("r1", consumers=(a_consumer(),)), a_replica("r2")))) == {}
    for facts in ({"idle_s": 300.0}, {"bytes": 2 * GIB}):
        # What one replica keeps is enough.
        table = a_table(a_replica("r1", consumers=(a_consumer(),)), a_replica("r2", consumers=(a_consumer(**facts),)))
        finding = the(a_cluster(table), "consumer-behind")
        assert codes(a_cluster(table)) == {"consumer-behind": Severity.WARNING}
        assert "stands at 41" in finding.text


def test_a_consumer_whose_hold_has_ended_is_reported_until_it_is_dropped() -> None:
    expired = a_consumer(idle_s=0.0, expired="it had not moved")
    table = a_table(a_replica("r1", consumers=(a_consumer(idle_s=590.0),)), a_replica("r2", consumers=(expired,)))
    finding = the(a_cluster(table), "consumer-expired")
    assert codes(a_cluster(table)) == {"consumer-expired": Severity.WARNING}
    assert "at 41, because it had not moved" in finding.text
    assert "replitree consumers drop events etl" in finding.advice
