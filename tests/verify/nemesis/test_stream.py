"""The driver of Spark beside the visitors: what its stream out has seen is judged as a replica's closing read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from typing_extensions import override

from replitree.client.transport.access import Access
from replitree.errors import SparkMissing, Unavailable
from replitree.wire.history_format import Ranges
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from replitree_verify.nemesis import run, stream, strikes
from replitree_verify.nemesis.run import read_closing_with_stream
from replitree_verify.nemesis.seen import SeenBatches
from replitree_verify.nemesis.shards import Hosted
from replitree_verify.nemesis.stream import SEEN, DriverFault, SparkDriver
from replitree_verify.nemesis.strikes import RunFailed, Strikes

ROWS = ((1, 4), (5, 8))


class Driver(SparkDriver):
    """A driver without a process, whose stream out comes to its end at once, or never."""

    def __init__(self, folder: Path, *, ends: bool = True) -> None:
        super().__init__(Access("zk://none", "token"), folder / "spark", table="t", first=0, quorum=1, seed=1)
        self.seen = SeenBatches(folder / "spark" / SEEN)
        self.drained = 0
        self._ends = ends

    @override
    def drain(self) -> None:
        self.drained += 1
        if not self._ends:
            raise Unavailable("not at its end")

    def insert(self) -> None:
        """Record two batches, as the sink does."""
        with closing(Recorder(self.history, append=True)) as recorder:
            for rows in ROWS:
                with recorder.insert("t", range(rows[0], rows[1] + 1)) as asked:
                    asked.settle(index=ROWS.index(rows))


@dataclass
class Shown:
    index: int
    replica: str

    def to_arrow(self, _columns: list[str]) -> Any:

        return pa.table({"id": range(1, 9)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class Still:
    """A table at versions that come one after the other; the last one stays."""

    versions: list[int] = field(default_factory=lambda: [2])
    name: str = "t"
    asked: str = "r1"

    def replica(self, name: str) -> Still:
        self.asked = name
        return self

    def snapshot(self, **_: Any) -> Shown:
        return Shown(self.versions.pop(0) if len(self.versions) > 1 else self.versions[0], self.asked)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "closing.jsonl"


def counts(file: Path, driver: Driver, versions: Sequence[int] = (2,)) -> dict[str, int]:
    """Return what is found when the replicas have all rows, and the stream what the driver's folder says."""
    still: Any = Still(list(versions))
    read_closing_with_stream("t", [Hosted(still, ("r1", "r2"))], file, driver)
    return {rule: count for rule, count in check(read_files([driver.history, file])).counts.items() if count}


def show(driver: Driver, *batches: tuple[int, Ranges]) -> None:
    for batch, rows in batches:
        driver.seen.note(batch, rows)


def test_a_stream_that_has_seen_every_row_once_is_fine(tmp_path: Path, file: Path) -> None:
    driver = Driver(tmp_path)
    driver.insert()
    # Batch 1 is repeated by the next driver.
    show(driver, (0, ((1, 4),)), (1, ((5, 8),)), (1, ((5, 8),)))
    assert counts(file, driver) == {}


@pytest.mark.parametrize(("batches", "found"), [
    ([(0, ((1, 4),))], {"S6", "L1"}),
    ([(0, ((1, 4),)), (1, ((5, 7),))], {"S4"}),
    ([(0, ((1, 4),)), (1, ((5, 8),)), (2, ((5, 8),))], {"S3"}),
    ([(0, ((1, 4),)), (1, ((5, 8),)), (1, ((5, 7),))], {"S3"}),
    ([(0, ((1, 8),)), (1, ((90, 91),))], {"S1"}),
], ids=["batch lost", "row lost", "batch twice", "batch repeated with other rows", "row that no client inserted"])  # fmt: skip
def test_a_stream_that_has_not_seen_every_row_once_is_an_anomaly(
    tmp_path: Path, file: Path, batches: Sequence[tuple[int, Ranges]], found: set[str]
) -> None:
    driver = Driver(tmp_path)
    driver.insert()
    show(driver, *batches)
    assert found <= counts(file, driver).keys()


def test_a_stream_that_does_not_come_to_its_end_is_wedged(tmp_path: Path, file: Path) -> None:
    driver = Driver(tmp_path, ends=False)
    driver.insert()
    assert counts(file, driver) == {"P1": 1}


def test_all_is_read_again_when_something_came_in_between(tmp_path: Path, file: Path) -> None:
    driver = Driver(tmp_path)
    driver.insert()
    show(driver, (0, ((1, 8),)))
    # Replicas at 2, and 3 when the stream was at its end; then everything at 3.
    assert counts(file, driver, [2, 2, 3]) == {}
    assert driver.drained == 3
    history = read_files([file])
    assert [history.operation(number).index for number in range(len(history))] == [3, 3, None]


def test_a_driver_that_has_brought_nothing_ends_the_run(tmp_path: Path, file: Path) -> None:
    still: Any = Still()
    with pytest.raises(RunFailed, match="has brought no batch into t"):
        read_closing_with_stream("t", [Hosted(still, ("r1",))], file, Driver(tmp_path))


def test_a_run_begins_when_its_driver_has_begun_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, begun = Driver(tmp_path), iter([False, False, True])
    monkeypatch.setattr(driver, "has_begun", lambda: next(begun))
    monkeypatch.setattr(stream, "LOOK_S", 0.0)
    driver.wait_begun()
    assert list(begun) == []
    monkeypatch.setattr(driver, "has_begun", lambda: False)
    monkeypatch.setattr(stream, "BEGIN_S_MAX", 0.0)
    with pytest.raises(RunFailed, match="has begun no batch within 0 s"):
        driver.wait_begun()


def test_a_driver_that_has_begun_no_batch_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strikes, "QUIET_S_MAX", 0.01)
    killed = list[str]()
    begun = iter((False, True))

    class Scripted(Driver):
        @override
        def has_begun(self) -> bool:
            return next(begun)

        @override
        def kill(self) -> None:
            killed.append("killed")

        @override
        def launch(self) -> None:
            killed.append("launched")

    fault = DriverFault(Scripted(tmp_path))
    monkeypatch.setattr(fault, "hold_s", 0.01, raising=False)
    hurt = Strikes((fault,), 1, lambda _: None)
    hurt.round()
    assert (killed, hurt.done) == ([], [])
    hurt.round()
    assert killed == ["killed", "launched"]
    assert [each.kind for each in hurt.done] == [stream.KILL]


def test_without_pyspark_nothing_is_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stream, "find_spec", lambda _: None)
    plan = run.Plan(1, 1.0, 1, (), spark=True)
    nothing: Any = type("Connection", (), {"access": Access("zk://none", "token")})()
    with pytest.raises(SparkMissing, match="PySpark is not installed"):
        run.run(nothing, plan, tmp_path, print)
    assert not list(tmp_path.iterdir())


def test_the_token_goes_with_the_driver(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert (tmp_path / "spark" / "token").stat().st_mode & 0o077 == 0
    driver.close()
    assert not (tmp_path / "spark" / "token").exists()
