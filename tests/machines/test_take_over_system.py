"""Two candidates for a sequencer: the leader is killed under load, and no number is given to two clients."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.coordination.embedded import free_ports
from replitree.errors import ReplitreeError
from replitree.tablet.members.folders import make_group
from tests.machines.rounds.candidates import Candidate, ask, leader_of
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.fixture
def candidates(tmp_path: Path) -> Iterator[list[Candidate]]:
    make_group(tmp_path / "g")
    first, second = free_ports(2)
    found = [
        Candidate("sequencer", tmp_path / "g", port, [peer], tmp_path / f"{port}.log", ["--lease", "0.5"])
        for port, peer in ((first, second), (second, first))
    ]
    for each in found:
        each.start()
    yield found
    for each in found:
        each.kill()


class Takers:
    """Clients that take numbers from whoever leads."""

    def __init__(self, urls: list[str], count: int = 4) -> None:
        self.taken: list[tuple[int, int, int]] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(urls,), daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self, urls: list[str]) -> None:
        for url in itertools.cycle(urls):
            while not self._stop.is_set():
                try:
                    _, said = ask(url, "POST", "/sequences/s", {"count": 3})
                except ReplitreeError:
                    break
                self.taken.append((said["first"], said["last"], said["generation"]))
            if self._stop.wait(0.01):
                return

    def stop(self) -> None:
        """Let every client finish."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_no_number_is_given_twice_across_a_take_over(candidates: list[Candidate]) -> None:
    leader = leader_of(candidates)
    takers = Takers([each.url for each in candidates])
    try:
        wait_for(lambda: len(takers.taken) > 50)
        leader.kill()
        wait_for(lambda: len({generation for _, _, generation in list(takers.taken)}) == 2)
        wait_for(lambda: len(takers.taken) > 100)
    finally:
        takers.stop()
    numbers = [number for first, last, _ in takers.taken for number in range(first, last + 1)]
    assert len(set(numbers)) == len(numbers)
    ordered = sorted(takers.taken)
    assert [each[2] for each in ordered] == sorted(each[2] for each in ordered)
    (other,) = [each for each in candidates if each is not leader]
    _, said = ask(other.url, "GET", "/sequences/s")
    assert said["last"] >= max(numbers)
