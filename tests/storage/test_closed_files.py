"""A file whose writing has failed is over: nothing writes to its descriptor later, when that is another file's."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.errors import StoreError
from replitree.storage.files import durable
from replitree.storage.files.durable import HashingFile
from replitree.storage.parts import encode
from replitree.storage.parts.encode import stage_table
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.schema.definition import define_table

DEFINITION = define_table("t", "k bigint not null, s string", order_by="k")
WRITES_MAX = 14
ROWS = 2000


def stage(folder: Path) -> Path:
    rows = pa.table({"k": pa.array(range(ROWS), pa.int64()), "s": [str(row) for row in range(ROWS)]})
    stage_table(rows, DEFINITION, folder)
    return folder / "all"


def write_a_part(folder: Path) -> None:
    stage(folder / "staged")


def merge(folder: Path) -> None:
    sources = [stage(folder / name) for name in ("a", "b")]
    merge_parts(sources, DEFINITION, folder / "merged")


def failure_of(what: Callable[[Path], None], folder: Path) -> str:
    """Do it; return how it failed, if it did."""
    try:
        what(folder)
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def fail_at(count: int, length: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let some writes of data files fail, and none before and after; return what tells how many there were."""
    write_all, calls = durable.write_all, 0

    def failing(descriptor: int, data: bytes | memoryview) -> None:
        nonlocal calls
        calls += 1
        if count <= calls < count + length:
            raise OSError(5, "Input/output error")
        write_all(descriptor, data)

    monkeypatch.setattr(durable, "write_all", failing)
    return lambda: calls


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let others open files as soon as one is closed: they get its descriptor."""
    opened: list[int] = []
    close = HashingFile.close

    def close_and_open(file: HashingFile) -> None:
        was_open = not file.closed
        close(file)
        if was_open:
            opened.append(os.open(tmp_path / f"other-{len(opened)}", os.O_RDWR | os.O_CREAT))

    monkeypatch.setattr(HashingFile, "close", close_and_open)
    gc.freeze()  # so that the test's collection looks at the test's own objects alone
    yield opened
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("count", range(1, WRITES_MAX))
@pytest.mark.parametrize("what", [write_a_part, merge])
def test_what_has_failed_does_not_write_into_another_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: list[int],
    what: Callable[[Path], None],
    count: int,
    length: int,
) -> None:
    monkeypatch.setattr(encode, "MEMORY_BYTES_MAX", 0)
    with monkeypatch.context() as patch:
        calls = fail_at(count, length, patch)
        failure = failure_of(what, tmp_path)
    assert ("Input/output error" in failure) == (calls() >= count), failure
    gc.collect()
    assert opened
    assert [os.fstat(descriptor).st_size for descriptor in opened] == [0] * len(opened)


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    file = HashingFile(tmp_path / "a")
    file.write(b"whole")
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"more")
    file.close()
    assert (tmp_path / "a").read_bytes() == b"whole"
