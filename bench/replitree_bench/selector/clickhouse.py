"""ClickHouse's merge selector, written down from its description, to be compared with ours.  Nothing else uses it.

The formula (`SimpleMergeSelector`, with the defaults of its settings).  Over every stretch of neighbours of `n` parts, `sum`
bytes, the largest of `max` bytes and the youngest of some age::

    score   = (sum + 5 MiB · n) / (n - 1.9)                                       the smallest wins
    allowed if (sum + 5 MiB · n) / (max + 5 MiB) ≥ base'
    base'   = from 5 down to 2 by min(1, age_n + parts_n)
    parts_n = 0 … 1 as the run of parts that may be merged has 10 … 50 parts
    age_n   = 0 … 1 as the age goes from 10 s to 1 hour for results of 1 MiB, 30 days for 100 GiB, by the logarithm between

If the part on the left is of nearly the same size as the result (at most half a power of two apart, and more than 0.9 of its
size is below the result), the score gets up to a quarter better.  Parts at the right end of less than 1 % of the sum are left
out while three remain.  Stretches have at most 100 parts and begin at one of the first 1001.

The size of a result: 150 GiB while at least half of the pool is free (8 of 16 by default), then less, exponentially, down to 1
MiB. One choice a call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from replitree.protocol.propose.select_merges import GIB, MIB, Choice, MergeCandidate

SIZE_FIXED_COST = 5 * MIB
BASE_MAX, BASE_MIN = 5.0, 2.0
PARTS_MIN, PARTS_MAX = 10, 50
SIZE_MIN_LOG, SIZE_MAX_LOG = math.log(1 + MIB), math.log(1 + 100 * GIB)
AGE_MIN_S = 10.0
AGE_MAX_AT_SIZE_MIN_S, AGE_MAX_AT_SIZE_MAX_S = 3600.0, 30 * 86_400.0
SOURCES_MAX = 100
BEGINS_MAX = 1001
RESULT_MIN, RESULT_MAX = MIB, 150 * GIB

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Best:
    score: float
    sources: tuple[MergeCandidate, ...]


def select_as_clickhouse(candidates: Sequence[MergeCandidate], *, running: int, slots: int) -> tuple[Choice, ...]:
    """Choose one merge, or none, as ClickHouse does.

    Parameters
    ----------
    candidates
        All active parts, ascending by partition and block.
    running
        Merges under way.
    slots
        Size of the pool.
    """
    size_max = result_bytes_max(slots - running, slots)
    if size_max <= 0:
        return ()
    found = [_best_of_run(run, size_max) for run in _runs(candidates)]
    best = min((each for each in found if each), key=lambda each: each.score, default=None)
    if best is None:
        return ()
    sources = best.sources
    return (
        Choice(
            tuple(source.part for source in sources),
            sum(source.rows for source in sources),
            sum(source.bytes for source in sources),
            best.score,
        ),
    )


def result_bytes_max(free: int, slots: int) -> float:
    """Return how large a result may be when `free` of `slots` are free; 0 when nothing may be merged."""
    enough = max(1, slots // 2)
    if free <= 0:
        return 0.0
    if free >= enough:
        return float(RESULT_MAX)
    return float(RESULT_MIN * (RESULT_MAX / RESULT_MIN) ** (free / enough))


def _runs(candidates: Sequence[MergeCandidate]) -> Iterator[tuple[MergeCandidate, ...]]:
    for (_, free), group in groupby(candidates, key=lambda each: (each.part.partition, each.free)):
        run = tuple(group)
        if free and len(run) >= 2:
            yield run


def _best_of_run(run: Sequence[MergeCandidate], size_max: float) -> _Best | None:
    sizes = np.array([each.bytes for each in run], dtype=np.float64)
    ages = np.array([each.age_s for each in run], dtype=np.float64)
    begins, longest = min(len(run), BEGINS_MAX), min(len(run), SOURCES_MAX)
    size = _windows(sizes, begins, longest, np.inf)
    total = np.cumsum(size, axis=1)[:, 1:]
    largest = np.maximum.accumulate(size, axis=1)[:, 1:]
    youngest = np.minimum.accumulate(_windows(ages, begins, longest, 0.0), axis=1)[:, 1:]
    count = np.arange(2, longest + 1, dtype=np.float64)
    fits = total <= size_max
    with np.errstate(invalid="ignore"):
        cost = total + SIZE_FIXED_COST * count
        grown = cost / (largest + SIZE_FIXED_COST) >= _base(np.where(fits, total, 0.0), youngest, len(run))
    left = np.concatenate([[0.0], sizes[: begins - 1]])[:, np.newaxis]
    score = np.where(fits & grown, cost / (count - 1.9) * _aligned(np.where(fits, total, 1.0), left), np.inf)
    begin, further = divmod(int(np.argmin(score)), longest - 1)
    best = float(score[begin, further])
    if math.isinf(best):
        return None
    end = begin + further + 2
    whole = float(total[begin, further])
    while end >= begin + 3 and sizes[end - 1] < 0.01 * whole:
        end -= 1
    return _Best(best, tuple(run[begin:end]))


def _windows(values: Floats, begins: int, longest: int, beyond: float) -> Floats:
    """Return, for each begin, the values of the next `longest` parts; `beyond` where there are none."""
    padded = np.concatenate([values, np.full(longest - 1, beyond)])
    return sliding_window_view(padded, longest)[:begins]


def _base(total: Floats, youngest_s: Floats, parts: int) -> Floats:
    """Return how many times its largest source a result must be."""
    size = np.clip((np.log(1 + total) - SIZE_MIN_LOG) / (SIZE_MAX_LOG - SIZE_MIN_LOG), 0, 1)
    age_max_s = AGE_MAX_AT_SIZE_MIN_S + (AGE_MAX_AT_SIZE_MAX_S - AGE_MAX_AT_SIZE_MIN_S) * size
    age = np.clip((youngest_s - AGE_MIN_S) / (age_max_s - AGE_MIN_S), 0, 1)
    crowd = min(1.0, max(0.0, (parts - PARTS_MIN) / (PARTS_MAX - PARTS_MIN)))
    lowered: Floats = BASE_MAX + (BASE_MIN - BASE_MAX) * np.minimum(1.0, age + crowd)
    return lowered


def _aligned(total: Floats, left: Floats) -> Floats:
    """Return the factor of the score: below 1 where the result would be as large as the part on the left."""
    near = left > 0.9 * total
    with np.errstate(divide="ignore"):
        apart = np.abs(np.log2(total / np.where(left > 0, left, np.nan)))
    factor: Floats = np.where(near & (apart < 0.5), 0.75 + 0.25 * apart / 0.5, 1.0)
    return factor
