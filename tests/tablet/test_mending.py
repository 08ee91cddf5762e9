"""A new leader restores what a member missed, however old, as far as anybody has it."""

from __future__ import annotations

import pytest

from replitree.tablet.core.commit import Draft
from replitree.tablet.core.election import Won
from replitree.tablet.core.mending import BLOBS_AT_ONCE, Mended, blobs_of, mend
from replitree.tablet.group.effects import Fence, NotKnown
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.quorum import Quorum, over_members
from tests.tablet.building import GROUP, TABLET, data_id, entry_id
from tests.tablet.cluster import ONE_GROUP, Cluster


def test_member_that_was_away_gets_everything() -> None:
    cluster = Cluster()
    ledger = cluster.lead(reachable=(0, 1))[0]
    reference = data_id(1, 1)
    ledger = cluster.commit(ledger, Draft(parallel=((reference, b"body"),)), at=(0, 1))
    for _ in range(3):
        ledger = cluster.commit(ledger, at=(0, 1))
    elected = cluster.stand()
    assert isinstance(elected, Won)
    assert cluster.copies(entry_id(1, 2)) == [0, 1]  # known to be confirmed, so the recovery left it
    fence = Fence(Generation(1), "c2")
    blobs = blobs_of(TABLET, Generation(2), elected.recovered.accepted)
    assert cluster.run(mend(cluster.channels, fence, blobs)) == Mended()
    for blob in (entry_id(1, 0), entry_id(1, 2), reference):
        assert cluster.copies(blob) == [0, 1, 2]


def test_nothing_is_called_whole_when_too_few_answer() -> None:
    cluster = Cluster()
    cluster.commit(cluster.lead()[0])
    elected = cluster.stand()
    assert isinstance(elected, Won)
    cluster.reachable = (2,)
    blobs = blobs_of(TABLET, Generation(2), elected.recovered.accepted)
    found = cluster.run(mend(cluster.channels, Fence(Generation(1), "c2"), blobs))
    assert isinstance(found, NotKnown)


def test_it_is_done_a_few_blobs_at_a_time() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for _ in range(BLOBS_AT_ONCE + 1):
        ledger = cluster.commit(ledger, at=(0, 1))
    elected = cluster.stand()
    assert isinstance(elected, Won)
    asked = cluster.asked
    blobs = blobs_of(TABLET, Generation(2), elected.recovered.accepted)
    assert cluster.run(mend(cluster.channels, Fence(Generation(1), "c2"), blobs)) == Mended()
    assert cluster.asked - asked == 2 * 2  # read, and written to the member that missed them


def test_group_of_one_member_is_not_asked() -> None:
    blobs = (entry_id(1, 0), entry_id(1, 1))
    asking = over_members(mend(ONE_GROUP, Fence(Generation(1), "c2"), blobs), {GROUP: Quorum(GROUP, 1, 1)})
    with pytest.raises(StopIteration) as ended:
        next(asking)
    assert ended.value.value == Mended()


def test_first_zero_entry_that_is_damaged_does_not_stop_the_rest() -> None:
    cluster = Cluster()
    ledger = cluster.lead()[0]
    for _ in range(2):
        ledger = cluster.commit(ledger, at=(0, 1))
    cluster.rot(entry_id(1, 0), at=(0, 1))
    elected = cluster.stand()
    assert isinstance(elected, Won)
    blobs = blobs_of(TABLET, Generation(2), elected.recovered.accepted)
    assert cluster.run(mend(cluster.channels, Fence(Generation(1), "c2"), blobs)) == Mended()
    assert cluster.copies(entry_id(1, 1)) == [0, 1, 2]
