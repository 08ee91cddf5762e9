"""A year of inserts and merges in some seconds: what a merge selector costs, and how many parts it leaves.

The simulation is one of events in virtual time: inserts come from a stream, the selector is asked about the partitions in which
something has changed (and four times a day about all of them), and a merge takes a slot and a time that depends on its
bytes and rows.  What is in the rows does not matter, only how many bytes they and the files around them take (`Shape`).

* *Write amplification*: bytes of rows written by inserts and merges, divided by those inserted; 1 without merges.
* *Parts*: of the whole table, and of the partition that has the most; while a merge runs its sources count and its result does
  not.

Both selectors get the same streams, slots and speed, and are asked equally often.  Absent on purpose: replicas, the log, reads,
removed rows, and everything that could make two runs differ.

``python -m replitree_bench.selector.year [--svg FILE]`` prints the comparison and draws it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import random
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from replitree.protocol.core.parts import Part, inserted_part, merged_part
from replitree.protocol.propose.select_merges import MIB, Choice, MergeCandidate, SelectorSettings, select_merges
from replitree_bench.kit.svg import Chart, draw
from replitree_bench.selector.clickhouse import select_as_clickhouse

Selector = Callable[[Sequence[MergeCandidate], Sequence[int]], Sequence[Choice]]
"""Takes the candidates and the sizes in bytes of the merges under way."""

DAY_S = 86_400
YEAR_S = 365 * DAY_S
MONTH_S = YEAR_S / 12
SWEEP_S = 6 * 3_600
"""Between two looks at partitions in which nothing has happened, for their age."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows and files take.

    Attributes
    ----------
    row_bytes
        Of each row.
    file_bytes
        Of each part, beside its rows: the footer.
    """

    row_bytes: int = 100
    file_bytes: int = 0


class Insert(NamedTuple):
    """One insert of a stream: when, into which partition, how many bytes of rows."""

    time_s: float
    partition: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What merges run on.

    Attributes
    ----------
    slots
        Merges at once.
    bytes_per_s, rows_per_s
        Speed of one merge, whichever takes longer.
    merge_s, source_s
        What a merge takes beside its bytes: the log entry, the commit; and for each of its sources, the opening of files.
    select_every_s
        How long the selector rests after it has found nothing; when it has found no slot, until one is free.
    """

    slots: int = 8
    bytes_per_s: float = 50 * MIB
    rows_per_s: float = 4e6
    merge_s: float = 0.1
    source_s: float = 0.003
    select_every_s: float = 5.0

    def merge_time_s(self, choice: Choice) -> float:
        """Seconds from the choice to the result."""
        moving_s = max(choice.bytes / self.bytes_per_s, choice.rows / self.rows_per_s)
        return self.merge_s + self.source_s * len(choice.sources) + moving_s


