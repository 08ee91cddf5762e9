"""Patience with servers lasts while they get something done, and as long as they do not even get CPU time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from replitree.errors import ReplicaUnavailable
from tests.faults import patience as patience_module
from tests.faults.patience import Patience


@dataclass
class Machine:
    """A cluster of one server without a process, and the clocks that `Patience` reads."""

    now_s: float = 0.0
    cpu_s: float = 0.0
    index: int = 0
    old_parts: int = 0
    answers: int = 0
    is_silent: bool = False
    processes: tuple[Any, ...] = field(default_factory=lambda: (Server(1),))

    def status(self) -> Any:
        if self.is_silent:
            raise ReplicaUnavailable("no answer")
        return Told((Shard(replicas=(Copy(self.index, self.old_parts),)),))

    def passes(self, seconds: float, worked_s: float) -> None:
        """Let time pass in which the server works."""
        self.now_s += seconds
        self.cpu_s += worked_s


@dataclass(frozen=True)
class Server:
    pid: int


@dataclass(frozen=True)
class Copy:
    index: int
    old_parts: int
    name: str = "r1"
    state: str = "active"
    log_pointer: int = 7
    queue: int = 0


@dataclass(frozen=True)
class Shard:
    replicas: tuple[Copy, ...]
    name: str = "d~0"
    log_tail: int = 7


@dataclass(frozen=True)
class Told:
    tables: tuple[Shard, ...]
    moving: tuple[Any, ...] = ()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(patience_module, "cpu_s", lambda _pid: made.cpu_s)
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    return made


@pytest.fixture
def patience(machine: Machine) -> Patience:
    cluster: Any = machine
    made = Patience(cluster, lambda: machine.answers, still_s=100.0, worked_s=10.0)
    assert not made.is_lost()
    return made


def test_a_server_that_works_and_gets_nothing_done_is_stuck(machine: Machine, patience: Patience) -> None:
    machine.passes(99.0, 50.0)
    assert not patience.is_lost()
    machine.passes(2.0, 0.0)
    assert patience.is_lost()


def test_a_server_without_cpu_time_is_only_starved(machine: Machine, patience: Patience) -> None:
    machine.passes(10_000.0, 9.0)
    assert not patience.is_lost()
    machine.passes(2.0, 1.0)
    assert patience.is_lost()


@pytest.mark.parametrize("what", ["index", "old_parts", "answers"])
def test_whatever_changes_begins_the_time_anew(machine: Machine, patience: Patience, what: str) -> None:
    machine.passes(90.0, 9.0)
    setattr(machine, what, 1)
    assert not patience.is_lost()
    machine.passes(90.0, 90.0)
    assert not patience.is_lost()
    machine.passes(11.0, 0.0)
    assert patience.is_lost()


def test_a_cluster_that_says_nothing_gets_nothing_done(machine: Machine, patience: Patience) -> None:
    machine.is_silent = True
    machine.passes(101.0, 11.0)
    assert patience.is_lost()


def test_what_is_waited_for_is_named_when_patience_is_lost(machine: Machine, patience: Patience) -> None:
    def look() -> bool:
        machine.passes(60.0, 10.0)
        return False

    with pytest.raises(AssertionError, match=r"stuck: the end\nd~0: Copy"):
        patience.wait(look, "the end")
