"""Walking through a folder that others change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Self

import pytest

from replitree.storage.files.folder_walk import below
from replitree.storage.objects import open_store
from replitree.storage.shares.inventory import inventory_of


@pytest.fixture
def vanishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two shares, of which one is removed as soon as somebody has seen both."""
    root = tmp_path / "tables" / "t1"
    for share in ("a", "b"):
        (root / share).mkdir(parents=True)
        (root / share / "data-0.parquet#1").write_bytes(b"begun")
    scandir = os.scandir

    def scan(place: Any) -> Any:
        entries = scandir(place)
        if isinstance(place, int) or Path(place) != root:
            return entries
        with entries:
            seen = sorted(entries, key=lambda entry: entry.name)
        shutil.rmtree(root / "b", ignore_errors=True)
        monkeypatch.setattr(os, "scandir", scandir)
        return _Seen(seen)

    monkeypatch.setattr(os, "scandir", scan)
    return root


class _Seen:
    """What a folder had."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)


def test_a_folder_that_vanishes_has_nothing(vanishing: Path) -> None:
    file = vanishing / "a" / "data-0.parquet#1"
    assert sorted(below(vanishing)) == [vanishing / "a", file, vanishing / "b"]


def test_what_was_begun_is_listed_while_a_share_goes(vanishing: Path, tmp_path: Path) -> None:
    (upload,) = inventory_of(open_store(f"file://{tmp_path}"), vanishing.name).uploads()
    assert (upload.share, upload.file) == ("a", "data-0.parquet")


def test_a_folder_that_is_not_there_has_nothing_nor_has_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(below(tmp_path / "away")) == list(below(tmp_path / "file")) == []


def test_a_folder_that_can_not_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(place: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(PermissionError):
        list(below(tmp_path))
