"""``python -m tests.faults.run --seconds 60 --seed 1``: hurt a real cluster for a while and count every row.

Runs slices with consecutive seeds until the time is up; prints what it does as it does it, and a line of JSON for each slice.
When one fails: its seed, how to repeat it, and where the logs are (the folder is kept).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults.arguments import parsed, parser_of, say
from tests.faults.harness import Plan, run
from tests.faults.schedule import USUAL

ROUNDS_PER_RUN = 50
SLICE_S = 120.0
"""Longest slice with one seed, in seconds; the reckoning comes on top."""


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__, USUAL)
    parser.add_argument("--rounds", type=int, default=0, help="end after so many rounds of faults instead")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--mounted", action="store_true", help="small file systems for the data (needs root)")
    parser.add_argument("--keep", type=Path, help="keep the folders of all runs below this one")
    return parsed(parser)


def main() -> int:
    """Run slices until the time is up, or one fails."""
    arguments = parse()
    began, seed, done = time.monotonic(), arguments.seed, 0
    while done < arguments.rounds or (not arguments.rounds and time.monotonic() - began < arguments.seconds):
        left = arguments.seconds - (time.monotonic() - began)
        plan = Plan(
            seed=seed,
            rounds=min(ROUNDS_PER_RUN, arguments.rounds - done) if arguments.rounds else ROUNDS_PER_RUN,
            seconds=float("inf") if arguments.rounds else min(SLICE_S, left),
            replicas=arguments.replicas,
            kinds=tuple(arguments.kinds.split(",")),
            mounted=arguments.mounted,
        )
        rounds = run_slice(plan, arguments)
        if rounds is None:
            return 1
        done += rounds
        seed += 1
    return 0


def run_slice(plan: Plan, arguments: argparse.Namespace) -> int | None:
    """Carry out one plan; return its rounds, or None when it failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"replitree-faults-{plan.seed}-", dir=arguments.keep))
    print(f"seed {plan.seed} in {folder}, settings {plan.settings()}", flush=True)
    try:
        report = run(plan, folder, say if not arguments.quiet else lambda _: None)
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        traceback.print_exc()
        limit = f"--rounds {plan.rounds}" if arguments.rounds else f"--seconds {plan.seconds:.0f}"
        more = f" --kinds {','.join(plan.kinds)}" if plan.kinds != USUAL else ""
        more += f"{' --mounted' if plan.mounted else ''} --replicas {plan.replicas} --keep FOLDER"
        print(f"FAILED: seed {plan.seed}; logs, data and status-<replica>.json are in {folder}", flush=True)
        print(f"repeat: .venv/bin/python -m tests.faults.run --seed {plan.seed} {limit}{more}", flush=True)
        return None
    print(json.dumps(dataclasses.asdict(report)), flush=True)
    if arguments.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return report.rounds


if __name__ == "__main__":
    sys.exit(main())
