"""What an application's jobs have written is remembered by its Java process, and by nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from replitree.client.insert.terms import InsertResult
from replitree.client.transport.catalog import this_machine
from replitree.spark.session.written import last_written, note_written
from replitree.spark.store.located import is_local
from replitree.wire.identity import process_started
from replitree.wire.upload_life import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a process that stands for an application's Java, and keep notes in a folder of the test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield Writer(this_machine(), process.pid, process_started(process.pid) or 0)
        process.communicate(b"\n")


def inserted(index: int | None, settled: int | None = None) -> InsertResult:
    return InsertResult(index, 1, "inserted", None, settled)


def test_highest_index_of_an_application_is_remembered_for_each_table(driver: Writer) -> None:
    assert last_written("a", driver) == (-1, -1)
    for index in (3, 7, 5):
        note_written("a", inserted(index).counts_at, driver)
    note_written("b", inserted(1, settled=9).counts_at, driver)
    note_written("a", inserted(None).counts_at, driver)
    for index in (4, 8, 6):
        note_written("a", index, driver, is_mutation=True)
    found = [last_written(table, driver) for table in ("a", "b", "c")]
    assert found == [(7, 8), (9, -1), (-1, -1)]


def test_other_applications_know_nothing_of_it_and_remove_what_an_ended_one_left(
    driver: Writer, tmp_path: Path
) -> None:
    ended = Writer(driver.machine, driver.pid, driver.started + 1)
    note_written("a", inserted(3).counts_at, ended)
    assert (-1, -1) in (last_written("a", ended), last_written("a", driver))
    note_written("a", inserted(1).counts_at, driver)
    [folder] = (tmp_path / f"replitree-written-{os.getuid()}").iterdir()
    assert folder.name == f"{driver.pid}-{driver.started}"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert last_written("a", driver) == (1, -1)


def test_process_that_works_for_no_java_notes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    note_written("a", inserted(3).counts_at)
    assert list(tmp_path.iterdir()) == []


def test_folder_of_another_user_is_not_believed(driver: Writer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"replitree-written-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    note_written("a", inserted(3).counts_at, driver)
    assert last_written("a", driver) == (-1, -1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


class _Conf:
    def __init__(self, master: str) -> None:
        self.conf = self
        self._master = master

    def get(self, _name: str, _default: str | None) -> str:
        return self._master


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*, 4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://127.0.0.1:7077", False),
        ("yarn", False),
        ("", False),
    ],
)
def test_only_a_local_master_has_no_executors_of_its_own(master: str, local: bool) -> None:
    session: SparkSession = _Conf(master)  # type: ignore[assignment]
    assert is_local(session) is local
