"""Verified reads: whatever byte of a data file changes, a reader returns the right rows or an error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import CorruptPart
from replitree.storage.files import sums
from replitree.storage.files.sums import sums_path
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.part_folder import DamagedFile
from replitree.storage.parts.verified import CheckedFile, CheckedPart, Problem, sound_path
from replitree.storage.rewrite.merge import final_batches
from replitree.storage.rewrite.read import read_batches, read_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table

TABLE = define_table("t", "k bigint, v double, s string", order_by="k", settings=TableSettings(row_group_rows=5000))

Read = Callable[[CheckedPart, TableDefinition], pa.Table]

READERS: dict[str, Read] = {
    "table": lambda part, table: read_parts([part], table),
    "condition": lambda part, table: read_parts([part], table, where="k >= 0"),
    "column": lambda part, table: read_parts([part], table, ["v"]),
    "batches": lambda part, table: read_batches([part], table).read_all(),
    "final": lambda part, table: pa.Table.from_batches(final_batches([part], table)),
}


@pytest.fixture(params=["whole", "blocks"])
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CheckedPart:
    """A part whose file is verified as a whole, or block by block."""
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 1 << 20 if request.param == "whole" else 1000)
    return made(tmp_path / "part", 20_000)


def made(folder: Path, rows: int, first: int = 0) -> CheckedPart:
    numbers = random.Random(f"{folder}{first}")
    keys = range(first, first + rows)
    values = [numbers.random() for _ in keys]
    stage_table(pa.table({"k": keys, "v": values, "s": [f"s{v}" for v in values]}), TABLE, folder, sync=False)
    return CheckedPart(folder / "all", read_manifest(folder / "all"))


def test_every_reader_returns_the_rows_of_undamaged_files(part: CheckedPart) -> None:
    expected = pq.read_table(part.files[0].path)
    assert expected.num_rows == part.manifest.rows
    for name, read in READERS.items():
        found = read(part, TABLE)
        assert found.equals(expected.select(found.column_names)), name


def places(path: Path) -> Iterator[tuple[str, int]]:
    """Give positions in each kind of bytes of a Parquet file."""
    metadata, size = pq.read_metadata(path), path.stat().st_size
    for column in range(metadata.num_columns):
        chunk = metadata.row_group(1).column(column)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        yield from (("page header", begin + offset) for offset in (0, 3, 5, 8, 12, 16))
        yield "page body", begin + chunk.total_compressed_size // 2
    footer = size - 8 - metadata.serialized_size
    yield from (("footer", place) for place in range(footer, size, 97))
    yield from (("index", footer - back) for back in (1, 20, 200))
    yield from (("magic", place) for place in (0, size - 1, size - 5))


@pytest.mark.parametrize("name", READERS)
def test_a_changed_bit_is_noticed_or_does_not_matter(part: CheckedPart, name: str) -> None:
    path, read = part.files[0].path, READERS[name]
    good, expected = path.read_bytes(), read(part, TABLE)
    noticed: set[str] = set()
    for kind, place in places(path):
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert read(part, TABLE).equals(expected), (kind, place)
        except DamagedFile:
            noticed.add(kind)
    assert {"page header", "page body", "footer"} <= noticed


@pytest.mark.parametrize("name", READERS)
def test_other_damages_are_noticed(part: CheckedPart, name: str, tmp_path: Path) -> None:
    path, read = part.files[0].path, READERS[name]
    good, size = path.read_bytes(), part.files[0].entry.bytes
    other = made(tmp_path / "other", 20_000, 7).files[0].path.read_bytes()
    for damaged in (
        b"",
        good[: size // 2],
        good[:-1],
        good + b"\0",
        bytes(size),
        good[: size // 2] + bytes(size - size // 2),
        other,
        other[:size].ljust(size, b"\0"),
        good[:4096] + other[4096:8192] + good[8192:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            read(part, TABLE)
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedFile):
        read(part, TABLE)


def test_statistics_in_a_footer_do_not_hide_rows(part: CheckedPart) -> None:
    path = part.files[0].path
    good = path.read_bytes()
    stated = pq.read_metadata(path).row_group(1).column(0).statistics
    high = int(stated.max).to_bytes(8, "little")
    place = good.rindex(high)
    path.write_bytes(good[:place] + int(stated.min).to_bytes(8, "little") + good[place + 8 :])
    with pytest.raises(DamagedFile):
        read_parts([part], TABLE, where=f"k = {stated.max - 1}")


def test_a_file_that_changes_between_two_reads_is_noticed_whatever_its_times_say(part: CheckedPart) -> None:
    import os

    path = part.files[0].path
    read_parts([part], TABLE)
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DamagedFile):
        read_parts([part], TABLE)


@pytest.mark.parametrize("name", READERS)
def test_a_read_goes_on_with_a_good_copy(part: CheckedPart, name: str, tmp_path: Path) -> None:
    path, expected = part.files[0].path, READERS[name](part, TABLE)
    copy, problems = tmp_path / "copy.parquet", list[Problem]()
    copy.write_bytes(path.read_bytes())

    def replace(file: CheckedFile, problem: Problem) -> Path:
        assert file.path == path
        problems.append(problem)
        return copy

    mended = CheckedPart(part.folder, part.manifest, replace)
    data = bytearray(path.read_bytes())
    data[:64] = bytes(64)
    data[-400:-300] = bytes(100)
    path.write_bytes(data)
    assert READERS[name](mended, TABLE).equals(expected)
    path.unlink()
    assert READERS[name](mended, TABLE).equals(expected)
    assert {type(problem) for problem in problems} == {DamagedFile, FileNotFoundError}


def test_a_large_file_without_sums_is_verified_as_a_whole_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    part = made(tmp_path / "part", 20_000)  # no sums file: it is small when it is written
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 1000)
    path, good = part.files[0].path, part.files[0].path.read_bytes()
    assert not sums_path(path).exists()
    path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    with pytest.raises(DamagedFile):
        read_parts([part], TABLE, ["s"])
    path.write_bytes(good)
    assert read_parts([part], TABLE, ["s"]).num_rows == 20_000
    path.write_bytes(good[:-30] + bytes([good[-30] ^ 1]) + good[-29:])
    with pytest.raises(CorruptPart):
        read_parts([part], TABLE, ["s"])


# --- what Spark gets --------------------------------------------------------------------------------------------------------


def link_in(folder: Path) -> Callable[[CheckedFile], Path]:
    folder.mkdir(exist_ok=True)
    return lambda file: folder / file.entry.name


def test_a_small_file_is_verified_before_its_path_is_given(tmp_path: Path) -> None:
    file = made(tmp_path / "part", 100).files[0]
    assert sound_path(file, link_in(tmp_path / "links")) == file.path
    data = file.path.read_bytes()
    file.path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    with pytest.raises(DamagedFile):
        sound_path(file, link_in(tmp_path / "links"))


@pytest.mark.parametrize("damage", ["none", "missing", "changed"])
def test_a_large_file_goes_with_good_sums(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str) -> None:
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 1000)
    file = made(tmp_path / "part", 20_000).files[0]
    good = sums_path(file.path).read_bytes()
    if damage != "none":
        sums_path(file.path).unlink()
    if damage == "changed":
        sums_path(file.path).write_bytes(good[:9] + bytes([good[9] ^ 1]) + good[10:])
    found = sound_path(file, link_in(tmp_path / "links"))
    assert found.resolve() == file.path
    assert sums_path(found).read_bytes() == good
    assert (found == file.path) == (damage == "none")
