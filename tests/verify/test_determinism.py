"""The hash seed of Python decides nothing: no state, no count, no trace, no simulated event."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from replitree_verify.registry import explore, simulate
for model, mutant in (("pull_gap", None), ("insert_one_token", "look-without-new-epoch")):
    found = explore(model, mutant)
    print(model, mutant, found.states, found.transitions, found.depth, found.quiet, found.probes, *found.trace, sep="\\n")
print(simulate(0, 5).digest)
"""


def outcome(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def test_two_hash_seeds_give_the_same_states_traces_and_runs() -> None:
    assert outcome(1) == outcome(2)
