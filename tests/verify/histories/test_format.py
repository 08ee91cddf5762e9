"""Files of histories: read strictly, and what is wrong is said with its line and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replitree.errors import BadInput, UnsupportedFormat
from replitree.wire.history_format import Operation, encode_header, encode_line, to_ranges
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import chunks, count_lines, parse, read_files
from tests.verify.histories.generate import Shape, correct
from tests.verify.histories.known import A, insert, read

HEADER = '{"format": "replitree-history", "version": 1, "clock": "boot"}\n'
INSERT: dict[str, Any] = {
    "kind": "insert", "client": "x", "table": "t", "call": 5, "outcome": "ok", "answer": 9, "rows": [[1, 3]],
}  # fmt: skip
READ: dict[str, Any] = {
    "kind": "read", "client": "y", "table": "t", "call": 20, "outcome": "ok", "answer": 30, "rows": [[1, 3]],
    "level": "linearizable",
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def write(file: Path, *operations: dict[str, Any] | str, header: str = HEADER) -> Path:
    lines = [each if isinstance(each, str) else json.dumps(each) + "\n" for each in operations]
    file.write_text(header + "".join(lines), encoding="utf-8")
    return file


def test_what_was_written_is_read(file: Path) -> None:
    operations = [
        *correct(3, Shape(operations=50), closing=True),
        insert("q", 9, 10, ((1 << 50, 1 << 50),), "unknown", holders=("r2", "r1")),
    ]
    file.write_bytes(encode_header("boot") + b"".join(map(encode_line, operations)))
    history = read_files([file])
    assert [history.operation(number) for number in range(len(history))] == operations
    assert history.line.tolist() == list(range(2, len(operations) + 2))
    assert check(history).fine


def test_the_format_is_frozen() -> None:
    operation = insert(
        "x", 1, 2, A, index=3, settled=4, token="a", replica="r1", partition="p", quorum=2, holders=("r1", "r2")
    )
    assert encode_header("boot").decode() == '{"format":"replitree-history","version":1,"clock":"boot"}\n'
    assert encode_line(operation).decode() == (
        '{"kind":"insert","client":"x","table":"t","call":1,"outcome":"ok","answer":2,"rows":[[1,2]],"index":3,"settled":4,'
        '"token":"a","replica":"r1","partition":"p","quorum":2,"holders":["r1","r2"]}\n'
    )
    assert encode_line(read("y", 1, 2, A, "as_of", index=3, scope=A, closing=True)).decode() == (
        '{"kind":"read","client":"y","table":"t","call":1,"outcome":"ok","answer":2,"level":"as_of","rows":[[1,2]],'
        '"scope":[[1,2]],"index":3,"closing":true}\n'
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "delete"}, "line 3: Invalid enum value 'delete'"),
        ({"colour": 1}, "line 3: Object contains unknown field `colour`"),
        ({"call": "soon"}, "line 3: Expected `int`, got `str`"),
        ({"call": -1}, "line 3: a number is not within 0"),
        ({"call": 1 << 62}, "line 3: a number is not within 0"),
        ({"answer": None}, "line 3: it has an outcome and no answer's time"),
        ({"answer": 4}, "line 3: its answer is before its call"),
        ({"level": "eventual"}, "line 3: an insert has no `level`"),
        ({"rows": []}, "line 3: an insert names its `rows`"),
        ({"rows": [[3, 1]]}, "line 3: a range of rows begins after its end"),
        ({"rows": [[-3, 1]]}, "line 3: row -3 of table t is not within 0 and"),
        ({"rows": [[5, 6], [1, 2]]}, "line 3: its ranges of rows are not in ascending order"),
        ({"rows": [[5, 6], [7, 8]]}, "line 3: ranges of an insert's rows touch"),
        ({"settled": 3}, "line 3: `settled` is at the insert's `index`"),
        ({"index": 3, "settled": 2}, "line 3: `settled` is at the insert's `index`"),
        ({"index": 3, "settled": 4, "outcome": "failed"}, "line 3: an insert that failed was not `settled`"),
    ],
)
def test_a_wrong_insert_is_refused(file: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_files([write(file, READ, INSERT | change)])
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": None}, "a read says its `level`"),
        ({"level": "as_of"}, "a read `as_of` says its `index`"),
        ({"outcome": "failed"}, "a read that was not answered has no `rows`"),
        ({"scope": [[4, 5], [2, 3]]}, "its `scope` is not in ascending order"),
    ],
)
def test_a_wrong_read_is_refused(file: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match="line 2: ") as caught:
        read_files([write(file, READ | change)])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "line 1: not the header of a history"),
        ('{"kind": "insert"}\n', "line 1: not the header of a history"),
        (HEADER.replace("replitree-history", "diary"), 'line 1: the format is "diary"'),
    ],
)
def test_a_wrong_header_is_refused(file: Path, header: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_files([write(file, header=header)])
    assert message in str(caught.value)


def test_a_newer_format_is_refused(file: Path) -> None:
    with pytest.raises(UnsupportedFormat, match="version 2 of the format, this one reads 1: upgrade"):
        read_files([write(file, header=HEADER.replace("1,", "2,"))])


def test_no_file_and_no_operations(file: Path) -> None:
    with pytest.raises(BadInput, match="can't be read: No such file"):
        read_files([file])
    assert check(read_files([write(file)])).fine


def test_a_line_that_is_cut_off_and_an_empty_one_are_refused(file: Path) -> None:
    with pytest.raises(BadInput, match="line 3: it is cut off; remove it when its writer was killed"):
        read_files([write(file, INSERT, '{"kind": "re')])
    with pytest.raises(BadInput, match="line 3: Input data was truncated"):
        read_files([write(file, INSERT, "\n", READ)])


def test_a_client_does_one_thing_after_the_other(file: Path) -> None:
    with pytest.raises(
        BadInput, match=r"line 3: client x begins an operation before its last one ended: .* \(line 2\)"
    ):
        read_files([write(file, INSERT, INSERT | {"call": 8, "answer": 12, "rows": [[7, 7]]})])
    with pytest.raises(BadInput, match="line 3: client x has two operations that begin at once"):
        read_files([write(file, INSERT, INSERT)])
    unknown = INSERT | {"outcome": "unknown", "answer": None}
    with pytest.raises(BadInput, match="line 3: client x goes on after an operation that never ended"):
        read_files([write(file, unknown, INSERT | {"call": 8, "rows": [[7, 7]]})])


def test_the_second_line_of_an_insert_counts(file: Path) -> None:
    begun = INSERT | {"outcome": "unknown"}
    del begun["answer"]
    history = read_files([write(file, begun, INSERT, READ | {"rows": []})])
    assert history.line.tolist() == [3, 4]
    assert set(check(history).counts) == {"L1"}
    assert check(read_files([write(file, begun, READ | {"rows": []})])).fine


def test_rows_belong_to_one_insert() -> None:
    with pytest.raises(BadInput, match=r"line 3: row 2 is of another insert too \(history, line 2\)"):
        check(parse([insert("x", 0, 1, ((1, 2),)), insert("y", 2, 3, ((2, 3),))]))
    with pytest.raises(BadInput, match="is of another insert too"):
        check(parse([insert("x", 0, 1, ((1, 2),)), insert("y", 2, 3, ((1, 2), (5, 5)))]))
    with pytest.raises(BadInput, match=r"line 3: token 'a' was used for other rows before \(history, line 2\)"):
        check(parse([insert("x", 0, 1, ((1, 2),), token="a"), insert("y", 2, 3, ((5, 5),), token="a")]))


def test_files_of_one_clock_are_judged_together(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    write(file, INSERT), write(other, READ | {"rows": []})
    (anomaly,) = check(read_files([file, other])).anomalies
    assert anomaly.places == (f"{file}, line 2", f"{other}, line 2")
    write(other, READ, header=HEADER.replace("boot", "other"))
    with pytest.raises(BadInput, match="have times of different clocks"):
        read_files([file, other])


@pytest.mark.parametrize("size", [23, 37, 100, 1000, 100_000])
def test_stretches_of_a_file_have_each_line_once(file: Path, size: int) -> None:
    write(file, *[READ | {"call": 100 * k, "answer": 100 * k + 9, "rows": [[1, k + 1]]} for k in range(30)])
    length = file.stat().st_size
    found, line = [], 1
    for begin in range(0, length, size):
        end = min(length, begin + size)
        found += [part for part in chunks(file, begin, end, line) if len(part)]
        line += count_lines(file, begin, end)
    assert line == 32
    assert np.concatenate([part.line for part in found]).tolist() == list(range(2, 32))
    assert [op.call for part in found for op in map(part.operation, range(len(part)))] == [100 * k for k in range(30)]


def test_ranges_keep_what_is_there_twice() -> None:
    assert to_ranges([]) == ()
    assert to_ranges([5, 5, 5, 6]) == ((5, 5), (5, 5), (5, 6))
    assert Operation("read", "x", "t", 0, "ok").rows == ()
