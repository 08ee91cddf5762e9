"""Times of entries that the cleaner has removed: real processes, a short log, and a restart of all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.errors import SnapshotExpired
from tests.times import time_of
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS: dict[str, object] = {
    "min_replicated_logs_to_keep": 2,
    "max_replicated_logs_to_keep": 4,
    "clean_log_delay_s": 0.2,
    "clean_log_delay_random_s": 0.1,
    "old_parts_lifetime_s": 0.0,
}


def test_time_is_answered_after_the_log_was_cleaned_and_all_replicas_were_killed(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 3, durable=False, settings=SETTINGS) as running:
        table = running.create_table("t", "k bigint not null", order_by="k", wait_replicas=3, keep="7 days")
        ends = []
        for number in range(12):
            table.insert({"k": [number]}, quorum=3)
            # The insert is in the table from the entry that settles it on.
            ends.append(table.history(1)[0])
        table.truncate()

        def is_cleaned() -> bool:
            # Replicas remember entries that ZooKeeper has forgotten, but not their ids.
            return min(entry.index for entry in table.history() if entry.ids) > ends[-3].index

        def keys(time: datetime | str, name: str | None = None) -> list[int]:
            asked = table if name is None else table.replica(name)
            return sorted(asked.to_arrow(as_of=time, timeout_s=60.0)["k"].to_pylist())

        wait_for(is_cleaned, "the log is cleaned", 60.0)
        for victim in running.names:
            running.kill(victim)
        for victim in running.names:
            running.start(victim)
        for end in ends:
            for name in (None, *running.names):
                assert keys(time_of(end), name) == [k for k, each in enumerate(ends) if time_of(each) <= time_of(end)]
        assert keys(time_of(ends[0]) - timedelta(milliseconds=1)) == [], "the first insert was not settled"
        with pytest.raises(SnapshotExpired, match="the table was created at"):
            keys("2020-01-01")
