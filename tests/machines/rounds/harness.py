"""Rounds of take-over: something happens to the group, the leader is ended under load, the other candidate takes over.

The leader is killed, or stands still and goes on when the other one has taken over; half of all leaders have a lease.  Each
round has a name of its own in the register.  When all rounds are done every name is read once more, the lists are held
against what clients heard, and the whole history is judged: by the quick rules, and by the general search where it is small
enough.
"""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replitree.coordination.embedded import free_ports
from replitree.errors import ReplitreeError
from replitree.wire.history_recorder import Recorder
from replitree_verify.histories.case import make_case, objects
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from replitree_verify.histories.search import Limits, search
from tests.machines.rounds.candidates import Candidate, ask, leader_of
from tests.machines.rounds.grounds import GROUNDS, Turns
from tests.machines.rounds.load import Acknowledged, Load, broken
from tests.waiting import wait_for

Say = Callable[[str], None]

ACKNOWLEDGED_MIN, ACKNOWLEDGED_MAX = 5, 40
"""How many changes are acknowledged before the leader is killed, and again after."""

LEASE_S = 0.5

SEARCH = Limits(operations=20_000, states=2_000_000, seconds=30.0)
"""A name has more operations the longer a take-over takes; nearly all of them are judged in less than a second."""


@dataclass(slots=True)
class Report:
    """What came of a run.

    Attributes
    ----------
    rounds, acknowledged, reads
        How many.
    kinds, faults
        Which kinds of fault there can be; how often each kind was.
    take_overs_s
        From the end of each leader to the first change that the next one acknowledged, by what became of it: ``killed``;
        ``leased``, killed with a lease, for which the next one waits; ``stopped``, for which clients wait.
    searched
        Names whose history the general search judged; the others were too large for it.
    """

    rounds: int = 0
    acknowledged: int = 0
    reads: int = 0
    kinds: tuple[str, ...] = ()
    faults: dict[str, int] = field(default_factory=dict)
    take_overs_s: dict[str, list[float]] = field(default_factory=dict)
    searched: int = 0

    @property
    def take_over_p50_s(self) -> float:
        """The median time of a take-over from a leader that was killed and had no lease."""
        return statistics.median(self.take_overs_s["killed"])


