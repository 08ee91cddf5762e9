"""The version log of a table with many entries: its size on disk, and what writing, looking up and starting take.

``python -m replitree_bench.table.versions [--entries N]`` writes a version log as a replica does
(`replitree.replica.kit.version_log`): of every eleven entries ten are inserts and one merges ten parts of the level below it,
ten milliseconds after one another.  The table has 300 more parts that never change.  Then another process, which has nothing
in memory, opens it and looks things up.

Times are of the processor: what is read was just written, and is in the page cache.

Absent on purpose: the replica around it.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, inserted_part, merged_part
from replitree.replica.kit.version_log import SEGMENT_ENTRIES, EntryChange, Version, VersionLog
from replitree.wire.remembered import Summary

INCARNATION = "bench"
FIRST_MS = 1_764_210_600_000
ENTRY_MS = 10
PULLED = 64
"""Entries of a pull: so many are appended at once."""
MERGED = 10
OTHER_PARTS = 300
LOOKS = 100


def changes(entries: int, parts: set[Part]) -> Iterator[EntryChange]:
    """Give what so many entries change, from index 0 on; `parts` are those after each."""
    waiting: list[list[Part]] = [[]]
    removed: tuple[Part, ...]
    for index in range(entries):
        level = next((level for level, found in enumerate(waiting) if len(found) == MERGED), None)
        if level is None:
            added, removed = inserted_part("2026-11", index), ()
            summary = Summary("get", "r1", 100, 5_400)
            waiting[0].append(added)
        else:
            removed = tuple(waiting[level])
            added = merged_part(removed)
            summary = Summary("merge", "r1")
            waiting[level].clear()
            if len(waiting) == level + 1:
                waiting.append([])
            waiting[level + 1].append(added)
        parts.difference_update(removed)
        parts.add(added)
        yield EntryChange(
            LogIndex(index + 1), Change(removed, (added,)), (), FIRST_MS + index * ENTRY_MS, entry=summary
        )


def write(folder: Path, entries: int) -> dict[str, float]:
    """Write a version log; return what it took."""
    log = VersionLog(folder, INCARNATION)
    parts = {inserted_part("2026-10", index) for index in range(OTHER_PARTS)}
    log.begin(Version(LogIndex(0), PartSet.of(parts)))
    batch, appends, begins = list[EntryChange](), list[float](), list[float]()
    for change in changes(entries, parts):
        batch.append(change)
        if len(batch) < PULLED:
            continue
        begun = time.process_time()
        log.append(batch)
        appends.append(time.process_time() - begun)
        if log.entries >= SEGMENT_ENTRIES:
            begun = time.process_time()
            log.begin(Version(batch[-1].next, PartSet.of(parts)))
            # Nothing is old enough to be removed; the segments are looked through.
            log.remove_old(0.0)
            begins.append(time.process_time() - begun)
        batch = []
    sizes = [path.stat().st_size for path in folder.iterdir()]
    return {
        "segments": len(sizes),
        "bytes": sum(sizes),
        "bytes_per_entry": sum(sizes) / entries,
        "append_ms": statistics.median(appends) * 1000,
        "append_ms_max": max(appends) * 1000,
        "begin_ms": statistics.median(begins) * 1000,
        "begin_last_ms": statistics.median(begins[-20:]) * 1000,
    }


def look(folder: Path) -> dict[str, float]:
    """Open a version log that another process wrote, and look things up; return what it took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {"open_ms": _timed(lambda: VersionLog(folder, INCARNATION).open_end())}
    log = VersionLog(folder, INCARNATION)
    last = log.open_end()
    assert last is not None
    found["open_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    spread = [index * (last.index - 1) // LOOKS for index in range(LOOKS)]

    def at(index: int) -> None:
        version = log.at(LogIndex(index))
        assert version is not None
        assert version.index == index

    looks = [_timed(partial(at, index)) for index in spread]
    found |= {"at_ms": statistics.median(looks), "at_ms_max": max(looks)}

    def written_by(index: int) -> None:
        reached = log.written_by(FIRST_MS + index * ENTRY_MS, last.index)
        assert reached.index == index + 1

    found["first_oldest_ms"] = _timed(lambda: written_by(0))
    looks = [_timed(partial(written_by, index)) for index in spread]
    found |= {"time_ms": statistics.median(looks), "time_ms_max": max(looks)}
    found["history_100_ms"] = _timed(lambda: log.before(last.index, 100))
    found["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return found


def _timed(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return (time.process_time() - begun) * 1000


def main() -> None:
    """Measure, and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--look", type=Path, help="a folder that was written; otherwise one is, and removed afterwards")
    parser.add_argument("--dir", type=Path, help="work below this folder")
    given = parser.parse_args()
    if given.look is not None:
        sys.stdout.write(json.dumps(look(given.look)))
        return
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        folder = Path(name) / "versions"
        found = {"entries": given.entries, **write(folder, given.entries)}
        command = [sys.executable, "-m", __spec__.name, "--look", str(folder)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        sys.stdout.write(json.dumps({**found, **json.loads(ran.stdout)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
