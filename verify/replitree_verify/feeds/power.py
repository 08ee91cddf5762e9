"""A process that ends between two steps on its disk, and a machine that loses its power then, with what was not synced.

The steps are those of the code that ships: renames, syncs, deletions, marks.  What is written, and a file that is deleted, is
there with the step that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from replitree import private
from replitree.storage.disk import folders, packs
from replitree.storage.parts import part_sync
from replitree_verify.engine.small_search import patched

_STEPS: tuple[tuple[ModuleType, str], ...] = (
    *((packs, name) for name in ("rename", "sync_files", "sync_folder", "remove_folder")),
    *((folders, name) for name in ("rename", "sync_folder", "remove_folder")),
    (part_sync, "sync_files"),
    (private, "touch"),
)


class Killed(BaseException):
    """The process has ended."""


class Machine:
    """Ends a process before one of its steps.

    Parameters
    ----------
    root
        The table's folder; what is there is durable.
    stop
        The number of the step, from 0 on.
    """

    def __init__(self, root: Path, stop: int) -> None:
        self._packs, self._stop, self._done = root / "packs", stop, 0
        self._renamed: list[tuple[Path, Path, bytes | None]] = []
        self._synced = {_inode(path) for path in self._packs.glob("*")}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the steps that are done meanwhile.  Raises `Killed` when the process ends."""
        with patched({place: self._counted(place[1], getattr(*place)) for place in _STEPS}):
            yield

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self._done >= self._stop:
                raise Killed
            self._done += 1
            if name == "rename":
                source, target = arguments
                self._renamed.append((source, target, target.read_bytes() if target.is_file() else None))
            elif name == "sync_folder":
                self._renamed = [each for each in self._renamed if each[1].parent != arguments[0]]
            elif name == "sync_files":
                self._synced.update(_inode(Path(path)) for path in arguments[0])
            return real(*arguments, **options)

        return step

    def lose_power(self) -> None:
        """Undo what is not durable: names first, and then the content of packs."""
        for source, target, replaced in reversed(self._renamed):
            # What was deleted since stays deleted.
            if target.exists():
                source.parent.mkdir(exist_ok=True)
                target.rename(source)
            if replaced is not None:
                target.write_bytes(replaced)
                self._synced.add(_inode(target))
        for path in self._packs.glob("*"):
            if _inode(path) not in self._synced:
                path.write_bytes(b"")


def _inode(path: Path) -> int:
    return path.stat().st_ino
