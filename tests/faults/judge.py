"""``python -m tests.faults.judge --seconds 60 --seed 1``: hurt a cluster while clients write down what they see; judge that.

Runs slices with consecutive seeds until the time is up.  Each leaves history, report and result in a folder, which is named;
what the cluster itself left is removed when everything was fine.  Exit status 0: every promise was kept; 1: not, or the cluster
did not come to rest; 3: it could not be decided.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from replitree_verify.histories.report import lines, word
from tests.faults.arguments import parsed, parser_of, say
from tests.faults.judged_run import HISTORY, REPORT, JudgedPlan, run_judged
from tests.faults.schedule import RECORDED

SLICE_S = 120.0
"""Longest slice with one seed, in seconds; closing reads and verdict come on top."""

SHORTEST_S = 5.0
EXIT_OF = {"fine": 0, "wrong": 1, "undecided": 3}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__, RECORDED)
    parser.add_argument("--clients", type=int, default=JudgedPlan.__dataclass_fields__["clients"].default)
    parser.add_argument("--spark", action="store_true", help="with a driver of Spark, which is killed, too")
    parser.add_argument(
        "--shards", type=int, default=0, choices=(0, 2, 3, 4), help="of the table, each with two servers"
    )
    parser.add_argument("--folder", type=Path, help="where the folders of all slices go")
    return parsed(parser)


def main() -> int:
    """Run slices until the time is up, or one is not fine."""
    arguments = parse()
    seed, left, total = arguments.seed, arguments.seconds, 0
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    while left > 0:
        seconds = min(SLICE_S, left)
        kinds = tuple(kind for kind in arguments.kinds.split(",") if not arguments.shards or kind != "corrupt")
        plan = JudgedPlan(seed, seconds, arguments.clients, kinds=kinds, spark=arguments.spark, shards=arguments.shards)
        status, operations = run_slice(plan, arguments)
        total += operations
        if status:
            return status
        seed, left = seed + 1, left - seconds
        left = 0 if left < SHORTEST_S else left
    say(f"{total:,} operations, seeds {arguments.seed} to {seed - 1}: fine")
    return 0


def run_slice(plan: JudgedPlan, arguments: argparse.Namespace) -> tuple[int, int]:
    """Carry out one plan; return the exit status, and the number of operations."""
    folder = Path(tempfile.mkdtemp(prefix=f"replitree-nemesis-{plan.seed}-", dir=arguments.folder))
    say(f"seed {plan.seed} in {folder}, pinned {plan.pinned()}")
    began = time.monotonic()
    try:
        judged = run_judged(plan, folder, say if not arguments.quiet else lambda _: None)
    except Exception:  # noqa: BLE001 - whatever it is, the run has failed
        traceback.print_exc()
        status, operations = 1, 0
    else:
        say("\n".join(lines(judged.verdict)))
        status, operations = EXIT_OF[word(judged.verdict)], judged.operations["all"]
        say(f"seed {plan.seed}: {operations:,} operations, {judged.operations}")
        say(f"{folder / HISTORY}\n{folder / REPORT}")
    if status:
        more = "" if plan.kinds == RECORDED else f" --kinds {','.join(plan.kinds)}"
        more += " --spark" if plan.spark else ""
        more += f" --shards {plan.shards}" if plan.shards else ""
        say(f"NOT FINE: seed {plan.seed}, after {time.monotonic() - began:.0f} s; everything is in {folder}")
        say(f"repeat: .venv/bin/python -m tests.faults.judge --seed {plan.seed} --seconds {plan.seconds:.0f}{more}")
    else:
        tidy(folder)
    return status, operations


def tidy(folder: Path) -> None:
    """Remove what the cluster left, and keep what clients have written down and what was found."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix not in {".jsonl", ".html"} and path.name != "result.json":
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
