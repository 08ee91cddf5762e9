"""The change feed in Spark: frames have the rows that a client reads in Arrow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from replitree.client.cluster import LocalCluster
from replitree.errors import BadInput
from replitree.spark.read.feed_read import plan_feed, reads_feed
from replitree.spark.session.option_names import known_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def counted(frame: DataFrame) -> Counter[str]:
    columns = sorted(frame.columns)
    return Counter(repr([row[name] for name in columns]) for row in frame.collect())


@pytest.mark.system
@pytest.mark.slow
def test_a_frame_has_the_rows_of_the_feed(running: LocalCluster, spark: SparkSession) -> None:
    table = running.create_table(
        "fed", "k bigint not null, s string, l array<int>", order_by="k", partition_by="bucket(2,k)", feed="1 day"
    )
    table.insert({"k": list(range(8)), "s": ["a"] * 8, "l": [[1, None]] * 8})
    table.update({"s": "concat(s, 'b')"}, "k > 5")
    table.delete("k = 0")
    table.insert({"k": [9], "s": [None], "l": [None]})
    with table.changes(0) as changes:
        whole, end = counted(changes.to_df(spark)), changes.end
        assert sum(whole.values()) == 8 + 4 + 1 + 1

    def changed(**options: object) -> DataFrame:
        source = spark.read.format("replitree").options(url=str(running.folder), readChangeFeed="true")
        return source.options(**options).load("fed")  # type: ignore[arg-type]

    assert counted(changed(startingVersion=0, partitions=3)) == whole
    middle = changed(startingVersion=1, endingVersion=2, where="k <> 6", columns="k")
    assert middle.columns == ["k", "_change_type", "_commit_version", "_commit_timestamp"]
    found = sorted((row["_commit_version"], row["k"], row["_change_type"]) for row in middle.collect())
    assert found == [(1, 7, "update_postimage"), (1, 7, "update_preimage"), (2, 0, "delete")]
    assert changed(startingVersion=end).count() == 0
    with table.changes(end) as changes:
        assert counted(changes.to_df(spark)) == Counter()
    running.drop_table("fed")


def test_options_of_the_feed_and_of_snapshots_exclude_each_other() -> None:
    with pytest.raises(BadInput, match="asof is of a snapshot"):
        reads_feed(known_options({"readChangeFeed": "true", "versionAsOf": "3"}))
    with pytest.raises(BadInput, match="set readChangeFeed to true"):
        reads_feed(known_options({"startingVersion": "3"}))
    with pytest.raises(BadInput, match="changes need startingVersion"):
        plan_feed({"readchangefeed": "true", "table": "t"}, None)  # type: ignore[arg-type]
    assert not reads_feed({})
