"""When rows are removed, as a table's definition says it, and which columns have Bloom filters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replitree.errors import BadInput
from replitree.storage.schema.definition import decode_definition, define_table
from replitree.storage.schema.retention import RowTtl, parse_ttl, read_retention, written_retention
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter

SCHEMA = "k bigint not null, at timestamp, day date, `odd + name` timestamp, s string, v double"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("at + 90 days", RowTtl("at", "90d")),
        (" at+36h ", RowTtl("at", "36h")),
        ("at + INTERVAL 2 weeks", RowTtl("at", "2w")),
        ("`odd + name` + 1 day", RowTtl("odd + name", "1d")),
        ("odd name + 90 min", RowTtl("odd name", "90m")),
        ("OFF", None),
        ("", None),
    ],
)
def test_a_ttl_is_a_column_and_a_time(text: str, found: RowTtl | None) -> None:
    assert parse_ttl(text) == found
    assert found is None or parse_ttl(found.text) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("90 days", "as in 'at \\+ 90 days'"),
        ("at", "a column and a time"),
        ("at + ", "a column and a time"),
        ("at + days", "a column and a time"),
        ("at + 3 months", "minutes, hours, days or weeks"),
        ("at - 3 days", "a column and a time"),
        ("at + 90 days + 1 hour", "a column and a time"),
        ("at + 0 days", "1 minute to 365,000 days, not for 0 days"),
        ("at + 59 s", "1 minute to 365,000 days"),
        ("at + 999999999 weeks", "365,000 days"),
        ("` + 1 day", "a column and a time"),
    ],
)
def test_what_is_no_ttl_is_refused_with_an_example(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_ttl(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ttl": "z + 1 day"}, "no column 'z'"),
        ({"ttl": "s + 1 day", "order_by": "k, s"}, "column 's' is string; use a date or timestamp column"),
        ({"ttl": "day + 36 hours", "partition_by": "day"}, "'day' is a date; use whole days"),
        ({"ttl": "at + 1 day"}, "must be in order_by or partition_by, as in partition_by='day\\(at\\)'"),
        ({"bloom": "z"}, "no column 'z'"),
        ({"bloom": "s, s"}, "bloom has 's' twice"),
        ({"bloom": ["v"]}, "column 'v' is double; Bloom filters are for whole numbers"),
    ],
)
def test_a_table_can_have_only_what_its_columns_allow(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        define_table("t", SCHEMA, **{"order_by": "k", **options})


def test_a_ttl_and_filters_follow_their_columns_when_these_are_renamed() -> None:
    table = define_table("t", SCHEMA, order_by="k", partition_by="day(at)", ttl="at + 90 days", bloom="s, k")
    renamed = apply_alter(table, parse_alter("RENAME COLUMN at TO happened, RENAME COLUMN s TO text", table))
    assert renamed.ttl == RowTtl("happened", "90d")
    assert renamed.bloom == ("text", "k")
    assert renamed.encode_metadata() == table.encode_metadata()
    read = decode_definition(renamed.encode_metadata(), renamed.encode_columns())
    assert read == renamed
    assert read.at(1) == table


def test_a_column_of_a_ttl_is_a_key_and_can_not_be_dropped() -> None:
    table = define_table("t", SCHEMA, order_by="k", partition_by="day(at)", ttl="at + 90 days")
    with pytest.raises(BadInput, match="can't be dropped: partition_by needs it"):
        apply_alter(table, parse_alter("DROP COLUMN at", table))


def test_a_dropped_column_loses_its_filter_and_a_later_one_of_that_name_has_none() -> None:
    table = define_table("t", SCHEMA, order_by="k", bloom="s, k")
    dropped = apply_alter(table, parse_alter("DROP COLUMN s", table))
    again = apply_alter(dropped, parse_alter("ADD COLUMN s string", dropped))
    # The node `metadata` does not change with the columns, and names the column that is gone.
    for after in (dropped, again):
        assert decode_definition(table.encode_metadata(), after.encode_columns()).bloom == ("k",)
    assert decode_definition(table.encode_metadata(), dropped.encode_columns()) == dropped


def test_settings_of_an_earlier_version_are_taken_over_by_the_columns_of_now() -> None:
    table = define_table("t", SCHEMA, order_by="k", partition_by="day(at)")
    renamed = apply_alter(table, parse_alter("RENAME COLUMN at TO happened", table))
    set_before = replace(table, ttl=RowTtl("at", "1d"), bloom=("s",), feed="24h")
    now = renamed.with_settings_of(set_before)
    assert (now.ttl, now.bloom, now.feed) == (RowTtl("happened", "1d"), ("s",), "24h")
    assert now.columns == renamed.columns


def test_an_entry_says_all_of_the_retention() -> None:
    for said in [("7d", "24h", "at + 90 days"), ("", "", "at + 1 hour"), ("7d", "", ""), ("", "24h", ""), ("", "", "")]:
        assert read_retention(written_retention(*said)) == said
