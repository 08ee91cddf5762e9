"""What is counted when servers are killed: torn, doubled and lost blocks, while they are seen and when all is quiet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from replitree.errors import ReplitreeError, Unavailable
from replitree_bench.shards import torn


class Shards:
    """Two shards in memory.  `does` says what becomes of a block: it is whole, torn, doubled, or lost."""

    def __init__(self, does: str) -> None:
        self._does, self._rows, self._is_level = does, Counter[int](), False
        self.killed: list[int] = []

    def create(self) -> None:
        """Nothing is to be made."""

    def insert(self, block: int, attempt: int) -> None:
        if self._does == "torn" and not attempt:
            self._rows[block] = torn.ROWS // 2
            raise Unavailable("the second shard does not answer")
        self._rows[block] = {"doubled": 2 * torn.ROWS, "lost": torn.ROWS - 1}.get(self._does, torn.ROWS)

    def rows_by_block(self, number: int, first: int) -> Mapping[int, int]:
        del number
        return {block: rows for block, rows in list(self._rows.items()) if block >= first}

    def is_level(self) -> bool:
        was, self._is_level = self._is_level, True
        return was

    def kill(self, server: int) -> None:
        self.killed.append(server)

    def start(self, server: int) -> None:
        assert self.killed[-1] == server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "DOWN_S": 0.01,
        "KILL_EVERY_S": 0.02,
        "QUIET_S": 0.01,
        "QUIET_S_MAX": 1.0,
        "PAUSE_S": 0.002,
    }.items():
        monkeypatch.setattr(torn, name, seconds)


@pytest.mark.parametrize("does", ["whole", "torn", "doubled", "lost"])
def test_blocks_are_counted_by_what_became_of_them(does: str) -> None:
    said = list[object]()
    system = Shards(does)
    found = torn.measure(system, 1, torn.Limits(0.2), say=said.append)
    assert found["kills"] == len(said) - 1 == len(system.killed) > 0
    assert found["reads"] > 0
    assert found["acknowledged"] > 0
    # Writers with odd numbers give a block up that is torn; the others repeat it.
    assert (found["torn_left"] > 0) is (does in ("torn", "lost"))
    assert (found["inserts"] > found["acknowledged"]) is (does == "torn")
    assert (found["doubled_left"] > 0) is (does == "doubled")
    assert (found["doubled_seen"] > 0) is (does == "doubled")
    assert (found["lost"] > 0) is (does == "lost")
    assert (found["torn_reads"] > 0) is (does in ("torn", "lost"))


def test_a_table_that_never_comes_to_rest_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Shards("whole")
    monkeypatch.setattr(system, "is_level", lambda: False)
    with pytest.raises(ReplitreeError, match="still changes"):
        torn.measure(system, 1, torn.Limits(0.05), say=print)


def test_blocks_are_written_for_half_a_minute_if_nothing_else_is_said() -> None:
    assert torn.Limits.given(None, None) == torn.Limits(torn.SECONDS)
    assert torn.Limits.given(5.0, None) == torn.Limits(5.0)
    assert torn.Limits.given(None, 7) == torn.Limits(blocks=7)
    assert torn.Limits.given(5.0, 7) == torn.Limits(5.0, 7)


def test_no_more_blocks_are_written_than_were_asked_for() -> None:
    found = torn.measure(Shards("whole"), 1, torn.Limits(blocks=50), say=lambda _: None)
    assert found["inserts"] == found["acknowledged"] == 50