@dataclass(slots=True)
class _Sample:
    """Of one stretch of time."""

    part_seconds: float = 0.0
    partition_parts_max: int = 0
    amplification: float = 1.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of a stream with a selector.

    Attributes
    ----------
    inserts, inserted_bytes
        What was inserted.
    merges, merged_bytes
        What merges wrote.
    parts_mean, parts_end
        Parts of the table: over time, and at the end.
    partition_parts_max, partition_parts_mean
        Of the partition with the most parts: ever, and over time.
    series_parts, series_partition_max, series_amplification
        For equal stretches of time: mean parts of the table, the most parts of a partition, and the write amplification from
        the beginning to the end of the stretch.
    """

    inserts: int
    inserted_bytes: int
    merges: int
    merged_bytes: int
    parts_mean: float
    parts_end: int
    partition_parts_max: int
    partition_parts_mean: float
    series_parts: tuple[float, ...]
    series_partition_max: tuple[float, ...]
    series_amplification: tuple[float, ...]

    @property
    def write_amplification(self) -> float:
        """Bytes of rows written for each that was inserted."""
        return (self.inserted_bytes + self.merged_bytes) / self.inserted_bytes


@dataclass(slots=True)
class _Held:
    """A part of the simulated table: `bytes` are those of its rows."""

    part: Part
    bytes: int
    born_s: float
    free: bool = True


@dataclass(slots=True)
class _Table:
    """Parts by partition, ascending, and how many of which partition there are."""

    shape: Shape
    partitions: dict[str, list[_Held]] = field(default_factory=dict)
    parts: int = 0

    def insert(self, index: int, insert: Insert) -> None:
        self.partitions.setdefault(insert.partition, []).append(
            _Held(inserted_part(insert.partition, index), insert.bytes, insert.time_s)
        )
        self.parts += 1

    def find(self, choice: Choice) -> slice:
        """Where the sources of a choice stand in their partition."""
        held = self.partitions[choice.sources[0].partition]
        begin = bisect_left(held, choice.sources[0].block_min, key=lambda each: each.part.block_min)
        found = slice(begin, begin + len(choice.sources))
        assert tuple(each.part for each in held[found]) == choice.sources, "sources are not neighbours"
        return found

    def begin(self, choice: Choice) -> None:
        for each in self.partitions[choice.sources[0].partition][self.find(choice)]:
            assert each.free
            each.free = False

    def finish(self, choice: Choice, now_s: float) -> int:
        """Put the result in the place of its sources; return the bytes of its rows."""
        held, found = self.partitions[choice.sources[0].partition], self.find(choice)
        result = _Held(merged_part(choice.sources), sum(each.bytes for each in held[found]), now_s)
        held[found] = [result]
        self.parts -= len(choice.sources) - 1
        return result.bytes

    def candidates(self, partitions: Iterable[str], now_s: float) -> list[MergeCandidate]:
        return [
            MergeCandidate(
                each.part,
                each.bytes // self.shape.row_bytes,
                each.bytes + self.shape.file_bytes,
                int(now_s - each.born_s),
                each.free,
            )
            for partition in sorted(partitions)
            for each in self.partitions[partition]
        ]


class _Account:
    """Adds up what a run shows, over all of it and in equal stretches of time."""

    def __init__(self, seconds: float, samples: int) -> None:
        self.sample_s = seconds / samples
        self.samples = [_Sample() for _ in range(samples)]
        self.seconds = seconds
        self.now_s = 0.0
        self.inserts = self.inserted_bytes = self.merges = self.merged_bytes = 0
        self.partition_max_seconds = 0.0

    def advance(self, to_s: float, parts: int, partition_max: int) -> None:
        """Time goes on; until now there were so many parts."""
        to_s = min(to_s, self.seconds)
        self.partition_max_seconds += partition_max * (to_s - self.now_s)
        while self.now_s < to_s:
            number = min(len(self.samples) - 1, int(self.now_s / self.sample_s))
            sample = self.samples[number]
            end_s = to_s if number == len(self.samples) - 1 else min(to_s, (number + 1) * self.sample_s)
            end_s = max(end_s, math.nextafter(self.now_s, math.inf))
            sample.part_seconds += parts * (end_s - self.now_s)
            sample.partition_parts_max = max(sample.partition_parts_max, partition_max)
            if self.inserted_bytes:
                sample.amplification = 1 + self.merged_bytes / self.inserted_bytes
            self.now_s = end_s

    def result(self, table: _Table) -> SimulationResult:
        return SimulationResult(
            inserts=self.inserts,
            inserted_bytes=self.inserted_bytes,
            merges=self.merges,
            merged_bytes=self.merged_bytes,
            parts_mean=sum(each.part_seconds for each in self.samples) / self.seconds,
            parts_end=table.parts,
            partition_parts_max=max(each.partition_parts_max for each in self.samples),
            partition_parts_mean=self.partition_max_seconds / self.seconds,
            series_parts=tuple(each.part_seconds / self.sample_s for each in self.samples),
            series_partition_max=tuple(float(each.partition_parts_max) for each in self.samples),
            series_amplification=tuple(each.amplification for each in self.samples),
        )


class _Simulation:
    """One run: events in the order of their times."""

    def __init__(self, selector: Selector, machine: Machine, seconds: float, samples: int, shape: Shape) -> None:
        self.selector = selector
        self.machine = machine
        self.seconds = seconds
        self.table = _Table(shape)
        self.account = _Account(seconds, samples)
        self.changed: dict[str, None] = {}  # partitions to look at, in the order of the changes
        self.running: list[int] = []
        self.rest_until_s = 0.0
        self.woken = False
        self.events: list[tuple[float, int, Choice | str]] = []
        self.numbers = itertools.count()

    def run(self, stream: Iterable[Insert]) -> SimulationResult:
        for time_s in range(SWEEP_S, math.ceil(self.seconds), SWEEP_S):
            self._at(time_s, "sweep")
        for index, insert in enumerate(stream):
            self._work_until(insert.time_s)
            self._advance(insert.time_s)
            self.table.insert(index, insert)
            self.account.inserts += 1
            self.account.inserted_bytes += insert.bytes
            self.changed[insert.partition] = None
            self._wake(insert.time_s)
        self._work_until(self.seconds)
        self._advance(self.seconds)
        return self.account.result(self.table)

    def _at(self, time_s: float, what: Choice | str) -> None:
        heapq.heappush(self.events, (time_s, next(self.numbers), what))

    def _advance(self, to_s: float) -> None:
        largest = max(map(len, self.table.partitions.values()), default=0)
        self.account.advance(to_s, self.table.parts, largest)

    def _work_until(self, time_s: float) -> None:
        while self.events and self.events[0][0] <= time_s:
            now_s, _, what = heapq.heappop(self.events)
            self._advance(now_s)
            if isinstance(what, Choice):
                self.running.remove(what.bytes)
                self.account.merges += 1
                self.account.merged_bytes += self.table.finish(what, now_s)
                self.changed[what.sources[0].partition] = None
            elif what == "sweep":
                several = (name for name, held in self.table.partitions.items() if len(held) > 1)
                self.changed.update(dict.fromkeys(several))
            else:
                self.woken = False
                self._select(now_s)
                continue
            self._wake(now_s)

    def _wake(self, now_s: float) -> None:
        """Let the selector look, when it has rested."""
        if not self.woken and self.changed:
            self.woken = True
            self._at(max(now_s, self.rest_until_s), "select")

    def _select(self, now_s: float) -> None:
        while choices := self.selector(self.table.candidates(self.changed, now_s), self.running):
            for choice in choices:
                self.table.begin(choice)
                self.running.append(choice.bytes)
                self._at(now_s + self.machine.merge_time_s(choice), choice)
        if self.machine.slots - len(self.running) > self.machine.slots // 2:  # a merge of any size could have begun
            self.changed.clear()
        if len(self.running) < self.machine.slots:  # otherwise the end of a merge is what it waits for
            self.rest_until_s = now_s + self.machine.select_every_s


def simulate(
    selector: Selector,
    stream: Iterable[Insert],
    seconds: float,
    machine: Machine | None = None,
    *,
    samples: int = 365,
    shape: Shape | None = None,
) -> SimulationResult:
    """Let a selector work on a stream of inserts.

    Parameters
    ----------
    selector
        What chooses the merges; it is asked again until it finds nothing.
    stream
        Inserts, ascending by time.
    seconds
        Virtual time to simulate; merges that end later do not count.
    machine
        What merges run on.
    samples
        Points of the series.
    shape
        Of rows and files; rows of 100 bytes and nothing around them by default.
    """
    return _Simulation(selector, machine or Machine(), seconds, samples, shape or Shape()).run(stream)


# --- selectors ------------------------------------------------------------------------------------------------------------


def our_selector(machine: Machine, settings: SelectorSettings | None = None) -> Selector:
    """Return ours, for the slots of a machine."""
    settings = replace(settings or SelectorSettings(), merges_max=machine.slots)
    return lambda candidates, running: select_merges(candidates, settings, running=running)


def clickhouse_selector(machine: Machine) -> Selector:
    """Return ClickHouse's, for the slots of a machine."""
    return lambda candidates, running: select_as_clickhouse(candidates, running=len(running), slots=machine.slots)


