"""Closing reads: all of one version, or the failure of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.errors import Unavailable
from replitree_verify.histories.reading import read_files
from replitree_verify.nemesis import run
from replitree_verify.nemesis.run import read_closing
from replitree_verify.nemesis.shards import Hosted


@dataclass
class Moving:
    """A table of which each read shows the version that comes next; None: the read fails."""

    versions: Iterator[int | None]
    name: str = "t"
    asked: list[str] = field(default_factory=list)

    def replica(self, name: str) -> Moving:
        self.asked.append(name)
        return self

    def snapshot(self, **_: Any) -> Shown:
        version = next(self.versions)
        if version is None:
            raise Unavailable("it is down")
        return Shown(version, self.asked[-1])


@dataclass(frozen=True)
class Shown:
    index: int
    replica: str

    def to_arrow(self, _columns: list[str]) -> pa.Table:
        return pa.table({"id": range(self.index)})


@pytest.mark.parametrize(
    ("versions", "recorded"),
    [
        ([4, 4], [("ok", 4), ("ok", 4)]),
        ([4, 5, 5, 6, 6, 6], [("ok", 6), ("ok", 6)]),
        # The failure is an anomaly at once: no further read is waited for.
        ([4, None], [("ok", 4), ("failed", None)]),
    ],
)
def test_reads_are_of_one_version(
    tmp_path: Path, versions: list[int | None], recorded: list[tuple[str, int | None]]
) -> None:
    table: Any = Moving(iter(versions))
    read_closing("t", [Hosted(table, ("r1", "r2"))], tmp_path / "closing.jsonl", 1.0)
    history = read_files([tmp_path / "closing.jsonl"])
    found = [history.operation(number) for number in range(len(history))]
    assert [(each.outcome, each.index) for each in found] == recorded
    assert all(each.closing for each in found)
    assert [each.replica for each in found] == ["r1", "r2"]


def test_a_log_that_moves_for_ever_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOVING_S_MAX", 0.0)
    table: Any = Moving(iter([4, 5]))
    read_closing("t", [Hosted(table, ("r1", "r2"))], tmp_path / "closing.jsonl", 1.0)
    history = read_files([tmp_path / "closing.jsonl"])
    assert [history.operation(number).index for number in range(len(history))] == [4, 5]


@pytest.mark.parametrize(
    ("names", "first", "second", "recorded"),
    [
        (("r1", "r2"), [4, 4], [7, 7], [("r1 and r1", 11), ("r2 and r2", 11)]),
        # A joint insert between the shards of one read would look torn: all is read again.
        (("r1", "r2"), [4, 5, 5, 5], [7, 7, 7, 7], [("r1 and r1", 12), ("r2 and r2", 12)]),
        (("r1",), [4, 5, 5, 5], [7, 7, 7, 7], [("r1 and r1", 12), ("r1 and r1", 12)]),
    ],
)
def test_shards_are_read_until_no_log_moved_between_the_first_and_the_last(
    tmp_path: Path, names: tuple[str, ...], first: list[int], second: list[int], recorded: list[tuple[str, int]]
) -> None:
    shards: list[Any] = [Moving(iter(first)), Moving(iter(second))]
    versions = read_closing("t", [Hosted(shard, names) for shard in shards], tmp_path / "closing.jsonl", 1.0)
    assert versions == (first[-1], second[-1])
    history = read_files([tmp_path / "closing.jsonl"])
    found = [history.operation(number) for number in range(len(history))]
    rows = [sum(last - low + 1 for low, last in each.rows or ()) for each in found]
    assert [(each.replica, count) for each, count in zip(found, rows, strict=True)] == recorded
    assert all(each.closing and each.outcome == "ok" and each.index is None for each in found)
