"""One child process of the fuzzer: it runs a stretch of inputs of one target, and says before each which one comes.

``python -m tests.fuzz.child MODULE TARGETS SEED FIRST COUNT PROGRESS``: the numbers are written to the file PROGRESS, so that
the parent knows which input has ended the process.  Other findings are printed, one line of JSON for each, and one line when
all inputs of a target were read.  TARGETS are names with commas between them; nearly always it is one.

The limits: RLIMIT_AS above what the process has when it begins, and a timer of CPU time, whose signal ends the process.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

from tests.fuzz.target import ACCEPTED, REFUSED, Read, Target, outcome_of, promised

PROGRESS = struct.Struct("<qqqq")
"""Numbers of the target and of its input that is being read, and how many were accepted and refused before it."""

ALIKE_MAX = 2
"""Findings with one cause, as far as the traceback tells, that are reported of one child."""

_STATUS, _PEAK = Path("/proc/self/status"), re.compile(rb"VmHWM:\s+(\d+)")

_MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: on a disk, making a file anew costs 20 times what reading it does."""

_HARD = 4
"""A child ends at so many times the limits of an input: less is told by the child itself."""


def main() -> None:
    """Run."""
    module, names, seed, first, count, progress = sys.argv[1:]
    targets: dict[str, Target] = {target.name: target for target in import_module(module).TARGETS}
    numbers = range(int(first), int(first) + int(count))
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with Path(progress).open("r+b") as file, mmap.mmap(file.fileno(), PROGRESS.size) as shared:
        for place, name in enumerate(names.split(",")):
            with tempfile.TemporaryDirectory(dir=where) as folder, targets[name].open(Path(folder)) as read:
                _limit_memory(targets[name])
                _run(targets[name], read, int(seed), numbers, Progress(shared, place))


class Progress:
    """Tells the parent which input comes."""

    def __init__(self, shared: mmap.mmap, place: int) -> None:
        self._shared = shared
        self._place = place

    def comes(self, number: int, accepted: int, refused: int) -> None:
        """Say so."""
        self._shared[:] = PROGRESS.pack(self._place, number, accepted, refused)


def _limit_memory(target: Target) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + _HARD * target.bytes_max
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _run(target: Target, read: Read, seed: int, numbers: range, progress: Progress) -> None:
    mutator, files, accepted, refused, kinds = target.mutator, target.files, 0, 0, Counter[str]()
    for number in numbers:
        data = mutator.input(seed, number)
        progress.comes(number, accepted, refused)
        before, began = _peak_bytes(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _HARD * target.cpu_s_max)
        outcome, problem = outcome_of(target, read, data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        used, grown = time.process_time() - began, _peak_bytes() - before
        accepted += outcome == ACCEPTED
        refused += outcome == REFUSED
        expected = promised(files[number]) if number < len(files) else None
        if not problem and grown > target.bytes_max:
            problem = f"the process grew by {grown >> 20} MiB"
        if not problem and used > target.cpu_s_max:  # second: memory that is touched for the first time costs CPU, too
            problem = f"took {used:.1f} s of CPU"
        if not problem and expected is not None and expected != outcome:
            problem = f"{files[number].name} was {outcome}"
        kinds[kind := _kind(problem)] += 1
        if problem and kinds[kind] <= ALIKE_MAX:
            print(json.dumps({"target": target.name, "number": number, "problem": problem}), flush=True)
    print(json.dumps({"target": target.name, "accepted": accepted, "refused": refused}), flush=True)


def _kind(problem: str) -> str:
    """Return what a problem has in common with others: the exception, and the last line of this project in the traceback."""
    lines = [line for line in problem.splitlines() if "/src/replitree/" in line]
    return f"{problem.partition(':')[0]} {lines[-1] if lines else ''}"


def _peak_bytes() -> int:
    """Return the most memory that this process has had: of Linux, as the kernel counts it from the program's begin on."""
    if _STATUS.exists():
        return int(_PEAK.findall(_STATUS.read_bytes())[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # threads of a target, such as a server's, need not end
