"""Child processes that read inputs, and what is known of an input that has ended one.

A child gets a stretch of inputs.  When it ends by a signal, the input that it was reading is tried again alone; if that is
harmless, an earlier one has damaged the process: ever longer stretches before it are run until one ends a process again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.child import PROGRESS
from tests.fuzz.targets import MODULE_OF

BATCH = 20_000
"""Inputs of one child: a process that lives longer hides what it leaks."""

BATCH_S_MAX = 3600.0
FINDINGS_MAX = 20
"""Findings of a target after which it is left: they are mostly the same."""

_ROOT = Path(__file__).parents[2]
_SYSTEM_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_PERTURB_": "165", "OMP_NUM_THREADS": "1"}
"""Arrow takes its memory from the C library, which fills it: a read of bytes that were never written shows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that was neither accepted nor refused."""

    target: str
    number: int
    problem: str


@dataclass(slots=True)
class Counts:
    """What became of the inputs of a target."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)


def run_target(name: str, seed: int, inputs: int, batch: int = BATCH) -> Counts:
    """Run the inputs 0 … `inputs` of a target in child processes."""
    counts, first = Counts(), 0
    while first < inputs and len(counts.findings) < FINDINGS_MAX:
        first = _run_batch(name, seed, range(first, min(inputs, first + batch)), counts)
    return counts


def run_together(names: Sequence[str], seed: int, inputs: int) -> dict[str, Counts]:
    """Run the first inputs of several targets of one module in one child process: for a short run, its begin costs most.

    An input that ends the process ends all.
    """
    numbers = range(inputs)
    ended = _child(names, seed, numbers)
    found = {name: Counts(inputs, *told) for name, told in ended.told.items()}
    for finding in ended.findings:
        found.setdefault(finding.target, Counts()).findings.append(finding)
    if ended.problem:
        found.setdefault(ended.name, Counts()).findings.append(Finding(ended.name, ended.number, ended.problem))
    return found


def _run_batch(name: str, seed: int, numbers: range, counts: Counts) -> int:
    """Run some inputs in one child; return the number of the next one, which is that after an input that ended the child."""
    ended = _child([name], seed, numbers)
    counts.accepted += ended.accepted
    counts.refused += ended.refused
    counts.findings += ended.findings
    if ended.problem:
        cause = _cause(name, seed, numbers, ended.number) if ended.by_signal else "the fuzzer itself has failed"
        counts.findings.append(Finding(name, ended.number, f"{ended.problem}; {cause}"))
    after = ended.number + 1 if ended.problem else numbers.stop
    counts.inputs += after - numbers.start
    return after


def _cause(name: str, seed: int, numbers: range, last: int) -> str:
    """Say which inputs end a process when they are read again."""
    length = 1
    while True:
        first = max(numbers.start, last + 1 - length)
        if _child([name], seed, range(first, last + 1)).problem:
            return "again when it is read alone" if length == 1 else f"again after the inputs from {first} on"
        if first == numbers.start:
            return "not again"
        length *= 8


@dataclass(slots=True)
class _Ended:
    """How a child ended: with which input of which target, if by one, and what it has told before."""

    name: str
    number: int
    accepted: int
    refused: int
    problem: str
    by_signal: bool
    findings: list[Finding]
    told: dict[str, tuple[int, int]]


def _child(names: Sequence[str], seed: int, numbers: range) -> _Ended:
    with tempfile.NamedTemporaryFile() as progress:
        progress.write(PROGRESS.pack(0, numbers.start, 0, 0))
        progress.flush()
        inputs = (str(seed), str(numbers.start), str(len(numbers)))
        command = (
            sys.executable,
            "-m",
            "tests.fuzz.child",
            MODULE_OF[names[0]],
            ",".join(names),
            *inputs,
            progress.name,
        )
        environment = {**os.environ, **_SYSTEM_MEMORY}
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT, env=environment)
        try:
            out, err = child.communicate(timeout=BATCH_S_MAX)
            problem = ""
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            problem = f"no answer in {BATCH_S_MAX:g} s"
        place, number, accepted, refused = PROGRESS.unpack(Path(progress.name).read_bytes())
    findings, told = list[Finding](), dict[str, tuple[int, int]]()
    for line in _json_lines(out):
        if "problem" in line:
            findings.append(Finding(line["target"], line["number"], line["problem"]))
        else:
            told[line["target"]] = accepted, refused = line["accepted"], line["refused"]
    if len(told) < len(names) and not problem:
        problem = f"the process ended with {_ending(child.returncode)}\n{err.decode(errors='replace')[-1500:]}".strip()
    return _Ended(names[place], number, accepted, refused, problem, child.returncode < 0, findings, told)


def _json_lines(out: bytes) -> Iterator[dict[str, Any]]:
    for line in out.splitlines():
        if line.startswith(b"{"):
            yield json.loads(line)


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
