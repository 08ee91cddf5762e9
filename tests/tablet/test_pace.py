"""When what waits is sent: at once when nothing is on its way, full or in its turn when something is."""

from __future__ import annotations

import pytest

from replitree.tablet.core.pace import Limits, Pace, landed, patience_ns, sent

LIMITS = Limits(flights=4, batch_bytes=1000, batch_commands=10)


@pytest.mark.parametrize(
    ("pace", "commands", "size", "wait"),
    [
        (Pace(), 0, 0, None),
        (Pace(), 1, 1, 0),
        (Pace(1, 100, 80), 1, 1, 15),
        (Pace(1, 100, 80), 10, 1, 0),
        (Pace(1, 100, 80), 1, 1000, 0),
        (Pace(1, 50, 80), 1, 1, 0),
        (Pace(4, 0, 80), 10, 1000, None),
    ],
    ids=["nothing waits", "idle", "in its turn", "many", "large", "its turn has come", "too many on their way"],
)
def test_what_waits_is_sent(pace: Pace, commands: int, size: int, wait: int | None) -> None:
    assert patience_ns(pace, LIMITS, commands, size, now_ns=105) == wait


def test_usual_time_follows_slowly() -> None:
    pace = landed(sent(Pace(), 10), 800)
    assert pace == Pace(0, 10, 800)
    assert landed(sent(pace, 20), 1600).usual_ns == 900
