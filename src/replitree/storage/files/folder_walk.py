"""Walking through a folder in which others make and remove files and folders meanwhile: `Path.rglob` may fail there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def below(folder: Path) -> Iterator[Path]:
    """Yield the files and folders below a folder, at any depth; of what vanishes or comes meanwhile some may be left out.

    A file has nothing below it, nor has a folder that is not there.  Links are not followed.

    Raises
    ------
    OSError
        A folder can't be listed.
    """
    for place, folders, files in os.walk(folder, onerror=_refuse):
        for name in (*folders, *files):
            yield Path(place, name)


def _refuse(error: OSError) -> None:
    # A folder that vanished between its listing and its visit is no error; one that can't be read is.
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
