"""Options of streams that read a table: what is wrong with them is said before anything is read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from replitree.errors import BadInput, ReplitreeError
from replitree.spark.session.option_names import known_options
from replitree.spark.source import ReplitreeSource
from replitree.spark.stream.stream_read import TableStream


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer": "7"}, "can't be a consumer's name"),
        ({"ignoreChanges": "true"}, "skipChangeCommits"),
        ({"withEventTimeOrder": "true"}, "the first batch of a stream is the whole table"),
        ({"schemaTrackingLocation": "/x"}, "goes on with the table's present columns"),
        ({"excludeRegex": "x"}, "where"),
        ({"endingVersion": "3"}, "availableNow"),
        ({"record": "/tmp/h.jsonl"}, "replitree.spark.recorded"),
        ({"versionAsOf": "3"}, "startingVersion says where it begins"),
        ({"startingVersion": "-3"}, "0 or above, a tag, a cut, or snapshot, earliest, latest"),
        ({"startingVersion": "3", "startingTimestamp": "2026-01-01"}, "give one of them"),
        ({"maxFilesPerTrigger": "0"}, "maxPartsPerTrigger is a whole number above 0"),
        ({"maxBytesPerTrigger": "many"}, "which may have a unit, as in 64m"),
        ({"readChangeFeed": "true", "skipChangeCommits": "true"}, "leave one of them out"),
        ({"pollWait": "0"}, "1 to 10000 milliseconds"),
    ],
)
def test_wrong_options_say_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        TableStream(known_options({"table": "t"} | options), StructType())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readChangeFeed": "true"}, "_change_type, _commit_version, _commit_timestamp last"),
        ({"columns": "k"}, "option columns names k, and Spark was told k, s"),
    ],
)
def test_a_schema_without_what_the_options_name_is_refused(options: dict[str, str], message: str) -> None:
    given, schema = known_options({"table": "t"} | options), StructType().add("k", LongType()).add("s", StringType())
    with pytest.raises(BadInput, match=message):
        TableStream(given, schema)
    TableStream(known_options({"table": "t", "columns": "S, k"}), schema)


@pytest.mark.parametrize("option", ["skipChangeCommits", "maxFilesPerTrigger", "startingTimestamp", "pollWait"])
def test_batch_reads_have_no_options_of_streams(option: str) -> None:
    with pytest.raises(ReplitreeError, match="is of streams"):
        ReplitreeSource({"table": "t", option: "1"}).reader(None)  # type: ignore[arg-type]
