"""The history of a git repository as rows: one for every file that a commit touched."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replitree.errors import BadInput

COLUMNS = (
    "commit string not null, author string not null, time timestamp not null, "
    "change string not null, path string not null"
)
ORDER_BY = ("path", "time")
PARTITION_BY = ("change",)
BATCH_ROWS = 20_000

_LOG = ("log", "--no-renames", "--raw", "-z", "--root", "--format=C|%H|%at|%an")
_CHANGES = {"A": "added", "M": "modified", "D": "deleted", "T": "retyped"}


def check_repository(path: Path) -> None:
    """Make sure that `path` is a git repository with a history.

    Raises
    ------
    BadInput
        It is not, or git is not installed.
    """
    try:
        found = subprocess.run(["git", "-C", str(path), "rev-parse", "HEAD"], capture_output=True, check=False)  # noqa: S607
    except FileNotFoundError:
        raise BadInput("git is not installed: install it, or use --input FILE") from None
    if found.returncode:
        raise BadInput(f"{path} is no git repository with a commit: name the folder of a clone")


def arrow_schema() -> Any:
    """Return the columns as an Arrow schema."""
    from replitree.storage.schema.definition import define_table

    return define_table("changes", COLUMNS).arrow_schema


def batches(path: Path) -> Iterator[Any]:
    """Read the history, newest commit first, as record batches."""
    import pyarrow as pa

    schema = arrow_schema()
    rows: list[tuple[Any, ...]] = []

    def batch() -> Any:
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)],
            schema=schema,
        )

    for found in _changes(_words(path)):
        rows.append(found)
        if len(rows) == BATCH_ROWS:
            yield batch()
            rows = []
    if rows:
        yield batch()


def _words(path: Path) -> Iterator[str]:
    """Give the words of ``git log -z``, which NUL bytes separate."""
    with subprocess.Popen(["git", "-C", str(path), *_LOG], stdout=subprocess.PIPE) as git:  # noqa: S607
        assert git.stdout is not None
        left = b""
        while block := git.stdout.read(1 << 20):
            *words, left = (left + block).split(b"\0")
            for word in words:
                yield word.decode(errors="backslashreplace")
        if left:
            yield left.decode(errors="backslashreplace")
    if git.returncode:
        raise BadInput(f"git log failed in {path} with status {git.returncode}")


def _changes(words: Iterator[str]) -> Iterator[tuple[Any, ...]]:
    """Turn words into rows: a commit's head is one word, a change is two: its letters and its path."""
    commit, seconds, author = "", 0, ""
    for found in words:
        word = found.lstrip("\n")
        if word.startswith("C|"):
            _, commit, at, author = word.split("|", 3)
            seconds = int(at)
        elif word.startswith(":"):
            letter = word.rsplit(" ", 1)[1][:1]
            path = next(words, "")
            yield commit, author, seconds * 1_000_000, _CHANGES.get(letter, "other"), path
