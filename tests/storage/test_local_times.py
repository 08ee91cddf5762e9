"""Timestamps without a time zone mean the same moment wherever they come from."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.cli.tables.files import find_source, open_rows
from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.conform import check_zone, conform
from replitree.storage.schema.definition import define_table

DEFINITION = define_table("t", "k int, at timestamp, a array<timestamp>")
NAIVE = dt.datetime.fromisoformat("2026-10-04T12:23:39")
IN_UTC = dt.datetime.fromisoformat("2026-10-04T12:23:39+00:00")
IN_BERLIN = dt.datetime.fromisoformat("2026-10-04T10:23:39+00:00")


def from_text(folder: Path, name: str, text: str, zone: str) -> Any:
    file = folder / name
    file.write_text(text)
    rows = open_rows(find_source(str(file), None), DEFINITION.arrow_schema, zone)
    return pa.Table.from_batches(list(rows.batches), rows.schema)


def from_parquet(folder: Path, zone: str) -> Any:
    pq.write_table(pa.table({"k": [1], "at": pa.array([NAIVE], pa.timestamp("ns"))}), folder / "f.parquet")
    rows = open_rows(find_source(str(folder / "f.parquet"), None), DEFINITION.arrow_schema, zone)
    return pa.Table.from_batches(list(rows.batches), rows.schema)


SOURCES: dict[str, Callable[[Path, str], Any]] = {
    "csv": lambda folder, zone: from_text(folder, "f.csv", "k,at\n1,2026-10-04 12:23:39\n", zone),
    "json": lambda folder, zone: from_text(folder, "f.jsonl", '{"k": 1, "at": "2026-10-04T12:23:39"}\n', zone),
    "parquet": from_parquet,
    "datetime": lambda _, __: {"k": [1], "at": [NAIVE]},
    "rows": lambda _, __: [{"k": 1, "at": NAIVE}],
    "arrow": lambda _, __: pa.table({"k": [1], "at": pa.array([NAIVE], pa.timestamp("ms"))}),
    "dictionary": lambda _, __: pa.table({"k": [1], "at": pa.array([NAIVE]).dictionary_encode()}),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("zone", "moment"), [("UTC", IN_UTC), ("Europe/Berlin", IN_BERLIN)])
def test_every_source_means_the_same_moment(tmp_path: Path, source: str, zone: str, moment: dt.datetime) -> None:
    found = conform(SOURCES[source](tmp_path, zone), DEFINITION, zone=zone)
    assert found.column("at").to_pylist() == [moment]


@pytest.mark.parametrize("source", ["csv", "json"])
def test_text_that_names_a_zone_keeps_it(tmp_path: Path, source: str) -> None:
    text = {"csv": "k,at\n1,2026-10-04T12:23:39Z\n", "json": '{"k": 1, "at": "2026-10-04T12:23:39+00:00"}\n'}[source]
    name = {"csv": "z.csv", "json": "z.jsonl"}[source]
    found = conform(from_text(tmp_path, name, text, "Europe/Berlin"), DEFINITION, zone="Europe/Berlin")
    assert found.column("at").to_pylist() == [IN_UTC]


def test_values_inside_of_columns_too() -> None:
    found = conform({"k": [1], "a": [[NAIVE, None]]}, DEFINITION, zone="Europe/Berlin")
    assert found.column("a").to_pylist() == [[IN_BERLIN, None]]


def test_a_time_that_the_zone_skips_or_repeats_is_refused(tmp_path: Path) -> None:
    for text in ("2026-03-29 02:30:00", "2026-10-25 02:30:00"):
        with pytest.raises(SchemaMismatch, match="at"):
            conform({"at": [dt.datetime.fromisoformat(text)]}, DEFINITION, zone="Europe/Berlin")
        with pytest.raises(BadInput, match="Europe/Berlin"):
            from_text(tmp_path, "skip.csv", f"k,at\n1,{text}\n", "Europe/Berlin")


def test_moments_do_not_go_into_a_column_without_a_zone() -> None:
    with pytest.raises(SchemaMismatch, match="no time zone"):
        conform({"n": [IN_UTC]}, define_table("t", "n timestamp_ntz"))


def test_a_zone_that_is_none_is_refused() -> None:
    assert check_zone("UTC") == "UTC"
    for zone in ("Berlin/Europe", "", "+25:00"):
        with pytest.raises(BadInput, match="no time zone"):
            check_zone(zone)
