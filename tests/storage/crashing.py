"""A disk that stops after its n-th change, and forgets or keeps what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from replitree.storage.disk import fetch as disk_fetch
from replitree.storage.disk import folders as disk_folders
from replitree.storage.disk import frozen as disk_frozen
from replitree.storage.disk import packs as disk_packs
from replitree.storage.disk import staging as disk_staging
from replitree.storage.disk import store as disk
from replitree.storage.parts import part_folder

MODULES = (disk, disk_folders, disk_staging, disk_fetch, disk_frozen, disk_packs, part_folder)
CHANGES = ("write_file", "link_file", "sync_part", "sync_parts", "sync_files", "sync_folder", "rename", "remove_folder")


class Crash(BaseException):
    """The power is gone."""


class CrashingDisk:
    """Counts the changes that the part store makes; raises `Crash` before change number `stop`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: int | None) -> None:
        self._stop = stop
        self.steps: list[str] = []
        self._unsynced: list[tuple[Path, Path]] = []
        self._replaced: dict[Path, bytes] = {}
        for name in CHANGES:
            for module in (module for module in MODULES if hasattr(module, name)):
                monkeypatch.setattr(module, name, self._counted(name, getattr(module, name)))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*paths: Any, **options: Any) -> Any:
            if self._stop is not None and len(self.steps) >= self._stop:
                raise Crash
            self.steps.append(f"{name} {_named(paths[0])}")
            if name == "rename" and paths[1].is_file():
                self._replaced[paths[1]] = paths[1].read_bytes()
            result = real(*paths, **options)
            self._note(name, paths)
            return result

        return change

    def _note(self, name: str, paths: tuple[Any, ...]) -> None:
        if name == "rename":
            self._unsynced.append((paths[0], paths[1]))
        if name == "sync_folder":
            self._unsynced = [(old, new) for old, new in self._unsynced if new.parent != paths[0]]

    def forget_unsynced(self) -> None:
        """Undo the renames that were never synced."""
        for old, new in reversed(self._unsynced):
            # What was deleted since stays deleted.
            if new.exists():
                old.parent.mkdir(exist_ok=True)
                new.rename(old)
            if new in self._replaced:
                new.write_bytes(self._replaced[new])
        self._unsynced.clear()


def _named(changed: Path | str | Sequence[Path | str]) -> str:
    """Name what is changed; several files by their number."""
    return Path(changed).name if isinstance(changed, Path | str) else f"{len(changed)} files"
