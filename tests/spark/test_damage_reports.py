"""Errors of Spark name files; the parts of those that a frame of this process reads are reported, without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from replitree.client.read.snapshot import SoundFile
from replitree.spark.session import damage_reports
from replitree.spark.session.damage_reports import (
    NotRepaired,
    await_whole,
    damaged_files,
    is_damage,
    named_files,
    note_files,
)
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.verified import CheckedFile

ROOT = "/data/a [b] {c} 100%/r1/data/tables/t-1/parts"
GOOD, BAD = b"good bytes", b"bad  bytes"


class Source:
    """Notes which parts were reported; may do something then."""

    def __init__(self, then: Callable[[], object] = bool, *, has: bool = True) -> None:
        self.parts: list[str] = []
        self._then, self._has = then, has

    def report(self, part: str) -> bool:
        self.parts.append(part)
        self._then()
        return self._has


def noted(source: Source, *paths: str) -> None:
    entry = FileEntry("data-0.parquet", 1, len(GOOD), "0" * 32)
    note_files(
        cast("Any", source),
        [SoundFile(Path(path), Path(path).parent.name, CheckedFile(Path(path), entry)) for path in paths],
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A damaged data file of a part."""
    folder = tmp_path / "p_1_1_0"
    folder.mkdir()
    (folder / "data-0.parquet").write_bytes(GOOD)
    return folder / "data-0.parquet"


def watched(path: Path, source: Source) -> tuple[damage_reports.WatchedFile, ...]:
    """Let a frame read a file, which then is damaged; return what an error says of it."""
    entry = FileEntry(path.name, 1, len(GOOD), file_checksum(path))
    note_files(cast("Any", source), [SoundFile(path, "p_1_1_0", CheckedFile(path, entry))])
    path.write_bytes(BAD)
    return damaged_files(f"ChecksumException: file:{path} at 0")


@pytest.mark.parametrize(
    "message",
    [
        f"org.apache.hadoop.fs.ChecksumException: Checksum error: {ROOT}/p_1_1_0/data-0.parquet at 65536 exp: 1 got: 2",
        f"Lost task 0.0 (TID 1) (host/127.0.0.1 executor driver): {ROOT}/p_1_1_0/data-0.parquet: ChecksumException",
        "error while reading file file:///data/a%20%5Bb%5D%20%7Bc%7D%20100%25/r1/data/tables/t-1/parts/p_1_1_0/data-0.parquet.",
    ],
)
def test_an_error_names_the_files_of_frames(message: str) -> None:
    noted(Source(), "/elsewhere/parts/p_1_1_0/data-0.parquet")
    noted(Source(), *(f"{ROOT}/p_{n}_{n}_0/data-0.parquet" for n in (1, 2)))
    (found,) = named_files(f"Job aborted\n{message}\n{message}")
    assert (found.part, str(found.path)) == ("p_1_1_0", f"{ROOT}/p_1_1_0/data-0.parquet")
    assert not named_files("error: /elsewhere/data-0.parquet, and no path: data-0.parquet")


def test_files_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_reports, "FILES_MAX", 2)
    first, second, third = (f"{ROOT}/p_{n}_{n}_9/data-0.parquet" for n in (1, 2, 3))
    noted(Source(), first, second)
    noted(Source(), first, third)
    assert [len(named_files(each)) for each in (first, second, third)] == [1, 0, 1]


def test_an_error_is_of_a_file_only_if_it_is_damaged_or_was(path: Path) -> None:
    (file,) = watched(path, Source())
    assert damaged_files(f"java.io.FileNotFoundException: File file:{path} does not exist") == (file,)
    assert damaged_files(f"{path} is not a Parquet file") == (file,)
    path.write_bytes(GOOD)
    assert not damaged_files(f"{path} is read in a way that a cast refuses")
    assert damaged_files(f"ChecksumException: {path}") == (file,), "it may be whole again by now"
    assert is_damage("java.lang.RuntimeException: ChecksumException")
    assert not is_damage("FileNotFoundException: data-0.parquet")


def test_a_file_is_awaited_until_its_replica_has_it_again(path: Path) -> None:
    threads: list[threading.Thread] = []

    def repair() -> None:
        path.unlink()
        threads.append(threading.Thread(target=path.write_bytes, args=(GOOD,)))
        threads[0].start()

    source = Source(repair)
    await_whole(watched(path, source))
    threads[0].join()
    assert source.parts == ["p_1_1_0"]
    assert path.read_bytes() == GOOD
    await_whole(damaged_files(f"ChecksumException: {path}"))
    assert source.parts == ["p_1_1_0"], "a file that is whole by now is not reported again"


def test_waiting_ends_when_no_good_copy_comes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_reports, "REPAIR_S_MAX", 0.1)
    source = Source(lambda: 1 / 0)  # a report that fails is no error of its own
    with pytest.raises(NotRepaired, match=r"no good copy of part p_1_1_0 after .* run: replitree doctor"):
        await_whole(watched(path, source))
    assert source.parts


def test_waiting_ends_at_once_when_the_part_is_gone_or_has_other_files(path: Path) -> None:
    source = Source(path.unlink, has=False)
    with pytest.raises(NotRepaired, match="does not have the part any more: make the frame again"):
        await_whole(watched(path, source))
    path.write_bytes(GOOD)
    files = watched(path, Source())
    other = FileEntry(path.name, 1, 3, "1" * 32)
    manifest = PartManifest(partition="all", rows=1, bytes=3, schema_version=1, files=(other,), content_hash="0" * 32)
    (path.parent / "manifest.json").write_bytes(manifest.encode())
    with pytest.raises(NotRepaired, match="has other files of the same rows by now: make the frame again"):
        await_whole(files)


def test_a_damaged_copy_of_this_process_is_brought_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_reports, "is_brought", lambda _: True)
    entry = FileEntry(path.name, 1, len(GOOD), file_checksum(path))

    def bring(file: CheckedFile, _: object) -> Path:
        assert not path.exists()
        path.write_bytes(GOOD)
        return file.path

    source = Source()
    note_files(cast("Any", source), [SoundFile(path, "p_1_1_0", CheckedFile(path, entry, bring))])
    path.write_bytes(BAD)
    await_whole(damaged_files(f"ChecksumException: {path}"))
    assert not source.parts, "the replica's file is another one"
