"""A server looks at the moves of buckets, says how far they are, and begins a process when no other one carries them on."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from replitree.coordination.tree import Tree, answer
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.moves.progress import MovesProgress, RefusedBatches, encode_progress, moves
from replitree.protocol.sharded.shard_map import Bucket, Shard, encode_map, first_map, handed_over, moving
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.logs import Log
from replitree.replica.kit.metrics import Metrics
from replitree.replica.shard_moves import PAUSE_S_MIN, ShardMoves

PLACE = layout.sharded("/c", "d")
STILL = first_map(["k"], {Shard(0): 1, Shard(1): 1}, 4)
MOVING = moving(STILL, handed_over(STILL, [Bucket(0), Bucket(1)], Shard(1)))


@dataclass
class FakeProcess:
    """A process whose end the test decides."""

    code: int | None = None
    killed: bool = False

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.killed, self.code = True, 137

    def wait(self, _timeout_s: float) -> int | None:
        return self.code


def table(*, is_leading: bool) -> Any:
    """Return what is asked of a hosted table."""
    return SimpleNamespace(leader=SimpleNamespace(is_leading=is_leading))


@dataclass
class World:
    """Coordination, a clock, and a server that hosts two shards."""

    after_s: float = 10.0
    leads: bool = True
    now: float = 100.0
    tree: Tree = field(default_factory=Tree)
    begun: list[FakeProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ServerConfig("r1", "zk://h:1/c", "data", "token", carry_moves_after_s=self.after_s)
        self.metrics = Metrics()
        self.commit(*(fx.Create(path) for path in ("/c", "/c/sharded", PLACE)))
        self.commit(fx.Create(layout.shard_map(PLACE), encode_map(STILL)))
        hosted = {"d~0": not self.leads, "d~1": self.leads, "other": True}
        self.moves = ShardMoves(
            config,
            "/c",
            self.perform,
            {name: table(is_leading=leads) for name, leads in hosted.items()},
            self.metrics,
            Log(),
            self.begin,
            lambda: self.now,
        )

    def perform(self, effect: fx.GetMany) -> fx.Many:
        found = answer(self.tree, effect)
        assert isinstance(found, fx.Many)
        return found

    def commit(self, *operations: fx.Operation) -> None:
        self.tree, committed = self.tree.commit(operations, 1)
        assert isinstance(committed, fx.Applied)

    def begin(self, name: str) -> FakeProcess:
        assert name == "d"
        self.begun.append(FakeProcess())
        return self.begun[-1]

    def begin_moves(self) -> None:
        self.commit(
            fx.Set(layout.shard_map(PLACE), encode_map(MOVING), fx.ANY_VERSION),
            fx.Create(moves(PLACE), encode_progress(MovesProgress())),
        )

    def note(self, progress: MovesProgress) -> None:
        self.commit(fx.Set(moves(PLACE), encode_progress(progress), fx.ANY_VERSION))

    def end_moves(self) -> None:
        self.commit(
            fx.Set(layout.shard_map(PLACE), encode_map(STILL), fx.ANY_VERSION), fx.Delete(moves(PLACE), fx.ANY_VERSION)
        )

    def look_after(self, seconds: float) -> int:
        self.now += seconds
        self.moves.look()
        return len(self.begun)

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"replitree_moves_{name}", {"table": "d"})


def test_the_leader_of_the_first_target_carries_moves_on_when_nothing_gets_on() -> None:
    world = World()
    assert world.look_after(100.0) == 0
    world.begin_moves()
    assert [world.look_after(each) for each in (0.0, 9.0, 1.0, 100.0)] == [0, 0, 1, 1]
    assert [each["carried_on_here"] for each in world.moves.status()] == [True]


def test_another_server_waits_longer_in_case_none_leads() -> None:
    world = World(leads=False)
    world.begin_moves()
    assert [world.look_after(each) for each in (0.0, 39.0, 1.0)] == [0, 0, 1]


def test_progress_of_another_process_keeps_the_server_from_beginning_one() -> None:
    world = World()
    world.begin_moves()
    for number in range(20):
        assert world.look_after(9.0) == 0
        world.note(MovesProgress(batches=number))


def test_a_process_that_fails_is_begun_again_after_pauses_that_grow() -> None:
    world = World()
    world.begin_moves()
    world.look_after(0.0)
    for failures in range(4):
        pause_s = PAUSE_S_MIN * 2**failures
        assert world.look_after(10.0 if not failures else 0.1) == failures + 1
        world.begun[-1].code = 1
        assert [world.look_after(each) for each in (0.0, pause_s - 0.1)] == [failures + 1] * 2


def test_what_moves_is_told_by_metrics_and_by_the_status() -> None:
    world = World()
    world.begin_moves()
    world.note(MovesProgress(batches=2, rows=500, bytes=7000, refused=RefusedBatches(3, "they differ")))
    world.look_after(0.0)
    world.look_after(5.0)
    told = {name: world.metric(name) for name in ("buckets", "rows", "bytes", "idle_seconds", "refused")}
    assert told == {"buckets": 2.0, "rows": 500.0, "bytes": 7000.0, "idle_seconds": 5.0, "refused": 3.0}
    (status,) = world.moves.status()
    assert (status["table"], status["buckets"], status["rows"], status["idle_s"]) == ("d", 2, 500, 5.0)
    msgspec.json.encode(status)
    world.end_moves()
    world.look_after(1.0)
    assert (world.metric("buckets"), world.metric("rows"), world.moves.status()) == (0.0, None, [])


def test_zero_seconds_mean_never_and_a_server_that_stops_ends_its_process() -> None:
    never = World(after_s=0.0)
    never.begin_moves()
    assert [never.look_after(each) for each in (0.0, 1e6)] == [0, 0]
    world = World()
    world.begin_moves()
    assert [world.look_after(each) for each in (0.0, 10.0)] == [0, 1]
    world.moves.stop()
    assert world.begun[0].killed
