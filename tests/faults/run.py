"""``python -m tests.faults.run --seconds 60 --seed 1``: hurt a real cluster for a while and count every row."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.harness import Plan, run
from tests.faults.nemesis import KINDS

ROUNDS_PER_RUN = 50


def main() -> int:
    """Run slices with consecutive seeds until the time is up; print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="end after so many faults instead")
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated faults to draw from")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep the cluster's folder here")
    args = parser.parse_args()
    began, seed, rounds = time.monotonic(), args.seed, 0
    while rounds < args.rounds or (not args.rounds and time.monotonic() - began < args.seconds):
        left = args.seconds - (time.monotonic() - began)
        plan = Plan(
            seed=seed,
            rounds=min(ROUNDS_PER_RUN, args.rounds - rounds) if args.rounds else ROUNDS_PER_RUN,
            seconds=float("inf") if args.rounds else left,
            replicas=args.replicas,
            kinds=tuple(args.kinds.split(",")),
        )
        with tempfile.TemporaryDirectory(prefix="replitree-faults-") as temporary:
            report = run(plan, args.keep / str(seed) if args.keep else Path(temporary))
        rounds += sum(report.faults.values())
        print(json.dumps(dataclasses.asdict(report)), flush=True)
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
