"""``python -m tests.shared.rounds --rounds 100 --seed 1``: kill replicas and their object store under load, then count.

Runs slices with consecutive seeds until there were so many rounds; prints what it does as it does it, and a line of JSON for
each slice.  When one fails: its seed, how to repeat it, and where the logs are (the folder is kept).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from tests.faults.arguments import say
from tests.shared.harness import Plan, run
from tests.shared.places import KINDS

ROUNDS_PER_SLICE = 10


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS_PER_SLICE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=KINDS, default=KINDS[0])
    parser.add_argument("--slice", type=int, default=ROUNDS_PER_SLICE, help="rounds with one seed")
    parser.add_argument("--keep", type=Path, help="keep the folders of all slices below this one")
    parser.add_argument("--quiet", action="store_true", help="print results only")
    return parser.parse_args()


def main() -> int:
    """Run slices until there were enough rounds, or one fails."""
    arguments = parse()
    done, seed = 0, arguments.seed
    while done < arguments.rounds:
        plan = Plan(seed, min(arguments.slice, arguments.rounds - done), arguments.store)
        if not run_slice(plan, arguments):
            return 1
        done, seed = done + plan.rounds, seed + 1
    return 0


def run_slice(plan: Plan, arguments: argparse.Namespace) -> bool:
    """Carry out one plan; False when it failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"replitree-shared-{plan.seed}-", dir=arguments.keep))
    say(f"seed {plan.seed} on {plan.store} in {folder}, settings {plan.settings()}")
    try:
        report = run(plan, folder, say if not arguments.quiet else lambda _: None)
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        traceback.print_exc()
        say(f"FAILED: seed {plan.seed}; logs, data and status-<replica>.json are in {folder}")
        more = f"--rounds {plan.rounds} --slice {plan.rounds} --store {plan.store} --keep FOLDER"
        say(f"repeat: .venv/bin/python -m tests.shared.rounds --seed {plan.seed} {more}")
        return False
    say(json.dumps(dataclasses.asdict(report)))
    if arguments.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
