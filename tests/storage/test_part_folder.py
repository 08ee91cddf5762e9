"""Folders of parts are deleted by whoever comes to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from replitree.storage.parts.part_folder import remove_folder

FOLDERS, FILES = 200, 8


def test_several_delete_the_same_folders_at_the_same_time(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(FOLDERS)]
    for folder in folders:
        folder.mkdir()
        for number in range(FILES):
            (folder / f"data-{number}.parquet").touch()
    together = Barrier(2)

    def remove_all() -> None:
        for folder in folders:
            together.wait(60)
            try:
                remove_folder(folder)
            except OSError:
                together.abort()
                raise

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(remove_all) for _ in range(2)]:
            done.result()
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_deleted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("os.rmdir", refuse)
    with pytest.raises(PermissionError, match="not yours"):
        remove_folder(tmp_path / "part")