# --- streams --------------------------------------------------------------------------------------------------------------


def year_stream(seed: int = 1, days: int = 365) -> Iterator[Insert]:
    """Give a year of inserts, a month a partition: five an hour on average, by day three times as many as by night, about 4 MB.

    One hour in a hundred has a burst of thirty inserts within a minute.  In the first three days of a month one insert in ten
    is for the month before; of all, one in a thousand is for any earlier month.

    Parameters
    ----------
    seed
        Same seed, same stream.
    days
        How many.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    for hour in range(days * 24):
        rate = 5 * (1 - 0.5 * math.cos(2 * math.pi * hour / 24)) * (0.5 if hour // 24 % 7 >= 5 else 1.2)
        times = [draw.random() * 3600 for _ in range(int(rate + draw.random()))]
        if draw.random() < 0.01:
            begin = draw.random() * 3540
            times += [begin + draw.random() * 60 for _ in range(30)]
        for time_s in sorted(times):
            yield _insert_of_year(draw, hour * 3600 + time_s)


def _insert_of_year(draw: random.Random, now_s: float) -> Insert:
    month = int(now_s / MONTH_S)
    if month and now_s - month * MONTH_S < 3 * DAY_S and draw.random() < 0.1:
        month -= 1
    elif month and draw.random() < 0.001:
        month = draw.randrange(month)
    return Insert(now_s, f"m{month + 1:02d}", int(draw.lognormvariate(math.log(2 * MIB), 1.2)) + 1)


def steady_stream(seconds: float, inserts_per_s: float, insert_bytes: int) -> Iterator[Insert]:
    """Give equal inserts into one partition, at equal distances.

    Parameters
    ----------
    seconds
        How long.
    inserts_per_s
        How many.
    insert_bytes
        Bytes of the rows of each.
    """
    for number in range(int(seconds * inserts_per_s)):
        yield Insert(number / inserts_per_s, "all", insert_bytes)


# --- what is compared -------------------------------------------------------------------------------------------------------

YEAR_MACHINE = Machine()
"""For the year: no need to look more often, at five inserts an hour."""

STEADY_MACHINE = Machine(select_every_s=0.2)
"""For a hundred inserts a second: a leader that looks whenever it has pulled something."""

STEADY_S = 600
STEADY_INSERTS_PER_S = 100
STEADY_INSERT_BYTES = 20_000

COMPRESSED = Shape(row_bytes=1, file_bytes=1_000)
"""Rows that compress very well: those of `bench steady`."""

COMPRESSED_INSERT_BYTES = 100


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both selectors on the same streams: a year, and ten minutes of a hundred inserts a second, twice."""

    our_year: SimulationResult
    their_year: SimulationResult
    our_steady: SimulationResult
    their_steady: SimulationResult
    our_compressed: SimulationResult
    their_compressed: SimulationResult


