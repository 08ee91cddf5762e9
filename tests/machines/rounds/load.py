"""Clients of a register that write down what they ask and hear: each change adds a number of its own to a list.

The list is the value of one name.  A change is a compare-and-set of the whole list, so the number that was set as version v
stands at place v for ever, and the history is one of inserts and reads.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replitree.errors import NotLeader, ReplitreeError
from replitree.wire.history_recorder import Recorder
from tests.machines.rounds.candidates import ask

PAUSE_S = 0.01
"""How long a client waits that met nobody who leads."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A change that a client heard to be done; times are of the monotonic clock, in seconds."""

    number: int
    version: int
    generation: int
    call_s: float
    answer_s: float


class Load:
    """Clients of one name.

    Parameters
    ----------
    urls
        Of all candidates.
    name
        What they change.
    recorder
        Writes the history.
    numbers
        Gives numbers that nobody had before.
    writers, readers
        How many of each.
    """

    def __init__(
        self,
        urls: Sequence[str],
        name: str,
        recorder: Recorder,
        numbers: itertools.count[int],
        writers: int = 3,
        readers: int = 2,
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.reads = 0
        self._urls = urls
        self._name = name
        self._recorder = recorder
        self._numbers = numbers
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        works: list[Callable[[str], None]] = [*[self._change] * writers, *[self._read] * readers]
        self._threads = [threading.Thread(target=self._work, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every client finish, and raise what one met."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._problems:
            raise self._problems[0]

    def _work(self, work: Callable[[str], None]) -> None:
        urls = itertools.cycle(self._urls)
        url = next(urls)
        while not self._stop.is_set():
            try:
                work(url)
            except ReplitreeError:
                url = next(urls)
                self._stop.wait(PAUSE_S)
            except BaseException as error:  # noqa: BLE001 - raised by `stop`
                self._problems.append(error)
                return

    def _change(self, url: str) -> None:
        path = f"/values/{self._name}"
        _, before = ask(url, "GET", path)
        number = next(self._numbers)
        value = f"{before['value']} {number}".strip()
        with self._recorder.insert(self._name, [number], token=f"{number}") as asked:
            call_s = time.monotonic()
            status, found = ask(url, "PUT", path, {"expected": before["version"], "value": value})
            if status == 409:
                raise NotLeader("somebody else was faster, certainly nothing was done")
            asked.settle(index=found["version"] - 1, replica=url)
            answered = Acknowledged(number, found["version"], found["generation"], call_s, time.monotonic())
        self.acknowledged.append(answered)

    def _read(self, url: str) -> None:
        with self._recorder.read(self._name, "linearizable") as asked:
            _, found = ask(url, "GET", f"/values/{self._name}")
            asked.show([int(number) for number in found["value"].split()], index=found["version"], replica=url)
        self.reads += 1


def broken(acknowledged: Sequence[Acknowledged], final: Sequence[int]) -> str | None:
    """Return what of a name's history can't be: something lost, doubled, or acknowledged by somebody deposed.

    Parameters
    ----------
    acknowledged
        All changes that clients heard to be done.
    final
        The list in the end.
    """
    if len(set(final)) != len(final):
        return "a change was done twice"
    for each in acknowledged:
        if each.version > len(final) or final[each.version - 1] != each.number:
            return f"{each} was acknowledged and is lost"
    ordered = sorted(acknowledged, key=lambda each: each.version)
    for older, newer in itertools.pairwise(ordered):
        if older.generation > newer.generation:
            return f"{newer} is after {older}, of a later generation"
    heard = [(each.answer_s, each.generation) for each in sorted(acknowledged, key=lambda each: each.answer_s)]
    for each in acknowledged:
        if any(answer_s < each.call_s and generation > each.generation for answer_s, generation in heard):
            return f"{each} was acknowledged by a leader when a later one had acknowledged before"
    return None
