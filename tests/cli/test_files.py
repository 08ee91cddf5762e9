"""Rows out of files: every format gives the same rows, cut into the same slices; broken bytes are named."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.cli.tables.files import (
    FileFormat,
    OpenedRows,
    RowSource,
    _ObjectLines,
    find_source,
    hash_file,
    open_rows,
    slices,
)
from replitree.errors import BadInput
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import define_table

TABLE = define_table(
    "t", "id bigint not null, at timestamp, day date, note string, name string not null, tags array<int>"
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "at": dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "day": dt.date(2020, 1, 1),
        "note": None,
        "name": "",
    },
    {"id": 2, "at": None, "day": None, "note": "with, comma", "name": "zwei"},
]
CSV = 'name,id,at,day,note\n,1,2020-01-02 03:04:05,2020-01-01,\nzwei,2,,,"with, comma"\n'
JSONL = (
    '{"id": 1, "at": "2020-01-02T03:04:05Z", "day": "2020-01-01", "name": ""}\n'
    '{"name": "zwei", "id": 2, "note": "with, comma", "tags": null}\n'
)


def read(path: Path, file_format: FileFormat | None = None) -> list[dict[str, Any]]:
    rows = open_rows(find_source(str(path), file_format), TABLE.arrow_schema)
    table = conform(pa.Table.from_batches(list(rows.batches), rows.schema), TABLE)
    assert rows.bytes_read() > 0 or path.suffix in {".parquet", ".arrow"}
    return [{name: row[name] for name in ROWS[0]} for row in table.to_pylist()]


def arrow_rows() -> pa.Table:
    return conform(ROWS, TABLE)


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(arrow_rows(), path)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, arrow_rows().schema) as writer:
            writer.write_table(arrow_rows())
    elif name.endswith(".arrows"):
        with pa.ipc.new_stream(path, arrow_rows().schema) as writer:
            writer.write_table(arrow_rows())
    else:
        text = (CSV if ".csv" in name else JSONL).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.jsonl", "a.ndjson", "a.jsonl.gz", "a.parquet", "a.arrow", "a.arrows", "A.CSV"]
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path, name.lower())) == ROWS


def test_said_format_wins_over_suffix(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text(CSV)
    assert read(path, FileFormat.CSV) == ROWS


def test_times_without_zone_are_utc_and_zones_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "id,name,at\n1,a,2020-01-02 03:04:05\n2,a,2020-01-02T05:04:05+02:00\n3,a,2020-01-02\n4,a,2020-01-02T03:04:05Z\n"
    )
    hours = [row["at"].hour for row in read(path)]
    assert hours == [3, 3, 0, 3]


BROKEN = [
    ("a.csv", b"id,name\nx,a\n", "column 'id' is int64, and 'x' is not"),
    ("a.csv", b"id,name\nx,\xff\n", "column 'id' is int64, and 'x' is not"),
    ("a.csv", b"id,name,at\n1,a,soon\n", "column 'at' is a timestamp, and 'soon' is not"),
    ("a.csv", b"id,name\n1\n", "Expected 2 columns"),
    ("a.csv", b"id,id\n1,1\n", "the header has 'id' twice"),
    ("a.csv", b"", "Empty CSV file"),
    ("a.csv", b"\xff\xfe\n1\n", "can't be read as csv"),
    ("a.csv.gz", b"no gzip", "can't be read as csv"),
    ("a.jsonl", b"[1]\n", "can't be read as jsonl"),
    ("a.jsonl", b'{"id": "x"}\n', "can't be read as jsonl: column 'id' is number, and a row has string"),
    ("a.jsonl", b'{"id": 1', "can't be read as jsonl"),
    ("a.jsonl", b' null, {"id": 1}\n', "line 1 is null; each line is to be an object"),
    ("a.jsonl", b'{"id": 1}\n\r\n\tnull\n{"id": 2}\n', "line 3 is null"),
    ("a.jsonl", b'{"id": 1}\n' * 1_000_000 + b"null\n", "line 1,000,001 is null"),
    ("a.parquet", b"no", "can't be read as parquet"),
    ("a.arrow", b"no", "can't be read as arrow"),
    ("a.arrow", b"ARROW1no", "can't be read as arrow"),
]


@pytest.mark.parametrize(("name", "data", "says"), BROKEN, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(BROKEN)])
def test_broken_bytes_are_bad_input_that_says_what_is_wrong(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInput, match=re.escape(says)):
        read(path)


def test_maps_in_json_lines_are_refused_with_what_to_use(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"m": {"a": 1}}\n')
    with pytest.raises(BadInput, match="use Parquet or Arrow"):
        open_rows(find_source(str(path), None), define_table("t", "m map<string,int>").arrow_schema)


def test_without_a_table_types_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,x,2020-01-01\n")
    schema = open_rows(find_source(str(tmp_path / "a.csv"), None)).schema
    assert [str(kind) for kind in schema.types] == ["int64", "string", "date32[day]"]


@given(cuts=st.lists(st.integers(0, 70), max_size=30), slice_rows=st.integers(1, 60))
def test_slices_depend_on_row_numbers_alone(cuts: list[int], slice_rows: int) -> None:
    table = pa.table({"x": pa.array(range(sum(cuts)), pa.int64())})
    begins = [sum(cuts[:i]) for i in range(len(cuts))]
    batches = [table.slice(begin, rows).combine_chunks() for begin, rows in zip(begins, cuts, strict=True)]
    pieces = list(slices((b for t in batches for b in t.to_batches()), table.schema, slice_rows))
    assert [piece.num_rows for piece in pieces[:-1]] == [slice_rows] * max(0, len(pieces) - 1)
    assert all(piece.num_rows for piece in pieces)
    assert [x for piece in pieces for x in piece.column("x").to_pylist()] == list(range(sum(cuts)))


def test_hash_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CSV)
    (tmp_path / "b").write_text(CSV)
    (tmp_path / "c").write_text(CSV + "x")
    one, same, other = (hash_file(tmp_path / name) for name in "abc")
    assert one == same != other


def test_standard_input_needs_a_format() -> None:
    with pytest.raises(BadInput, match="say --format"):
        find_source("-", None)
    assert find_source("-", FileFormat.CSV) == RowSource(None, FileFormat.CSV)


WIDE = "x double, f float, m decimal(5,2), k bigint, d date, at timestamp, n array<float>"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "k,x\n1,1.5\n2,1e400\n", "column 'x' is double, and '1e400' in row 2 is beyond its range"),
        ("a.csv", "x\n-1e309\n", "column 'x' is double, and '-1e309' in row 1 is beyond its range"),
        ("a.csv", "f\n1e39\n", "column 'f' is float, and '1e39' in row 1 is beyond its range"),
        ("a.csv", "z\n1e400\n", "column 'z' has a number beyond the range of double, or infinity"),
        ("a.csv", "k\n9223372036854775808\n", "column 'k' is int64, and '9223372036854775808' is not"),
        ("a.csv", "m\n1000.00\n", "column 'm': Error converting '1000.00' to decimal128"),
        ("a.csv", "m\n1.234\n", "column 'm': Rescaling Decimal value would cause data loss"),
        ("a.csv", "d\n10000-01-01\n", "column 'd' is date32"),
        ("a.csv", "k,d\n1,2024-01-01\n2,0000-12-31\n", "column 'd' has a year before 0001 in row 2"),
        ("a.csv", "at\n0000-01-01 00:00:00\n", "column 'at' has a year before 0001 in row 1"),
        ("a.jsonl", '{"x": 1e400}\n', "Number too big to be stored in double"),
        ("a.jsonl", '{"f": 1e39}\n', "column 'f' is float, and a number in it is beyond the range of its type"),
        ("a.jsonl", '{"n": [1.5, null, -1e39]}\n', "column 'n' is list<.*beyond the range of its type"),
        ("a.jsonl", '{"k": 9223372036854775808}\n', "couldn't parse:9223372036854775808"),
        ("a.jsonl", '{"m": 1000.00}\n', "1000.00 requires precision 6"),
        ("a.jsonl", '{"d": "0000-01-01"}\n', "column 'd' has a year before 0001 in row 1"),
    ],
)
def test_a_value_beyond_the_range_of_its_column_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    schema = define_table("t", WIDE).arrow_schema
    with pytest.raises(BadInput, match=says):
        rows_of(open_rows(find_source(str(tmp_path / name), None), schema))


def rows_of(rows: OpenedRows) -> list[dict[str, object]]:
    return [row for batch in rows.batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,f\ninf,-Infinity\n1e308,3e38\n,\n"),
        ("a.jsonl", '{"x": Infinity, "f": -Infinity}\n{"x": 1e308, "f": 3e38}\n{"x": null, "f": null}\n'),
    ],
)
def test_the_word_is_infinity(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    schema = define_table("t", "x double, f float").arrow_schema
    first, large, none = rows_of(open_rows(find_source(str(tmp_path / name), None), schema))
    assert first == {"x": float("inf"), "f": float("-inf")}
    assert large["x"] == 1e308
    assert large["f"] == pytest.approx(3e38)
    assert none == {"x": None, "f": None}


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_a_null_line_is_found_wherever_the_bytes_are_cut(size: int) -> None:
    def read_all(text: bytes) -> bytes:
        lines = _ObjectLines(io.BytesIO(text))
        return b"".join(iter(lambda: lines.read(size), b""))

    rows = b'{"a": null}\n{"nu": "null"}\n\n \r\n{"a": "x"} null\nnu\nll'
    assert read_all(rows) == rows
    with pytest.raises(BadInput, match="line 8 is null"):
        read_all(rows + b"\n \tnull")
