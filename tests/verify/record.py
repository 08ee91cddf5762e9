"""Explore every model to its end, in slices, and keep a record: ``python -m tests.verify.record [--seconds 3600]``.

The record is ``docs/results/models.jsonl``: a line for each model, with its states, its transitions, how long it took, and the
commit of the code.  A model that the record has for this commit is not explored again, so that a run that was cut off goes on
where it stood.  Exit code 1: a model does not hold; 3: the time is over, and models are left.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from replitree_verify import registry, small_models
from tests.project.source import ROOT
from tests.verify.lines import read_lines, write_lines

RECORD = ROOT / "docs/results/models.jsonl"
LEFT = 3
"""Exit code when models are left."""


class Line(msgspec.Struct, frozen=True):
    """What the record has of a model."""

    model: str
    states: int
    transitions: int
    cpu_seconds: float
    commit: str
    violation: str = ""


class Recorded(NamedTuple):
    """What a slice has done: the lines of the record, and the models that are left."""

    lines: tuple[Line, ...]
    left: tuple[str, ...]


def explore(name: str, commit: str) -> Line:
    """Explore a model of any room."""
    began = time.process_time()
    if any(each["name"] == name for each in registry.list_models()):
        found = registry.explore(name)
    elif any(each["name"] == name for each in small_models.list_beside()):
        found = small_models.explore_beside(name)
    else:
        found = registry.explore_published(name)
    what = str(found.violations[0]["what"]) if found.violations else ""
    return Line(name, found.states, found.transitions, round(time.process_time() - began, 1), commit, what)


def record(
    names: Iterable[str], file: Path, commit: str, seconds: float, explore_one: Callable[[str, str], Line] = explore
) -> Recorded:
    """Explore the models that the record lacks for a commit, one after the other, until the time is over.

    Parameters
    ----------
    names
        The models.
    file
        The record; it is written after each model.
    commit
        The commit of the code that is explored.
    seconds
        No model is begun later than this.
    explore_one
        Explores a model, given its name and the commit.
    """
    end = time.monotonic() + seconds
    known = {line.model: line for line in read_lines(file, Line)}
    wanted = tuple(names)
    for name in wanted:
        if (name not in known or known[name].commit != commit) and time.monotonic() < end:
            known[name] = explore_one(name, commit)
            write_lines(file, [known[each] for each in wanted if each in known])
    left = tuple(name for name in wanted if name not in known or known[name].commit != commit)
    return Recorded(tuple(known[name] for name in wanted if name not in left), left)


def every_model() -> tuple[str, ...]:
    """Return the names of the models of every room, the published ones included."""
    listed = (*registry.list_models(), *small_models.list_beside(), *registry.list_packed())
    return tuple(str(each["name"]) for each in listed)


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
    asked = parser.parse_args(arguments)
    found = record(every_model(), asked.file, commit_of(ROOT), asked.seconds, _explore_and_print)
    wrong = [line for line in found.lines if line.violation]
    states, cpu = sum(line.states for line in found.lines), sum(line.cpu_seconds for line in found.lines)
    print(
        f"{len(found.lines)} models, {states:,} states, {cpu:,.0f} s of one core; {len(found.left)} left, {len(wrong)} wrong"
    )
    return 1 if wrong else LEFT if found.left else 0


def _explore_and_print(name: str, commit: str) -> Line:
    line = explore(name, commit)
    print(
        f"{name:40} {line.states:>12,} {line.transitions:>12,} {line.cpu_seconds:>9.1f} s  {line.violation}", flush=True
    )
    return line


if __name__ == "__main__":
    sys.exit(main())
