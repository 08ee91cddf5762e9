"""Growth on paper: what an insert costs over 1 to 64 shards, worked out from what a few kinds of inserts cost.

A kind of insert is into so many of the shards of a table.  What it costs is taken for a sum::

    base + per_touched * shards that it touches + per_existing * shards that the table has

`fit` finds the three numbers by least squares of the relative errors, and `page` shows what they come to: an insert grows by
the shards that it touches, and not by those that exist.

Keys of `growth_of`, for `<what>` = ``requests`` (to ZooKeeper) and ``cost`` (CPU milliseconds of the whole cluster)::

    growth_<t>_in_<k>_<what>                                      measured: an insert into t of k shards
    growth_base_<what>, growth_touched_<what>, growth_existing_<what>    the three numbers

``python -m replitree_bench.shards.growth FILE`` prints the tables of `docs/joint-insert-growth.md`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from replitree_bench.kit.report import Measured

WHAT = ("requests", "cost")
SHARDS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of shards that the page shows."""

NAMES = {"requests": "requests to ZooKeeper", "cost": "CPU ms"}


@dataclass(frozen=True, slots=True)
class Growth:
    """What an insert costs: for itself, for each shard that it touches, and for each shard that exists."""

    base: float
    touched: float
    existing: float

    def at(self, touched: int, existing: int) -> float:
        """Return what an insert into so many of so many shards costs.

        >>> Growth(2.0, 10.0, 0.0).at(4, 64)
        42.0
        """
        return self.base + self.touched * touched + self.existing * existing


def fit(measured: Mapping[tuple[int, int], float]) -> Growth:
    """Return the numbers that come nearest to what was measured.

    Parameters
    ----------
    measured
        What an insert costs, above 0, by how many shards it touches and how many there are; at least three kinds.

    >>> fit({(1, 4): 11.0, (4, 4): 41.0, (1, 64): 11.0, (4, 64): 41.0}).touched.__round__(6)
    10.0
    """
    import numpy as np

    # In proportion to what was measured: otherwise the inserts into most shards, which cost most, would decide all three.
    parts = [[1.0 / value, touched / value, existing / value] for (touched, existing), value in measured.items()]
    found, *_ = np.linalg.lstsq(np.array(parts), np.ones(len(parts)), rcond=None)
    return Growth(*map(float, found))


def kinds_of(measured: Measured, what: str) -> dict[tuple[int, int], float]:
    """Return what was measured of inserts into some shards, by how many they touch and how many there are."""
    found = ((re.fullmatch(rf"growth_(\d+)_in_(\d+)_{what}", key), value) for key, value in measured.items())
    return {(int(key[1]), int(key[2])): value for key, value in found if key is not None}


def growth_of(measured: Measured) -> Measured:
    """Return the three numbers of each kind of cost, from what was measured of inserts into some shards."""
    found = Measured()
    for what in WHAT:
        growth = fit(kinds_of(measured, what))
        found |= {f"growth_{name}_{what}": getattr(growth, name) for name in ("base", "touched", "existing")}
    return found


def page(measured: Measured) -> Iterator[str]:
    """Give the lines of two tables: what was measured beside what the numbers say, and 1 to 64 shards on paper."""
    fitted = {what: fit(kinds_of(measured, what)) for what in WHAT}
    yield "| an insert into | " + " | ".join(f"{NAMES[what]}, measured | on paper" for what in WHAT) + " |"
    yield "| --- |" + " --- | --- |" * len(WHAT)
    for touched, existing in sorted(kinds_of(measured, WHAT[0]), key=lambda kind: kind[::-1]):
        cells = (
            f"{measured[f'growth_{touched}_in_{existing}_{what}']:.1f} | {fitted[what].at(touched, existing):.1f}"
            for what in WHAT
        )
        yield f"| {touched} of {existing} shards | " + " | ".join(cells) + " |"
    yield ""
    yield "| shards | " + " | ".join(f"{NAMES[what]}, into 1 of them | into all" for what in WHAT) + " |"
    yield "| --- |" + " --- | --- |" * len(WHAT)
    for shards in SHARDS:
        cells = (f"{fitted[what].at(1, shards):.1f} | {fitted[what].at(shards, shards):.1f}" for what in WHAT)
        yield f"| {shards} | " + " | ".join(cells) + " |"
    yield ""
    said = (
        f"{fitted[what].touched:.2f} for each shard that it touches and {fitted[what].existing:.2f} for each that exists"
        for what in WHAT
    )
    yield "An insert takes " + "; ".join(f"{NAMES[what]}: {text}" for what, text in zip(WHAT, said, strict=True)) + "."


def last_report(file: Path) -> Measured:
    """Return what the last report of growth in a file of reports has measured."""
    reports = [json.loads(line) for line in file.read_text().splitlines()]
    found: Measured = [each for each in reports if each["name"] == "growth"][-1]["ours"]
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join((*page(last_report(Path(sys.argv[1]))), "")))


__all__ = ["SHARDS", "WHAT", "Growth", "fit", "growth_of", "kinds_of", "last_report", "page"]
