"""A million operations are judged in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.histories.large import write_large

PROGRAM = """
import json, resource, sys
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
verdict = check(read_files([sys.argv[1]]))
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([verdict.counts, verdict.operations, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20]))
"""


@pytest.mark.nightly
def test_a_million_operations_take_seconds_and_a_gigabyte(tmp_path: Path) -> None:
    file, stale = tmp_path / "history.jsonl", set(range(5_000, 500_000, 50_000))
    write_large(file, 1_000_000, stale=stale)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True)
    counts, operations, cpu_s, gigabytes = json.loads(done.stdout)
    assert (counts, operations) == ({"L1": len(stale)}, 1_000_000)
    assert cpu_s < 20
    assert gigabytes < 4