class Rounds:
    """A run.

    Parameters
    ----------
    folder
        A new folder for all of it.
    seed
        What is drawn comes from this.
    say
        Takes a line for each round.
    store
        Which of the `GROUNDS`.
    """

    def __init__(self, folder: Path, seed: int, say: Say, store: str = "directories") -> None:
        self._folder = folder
        self._draw = random.Random(seed)
        self._say = say
        self._numbers = itertools.count(1)
        self._ends, self._leases = Turns(), Turns()
        self._acknowledged: dict[str, list[Acknowledged]] = {}
        self._ground = GROUNDS[store](folder, seed)
        self.report = Report(kinds=tuple(sorted(self._ground.kinds)))
        self._recorder = Recorder(folder / "history.jsonl")
        first, second = free_ports(2)
        options = ("--snapshot-entries", "300")
        self._candidates = [
            Candidate(
                "register",
                self._ground.group,
                port,
                [peer],
                folder / f"candidate-{port}.log",
                options,
                self._ground.environment,
            )
            for port, peer in ((first, second), (second, first))
        ]

    def run(self, rounds: int) -> Report:
        """Do rounds, then judge."""
        try:
            for candidate in self._candidates:
                candidate.start(self._lease_s())
            leader_of(self._candidates)
            for number in range(rounds):
                self._round(number)
            self._judge()
        finally:
            self.close()
        return self.report

    def close(self) -> None:
        """End every process."""
        for candidate in self._candidates:
            candidate.kill()
        self._recorder.close()
        self._ground.close()

    # --- one round ------------------------------------------------------------------------------------------------------

    def _round(self, number: int) -> None:
        self._ready()
        kind, done = self._ground.hurt(self._draw)
        name = f"round-{number}"
        load = Load([each.url for each in self._candidates], name, self._recorder, self._numbers)
        try:
            self._await(load, 0)
            before = len(load.acknowledged)
            leader = leader_of(self._candidates)
            generation = max(leader.status().get("generation", 0), load.acknowledged[-1].generation)
            end = self._ends.next(("stopped", "leased" if leader.lease_s else "killed"), self._draw)
            is_stopped = end == "stopped"
            ended_s = self._stop(leader) if is_stopped else self._kill(leader)
            found = wait_for(
                lambda: next((each for each in load.acknowledged if each.generation > generation), None),
                "the other candidate takes over",
            )
            if is_stopped:
                leader.go_on()
            self._await(load, before)
        finally:
            load.stop()
        self._acknowledged[name] = load.acknowledged
        self._count(kind, end, found.answer_s - ended_s, load)
        self._say(f"round {number}: {done}, {end}, {len(load.acknowledged)} changes, {found.answer_s - ended_s:.3f} s")
        (standby,) = [each for each in self._candidates if each is not leader]
        self._ground.heal(standby)
        if is_stopped:
            wait_for(lambda: leader.status().get("role") == "standby", "who stood still learns that it was deposed")
            leader.kill()
        leader.start(self._lease_s())

    def _lease_s(self) -> float:
        return LEASE_S if self._leases.next(("with", "without"), self._draw) == "with" else 0.0

    def _kill(self, leader: Candidate) -> float:
        """Kill a leader; return when, in seconds of the monotonic clock."""
        now_s = time.monotonic()
        leader.kill()
        return now_s

    def _stop(self, leader: Candidate) -> float:
        """Let a leader stand still, between two requests; return when, in seconds of the monotonic clock."""
        while True:
            now_s = time.monotonic()
            leader.stop()
            if self._ground.can_go_on_without():
                return now_s
            leader.go_on()

    def _ready(self) -> None:
        """Wait until one leads, the other stands by, and nothing is missing anywhere."""
        leader = leader_of(self._candidates)
        (standby,) = [each for each in self._candidates if each is not leader]
        wait_for(lambda: standby.status().get("role") == "standby", "the other candidate stands by")
        wait_for(lambda: _is_whole(leader), "all members are back and have everything")

    def _await(self, load: Load, before: int) -> None:
        wanted = before + self._draw.randint(ACKNOWLEDGED_MIN, ACKNOWLEDGED_MAX)
        wait_for(lambda: len(load.acknowledged) >= wanted, "changes are acknowledged")

    def _count(self, kind: str, end: str, take_over_s: float, load: Load) -> None:
        self.report.rounds += 1
        self.report.acknowledged += len(load.acknowledged)
        self.report.reads += load.reads
        self.report.faults[kind] = self.report.faults.get(kind, 0) + 1
        self.report.take_overs_s.setdefault(end, []).append(take_over_s)

    # --- the reckoning --------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        for name, acknowledged in self._acknowledged.items():
            wrong = broken(acknowledged, self._closing_read(name))
            assert wrong is None, f"{name}: {wrong}"
        self._recorder.close()
        history = read_files([self._folder / "history.jsonl"])
        verdict = check(history)
        assert verdict.fine, [anomaly.text for anomaly in verdict.anomalies] or verdict.undecided
        for each in objects(history):
            answer = search(make_case(each), SEARCH)
            assert answer != "wrong", each.names.object
            self.report.searched += answer == "fine"

    def _closing_read(self, name: str) -> Sequence[int]:
        def read() -> list[int] | None:
            try:
                with self._recorder.read(name, "linearizable", closing=True) as asked:
                    _, found = ask(leader_of(self._candidates).url, "GET", f"/values/{name}")
                    numbers = [int(number) for number in found["value"].split()]
                    asked.show(numbers, index=found["version"])
                    return numbers
            except ReplitreeError:
                return None

        return wait_for(read, f"{name} is read")


def _is_whole(leader: Candidate) -> bool:
    status = leader.status()
    return status.get("away") == [] and bool(status["is_mended"])


def run(folder: Path, rounds: int, seed: int, say: Say, store: str = "directories") -> Report:
    """Do rounds in a new folder and judge them; raises AssertionError when something is wrong."""
    folder.mkdir(parents=True)
    before = threading.active_count()
    report = Rounds(folder, seed, say, store).run(rounds)
    assert threading.active_count() < before + 50, "clients are left behind"
    return report
