"""Run the fuzzer: ``python -m tests.fuzz.run --inputs 1000000 --seed 1 [--target NAME …]``.

The inputs are shared out among the targets; a table at the end has what became of them.  Each finding is printed, and its input
is written to a folder, to be looked at and, once fixed, put into the corpus.  Exit code 1: there were findings.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.pool import BATCH, Counts, Finding, run_target
from tests.fuzz.targets import ALL, TARGETS

INPUTS_MIN = 50
"""Every target gets so many, however few there are to share out."""


def shares(inputs: int, names: Sequence[str]) -> dict[str, int]:
    """Share inputs out among targets; the corpus is read in any case."""
    total = sum(ALL[name].share for name in names)
    return {name: max(INPUTS_MIN, len(ALL[name].files), inputs * ALL[name].share // total) for name in names}


def save(finding: Finding, seed: int, folder: Path) -> Path:
    """Write the input of a finding into a folder, and return its file."""
    data = ALL[finding.target].mutator.input(seed, finding.number)
    path = folder / finding.target / f"refused-seed-{seed}-{finding.number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=sorted(ALL), help="by default all")
    parser.add_argument("--batch", type=int, default=BATCH, help="inputs of one child process")
    parser.add_argument("--workers", type=int, default=1, help="targets that run at once")
    parser.add_argument(
        "--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs that were found"
    )
    asked = parser.parse_args(arguments)
    counts = shares(asked.inputs, asked.target or list(TARGETS))
    print(f"{'target':20}{'inputs':>10}{'accepted':>10}{'refused':>10}{'findings':>10}{'seconds':>10}", flush=True)
    with ThreadPoolExecutor(asked.workers) as pool:
        slowest_first = sorted(counts.items(), key=lambda share: ALL[share[0]].share)  # a slow target has a small share
        found = list(pool.map(partial(_one, asked), slowest_first))
    total = [
        sum(each) for each in zip(*((c.inputs, c.accepted, c.refused, len(c.findings)) for c in found), strict=True)
    ]
    print(f"{'all':20}" + "".join(f"{number:10}" for number in total))
    return 1 if total[-1] else 0


def _one(asked: argparse.Namespace, share: tuple[str, int]) -> Counts:
    name, inputs = share
    began = time.monotonic()
    counts = run_target(name, asked.seed, inputs, asked.batch)
    numbers = (counts.inputs, counts.accepted, counts.refused, len(counts.findings))
    print(f"{name:20}" + "".join(f"{n:10}" for n in numbers) + f"{time.monotonic() - began:10.1f}", flush=True)
    for finding in counts.findings:
        where = save(finding, asked.seed, asked.findings)
        print(f"\n{name} {finding.number}: {where}\n{finding.problem}\n", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
