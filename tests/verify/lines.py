"""Files of results: a JSON object in each line, written as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

_T = TypeVar("_T", bound=msgspec.Struct)


def read_lines(file: Path, kind: type[_T]) -> list[_T]:
    """Return what the lines of a file say; nothing where there is no file."""
    return [msgspec.json.decode(line, type=kind) for line in file.read_text().splitlines()] if file.exists() else []


def write_lines(file: Path, lines: Iterable[msgspec.Struct]) -> None:
    """Write a file anew; a run that is killed leaves the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    new.replace(file)
