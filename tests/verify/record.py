"""Explore every model to its end, in slices, and keep a record: ``python -m tests.verify.record --seconds 3600 --workers 2``.

The record is ``docs/results/models.jsonl``: a line for each model, with its states, its transitions, how long it took, the
commit, and a digest of the code that the exploration runs (`tests.verify.code`) and of the model.  A line is current as long as
that digest is the same: commits that change documents, tests, or code that the model does not run leave it current.  A model
with a current line is not explored again, so that a run that was cut off goes on where it stood.  Small models come first.

Exit code 1: a model does not hold, or is not as its pin says; 3: the time is over, and models are left.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from replitree_published.packed.catalog import PACKED
from replitree_verify import registry, small_models
from replitree_verify.models import MODELS
from replitree_verify.pins import PINS, Pin
from replitree_verify.registry import Result
from tests.project.source import ROOT
from tests.verify.code import digest_of, within
from tests.verify.lines import read_lines, write_lines

RECORD = ROOT / "docs/results/models.jsonl"
LEFT = 3
"""Exit code when models are left."""

COUNTS = ("states", "transitions", "depth", "quiet")
"""What a pin has of an exploration."""


class Line(msgspec.Struct, frozen=True):
    """What the record has of a model."""

    model: str
    states: int
    transitions: int
    cpu_seconds: float
    commit: str
    code: str
    violation: str = ""


class Recorded(NamedTuple):
    """What a slice has done: the lines of the record, and the models that are left."""

    lines: tuple[Line, ...]
    left: tuple[str, ...]


def explore(name: str, commit: str, code: str) -> Line:
    """Explore a model of any room."""
    began = time.process_time()
    if name in MODELS:
        found = registry.explore(name)
    elif name in PACKED:
        found = registry.explore_published(name)
    else:
        found = small_models.explore_beside(name)
    took = round(time.process_time() - began, 1)
    what = str(found.violations[0]["what"]) if found.violations else unlike(found, PINS.get(name))
    return Line(name, found.states, found.transitions, took, commit, code, what)


def unlike(found: Result, pin: Pin | None) -> str:
    """Return in words how an exploration differs from its pin; the published models are pinned in their tests."""
    if pin is None:
        return ""
    pinned = {name: count for name in COUNTS if (count := getattr(pin, name)) is not None}
    return ", ".join(
        f"{name} {getattr(found, name):,}, pinned {count:,}"
        for name, count in pinned.items()
        if getattr(found, name) != count
    )


def record(
    codes: Mapping[str, str],
    file: Path,
    seconds: float,
    explore_one: Callable[[str, str], Line],
    pool: Executor,
    workers: int,
) -> Recorded:
    """Explore the models of which the record has no current line, `workers` at a time, until the time is over.

    Parameters
    ----------
    codes
        The models by name, in the order in which they are explored, each with the digest of its code.
    file
        The record; it is written after each model, in the order of the names.
    seconds
        No model is begun later than this.
    explore_one
        Explores a model, given its name and the digest.
    pool
        Runs `explore_one`.
    """
    end = time.monotonic() + seconds
    known = {line.model: line for line in read_lines(file, Line)}
    waiting = [name for name, code in codes.items() if name not in known or known[name].code != code]
    running = set[Future[Line]]()
    while running or (waiting and time.monotonic() < end):
        while waiting and len(running) < workers and time.monotonic() < end:
            name = waiting.pop(0)
            running.add(pool.submit(explore_one, name, codes[name]))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        known |= {line.model: line for line in (each.result() for each in done)}
        write_lines(file, [known[each] for each in sorted(known) if each in codes])
    return Recorded(tuple(known[name] for name in codes if name not in waiting), tuple(waiting))


def every_model() -> dict[str, str]:
    """Return the models of every room, the published ones included, the small ones first, each with the digest of its code."""
    places: dict[str, tuple[str, Any]] = {
        **{name: ("replitree_verify.engine.explore", model) for name, model in MODELS.items()},
        **{
            model.name: (room.search.__module__.rpartition(".")[0], model)
            for room in small_models.ROOMS
            for model in room.models
        },
        **{name: ("replitree_published.packed", model.limits) for name, model in PACKED.items()},
    }
    names = sorted(places, key=lambda name: PINS[name].states if name in PINS else 0)
    return {name: _code_of(*places[name]) for name in names}


def _code_of(place: str, model: Any) -> str:
    """Return the digest of what runs when a model is explored: its room, or a module of it, and what that imports."""
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(model))  # the functions that it names are in the room
    return sha256(f"{digest_of(*within(place))} {text}".encode()).hexdigest()[:16]


def commit_of(folder: Path) -> str:
    """Return the commit of the code; it must be what is in the folder, but for documents.

    Raises
    ------
    SystemExit
        Code was changed since.
    """
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "src", "verify", "published"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    if changed:
        raise SystemExit(f"a record names the commit of its code: commit these first\n{changed}")
    asked = ["git", "log", "-1", "--format=%h", "--abbrev=10", "--", "src/replitree", "verify", "published"]
    return subprocess.run(asked, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a slice, print what it found, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.record", description=__doc__)
    parser.add_argument("--file", type=Path, default=RECORD)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no model after this time")
    parser.add_argument("--workers", type=int, default=1, help="explore so many models at a time")
    asked = parser.parse_args(arguments)
    one = partial(_explore_and_print, commit_of(ROOT))
    # A process for each model: it gives the memory of a large one back.
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        found = record(every_model(), asked.file, asked.seconds, one, pool, asked.workers)
    wrong = [line for line in found.lines if line.violation]
    states, cpu = sum(line.states for line in found.lines), sum(line.cpu_seconds for line in found.lines)
    print(
        f"{len(found.lines)} models, {states:,} states, {cpu:,.0f} s of one core; {len(found.left)} left, {len(wrong)} wrong"
    )
    return 1 if wrong else LEFT if found.left else 0


def _explore_and_print(commit: str, name: str, code: str) -> Line:
    line = explore(name, commit, code)
    print(
        f"{name:40} {line.states:>12,} {line.transitions:>12,} {line.cpu_seconds:>9.1f} s  {line.violation}", flush=True
    )
    return line


if __name__ == "__main__":
    sys.exit(main())
