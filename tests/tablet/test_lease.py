"""What an entry says of a lease, how long it lasts, how long a successor waits."""

from __future__ import annotations

import pytest

from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.lease import Tenure, duration_of, extended, lowered, may_answer, metadata, ready_at, released
from replitree.tablet.group.ids import NOTHING, Step
from tests.tablet.building import at


def entry(tenure: Tenure) -> LogEntry:
    """An entry of a leader with this lease."""
    return LogEntry(NOTHING, Step(0), metadata=metadata(tenure))


def test_entry_makes_the_lease_last_from_when_it_was_sent() -> None:
    tenure = extended(Tenure(10), sent_ns=100)
    assert may_answer(tenure, 109)
    assert not may_answer(tenure, 110)


def test_lease_is_never_shortened_by_an_older_entry() -> None:
    assert extended(extended(Tenure(10), 100), 90) == Tenure(10, 110)


def test_there_is_no_lease_without_a_duration() -> None:
    assert not may_answer(extended(Tenure(), 100), 100)
    assert metadata(Tenure()) == ()


def test_successor_waits_twice_what_the_last_entry_says() -> None:
    accepted = ((at(1, 1), entry(Tenure(50))), (at(1, 2), entry(Tenure(10))))
    assert ready_at(accepted, fenced_ns=1000) == 1020
    assert ready_at((), fenced_ns=1000) == 1000


def test_lease_that_is_lowered_ends_as_if_it_had_never_been_longer() -> None:
    tenure = lowered(extended(Tenure(10), sent_ns=100), 4)
    assert tenure == Tenure(4, 104)
    assert extended(tenure, sent_ns=101) == Tenure(4, 105)  # sent before, when it was longer
    assert duration_of(entry(tenure)) == 4
    assert lowered(Tenure(10), 4) == Tenure(4, 0)
    with pytest.raises(AssertionError):
        lowered(tenure, 5)


def test_lease_that_was_given_up_is_not_waited_for() -> None:
    tenure = released(extended(Tenure(10), 100))
    assert not may_answer(tenure, 100)
    assert duration_of(entry(tenure)) == 0
    assert ready_at(((at(1, 1), entry(tenure)),), 1000) == 1000