def compare(seed: int = 1, days: int = 365) -> Comparison:
    """Run both selectors on both streams.

    Parameters
    ----------
    seed
        Of the year.
    days
        Length of the year.
    """
    year = list(year_stream(seed, days))
    steady = list(steady_stream(STEADY_S, STEADY_INSERTS_PER_S, STEADY_INSERT_BYTES))
    compressed = list(steady_stream(STEADY_S, STEADY_INSERTS_PER_S, COMPRESSED_INSERT_BYTES))

    def year_of(selector: Selector) -> SimulationResult:
        return simulate(selector, year, days * DAY_S, YEAR_MACHINE, samples=days)

    def steady_of(selector: Selector) -> SimulationResult:
        return simulate(selector, steady, STEADY_S, STEADY_MACHINE, samples=STEADY_S // 5)

    def compressed_of(selector: Selector) -> SimulationResult:
        return simulate(selector, compressed, STEADY_S, STEADY_MACHINE, samples=STEADY_S // 5, shape=COMPRESSED)

    return Comparison(
        our_year=year_of(our_selector(YEAR_MACHINE)),
        their_year=year_of(clickhouse_selector(YEAR_MACHINE)),
        our_steady=steady_of(our_selector(STEADY_MACHINE)),
        their_steady=steady_of(clickhouse_selector(STEADY_MACHINE)),
        our_compressed=compressed_of(our_selector(STEADY_MACHINE)),
        their_compressed=compressed_of(clickhouse_selector(STEADY_MACHINE)),
    )


def measure_amplification(days: int = 365) -> dict[str, dict[str, float]]:
    """Return what `bench merges` reports of the selectors, under ``ours`` and ``peer``; deterministic, some seconds of CPU.

    Keys: `write_amplification`, `parts_mean`, `partition_parts_max` of the year; `steady_write_amplification`,
    `steady_parts_max` of ten minutes of a hundred inserts a second; `compressed_…` the same of rows that compress very well.

    Parameters
    ----------
    days
        Length of the year; fewer are faster, and show less.
    """
    found = compare(days=days)
    return {
        "ours": _measured(found.our_year, found.our_steady, found.our_compressed),
        "peer": _measured(found.their_year, found.their_steady, found.their_compressed),
    }


def _measured(year: SimulationResult, steady: SimulationResult, compressed: SimulationResult) -> dict[str, float]:
    return {
        "write_amplification": round(year.write_amplification, 3),
        "parts_mean": round(year.parts_mean, 1),
        "partition_parts_max": float(year.partition_parts_max),
        "steady_write_amplification": round(steady.write_amplification, 3),
        "steady_parts_max": float(steady.partition_parts_max),
        "compressed_write_amplification": round(compressed.write_amplification, 3),
        "compressed_parts_max": float(compressed.partition_parts_max),
    }


def draw_comparison(found: Comparison) -> str:
    """Return the comparison as an SVG document."""
    names = ("replitree", "ClickHouse's selector")
    year, steady = (found.our_year, found.their_year), (found.our_steady, found.their_steady)
    days = len(found.our_year.series_parts)
    return draw(
        [
            Chart("parts of the table", "day", days, [(n, r.series_parts) for n, r in zip(names, year, strict=True)]),
            Chart(
                "bytes written for each byte inserted, since the first day",
                "day",
                days,
                [(n, r.series_amplification) for n, r in zip(names, year, strict=True)],
            ),
            Chart(
                f"most parts of the partition, {STEADY_INSERTS_PER_S} inserts a second",
                "second",
                STEADY_S,
                [(n, r.series_partition_max) for n, r in zip(names, steady, strict=True)],
            ),
        ]
    )


def _report(found: Comparison) -> str:
    lines = [
        f"{'':24}{'amplification':>14}{'parts mean':>12}{'at the end':>12}{'partition max':>15}{'mean':>8}{'merges':>9}"
    ]
    rows = {
        "year, ours": found.our_year,
        "year, ClickHouse's": found.their_year,
        "ten minutes, ours": found.our_steady,
        "ten minutes, ClickHouse's": found.their_steady,
        "compressed, ours": found.our_compressed,
        "compressed, ClickHouse's": found.their_compressed,
    }
    for name, row in rows.items():
        lines.append(
            f"{name:26}{row.write_amplification:12.2f}{row.parts_mean:12.1f}{row.parts_end:12}"
            f"{row.partition_parts_max:15}{row.partition_parts_mean:8.1f}{row.merges:9}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the comparison, and draw it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m replitree_bench.selector.year", description=main.__doc__)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it into this file")
    parser.add_argument("--seed", type=int, default=1, help="of the year's stream")
    parser.add_argument("--days", type=int, default=365, help="length of the year")
    options = parser.parse_args()
    found = compare(options.seed, options.days)
    sys.stdout.write(_report(found))
    if options.svg:
        options.svg.write_text(draw_comparison(found), encoding="utf-8")


if __name__ == "__main__":
    main()
