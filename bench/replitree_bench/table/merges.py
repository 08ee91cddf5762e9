"""Merges: how fast part files become one, in how much memory, and how often a row is written.

Keys::

    rows_per_s             8 parts of 500,000 rows and 5 columns into one, synced; rows of the sources per second
    peak_mb                most memory of the process that does it, interpreter and libraries included, in 2**20 bytes
    write_amplification    bytes written per byte inserted over a simulated year; the peer is ClickHouse's selector on the
                           same stream, computed by its formula (see `replitree_bench.selector.year`, which has the other keys)

Every merge has a process of its own that does nothing else, as memory that was once taken is not told apart later.  Its time is
taken inside, from the first look at the sources until the result is synced.

``python -m replitree_bench.table.merges FOLDER`` is that process: it merges the parts in ``FOLDER/source-N`` and prints JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.errors import ReplitreeError
from replitree_bench.kit.report import Measured, medians

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.storage.schema.definition import TableDefinition

PARTS = 8
PART_ROWS = 500_000
SCHEMA = "d date not null, k bigint not null, v double not null, s string not null, n int not null"
FIRST_DAY = 17_532
DAYS = 31
MIB = 1 << 20


def measure_kernel(
    rounds: int, *, folder: Path | None = None, part_rows: int = PART_ROWS, say: Callable[[str], None] = print
) -> Measured:
    """Merge the same parts again and again; return the medians of `rows_per_s` and `peak_mb`.

    Parameters
    ----------
    rounds
        How often.
    folder
        Work below it; the system's temporary folder by default.
    part_rows
        Rows of each of the eight parts.
    say
        Told what is being done.

    Raises
    ------
    ReplitreeError
        A merge failed.
    """
    place = Path(tempfile.mkdtemp(prefix="replitree-bench-", dir=folder))
    try:
        say("writing the parts to merge")
        make_parts(place, part_rows)
        found = []
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            found.append(_merge_in_a_process(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return medians(found)


def make_parts(folder: Path, part_rows: int) -> None:
    """Write the parts, alike and overlapping: keys without order, as inserts at any time bring them."""
    from replitree.storage.parts.encode import stage_table

    for number in range(PARTS):
        stage_table(_rows(number, part_rows), _definition(), folder / f"source-{number}")


def _definition() -> TableDefinition:
    from replitree.storage.schema.definition import define_table

    return define_table("bench", SCHEMA, order_by="k", table_id="0" * 32)


def _rows(seed: int, rows: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    columns = {
        "d": pa.array((FIRST_DAY + rng.integers(0, DAYS, rows)).astype(np.int32)).cast(pa.date32()),
        "k": rng.integers(0, 1 << 40, rows),
        "v": rng.random(rows),
        "s": pa.array(rng.integers(0, 10**9, rows)).cast(pa.string()),
        "n": rng.integers(0, 1000, rows).astype(np.int32),
    }
    return pa.table(columns).cast(_definition().arrow_schema)


def _merge_in_a_process(folder: Path) -> Measured:
    command = [sys.executable, "-m", "replitree_bench.table.merges", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ReplitreeError(f"a merge failed: {ran.stderr.strip()[-500:]}")
    measured: Measured = json.loads(ran.stdout)
    return measured


def merge_once(folder: Path) -> Measured:
    """Merge the parts in a folder, measure, and remove the result."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401 - a replica has loaded both long before it merges

    from replitree.storage.rewrite.merge import merge_parts

    sources = [folder / f"source-{number}" / "all" for number in range(PARTS)]
    begin = time.perf_counter()
    manifest = merge_parts(sources, _definition(), folder / "merged")
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder / "merged")
    return {"rows_per_s": manifest.rows / seconds, "peak_mb": _peak_bytes() / MIB}


def _peak_bytes() -> int:
    """Most memory that this program had.

    Not `getrusage` where there is something better: on Linux that also counts what the process was before this program, and
    so whatever its parent had.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="ascii").splitlines() if ":" in line)
        return int(fields["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(merge_once(Path(sys.argv[1]))))
