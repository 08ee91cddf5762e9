"""``python -m tests.machines.rounds.run --rounds 200 --seed 1``: kill leaders under load while the group suffers, and judge it.

Prints a line for each round and JSON at the end.  When something is wrong the folder is kept: the history, the group, the
output of the candidates.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from replitree_bench.kit.report import quantile
from tests.machines.rounds.grounds import GROUNDS
from tests.machines.rounds.harness import run
from tests.storage.objects.seaweed import KEYS

QUANTILES = {"p50": 0.5, "p90": 0.9, "max": 1.0}


def main() -> int:
    """Do the rounds; 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=sorted(GROUNDS), default="directories", help="where the group lies")
    parser.add_argument("--dir", type=Path, help="work below this folder")
    parser.add_argument(
        "--p50-max", type=float, help="fail when the median take-over without a lease takes longer, in seconds"
    )
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # candidates are started often
    os.environ |= KEYS  # of the store that a run starts
    place = Path(tempfile.mkdtemp(prefix=f"replitree-rounds-{arguments.seed}-", dir=arguments.dir))
    try:
        report = run(
            place / "run", arguments.rounds, arguments.seed, lambda line: print(line, flush=True), arguments.store
        )
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        traceback.print_exc()
        print(f"FAILED: seed {arguments.seed}; everything is in {place}", flush=True)
        return 1
    shutil.rmtree(place, ignore_errors=True)
    found = dataclasses.asdict(report)
    for end, times in found["take_overs_s"].items():
        quantiles = {name: round(quantile(times, share), 3) for name, share in QUANTILES.items()}
        found["take_overs_s"][end] = {"count": len(times), **quantiles}
    print(json.dumps(found), flush=True)
    if arguments.p50_max is not None and report.take_over_p50_s > arguments.p50_max:
        print(f"FAILED: half of the take-overs took more than {arguments.p50_max:g} s", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
