"""The check of parts: every byte of what is registered is read and compared with what it should be.

On request all parts are checked, one after the other; a request during a check joins it.  Besides, a slow thread
checks one part every `check_interval_s`, and rests nine times as long as that took, so that rot is found before the last other
copy is gone.

Parts of earlier versions, whose manifest has no checksum, come first and without the pause of `check_interval_s`: once they are
verified they get one (`PartStore.seal`).

A part is whole when its manifest has the content hash with which the part is registered, and every file has the checksum that
the manifest says.  What is not is set aside and fetched again (`TableReplica`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from replitree.errors import CorruptPart, ReplitreeError, Unavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import GetMany, Many
from replitree.protocol.state.registration import content_of
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.storage.disk.aside_check import damage_aside

READ_BATCH = 500
"""Registrations read at once."""

REST = 9
"""The slow thread rests so many times as long as it has read."""


@dataclass(slots=True)
class CheckReport:
    """A check that is running or done: how many parts, how many of them are read, and what is wrong with which.

    `aside`: places of detached parts, frozen snapshots and the kept definition that are damaged, and how.
    """

    parts: int = 0
    done: int = 0
    running: bool = True
    broken: list[tuple[str, str]] = field(default_factory=list)
    aside: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Return it as JSON's types."""
        broken = [{"part": part, "problem": problem} for part, problem in list(self.broken)]
        aside = [{"part": place, "problem": problem} for place, problem in list(self.aside)]
        said = {"parts": self.parts, "done": self.done, "running": self.running, "broken": broken}
        return {**said, "aside": aside} if aside else said


class Checker:
    """Checks the parts of one table replica.

    Parameters
    ----------
    check
        Verifies a registered part by its name and content hash; says why when the part was set aside, else None.
    stopping
        Whether the replica shuts down.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        check: Callable[[str, str], str | None],
        stopping: Callable[[], bool],
    ) -> None:
        self._context = context
        self._parts = parts
        self._check_part = check
        self._stopping = stopping
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"check-{context.replica.table.name}")
        self._running: Future[CheckReport] | None = None
        self._last = CheckReport(running=False)
        self._wake = threading.Event()
        self._after = ""
        self._has_more = False
        """Whether a part of an earlier version was verified last, and more of them may be left."""
        self._tried: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"rot-{context.replica.table.name}", daemon=True)

    # --- on request ---

    def begin(self) -> Future[CheckReport]:
        """Check all parts, unless that is being done; the result comes when it is.

        Raises
        ------
        Unavailable
            The replica shuts down.
        """
        with self._lock:
            if self._running is None or self._running.done():
                if self._stopping():
                    raise Unavailable("the replica shuts down")
                self._last = CheckReport()
                self._running = self._pool.submit(self._check_all, self._last)
            return self._running

    @property
    def last(self) -> CheckReport:
        """The check that is running, or the last one."""
        return self._last

    def _check_all(self, report: CheckReport) -> CheckReport:
        begun = time.monotonic()
        try:
            names = tuple(part.name for part in self._parts.progress.held)
            report.parts = len(names)
            for first in range(0, len(names), READ_BATCH):
                batch = names[first : first + READ_BATCH]
                for name, content in self._registered(batch).items():
                    if self._stopping():
                        raise Unavailable("the replica shuts down; the check was not finished")
                    problem = (
                        self._parts.lacking.get(name) and "its files are broken or gone; it is being fetched again"
                    )
                    problem = problem or self._check_part(name, content)
                    report.done += 1
                    self._context.metrics.checked.labels(self._context.replica.table.name).inc()
                    if problem:
                        report.broken.append((name, problem))
                # Parts that left the table meanwhile count as done.
                report.done = first + len(batch)
            report.aside += self._context.definitions.repair()
            report.aside += damage_aside(self._parts.store)
        finally:
            report.running = False
        seconds = round(time.monotonic() - begun, 3)
        self._context.log.info("parts checked", parts=report.parts, broken=len(report.broken), seconds=seconds)
        for place, problem in report.aside:
            self._context.log.error("damaged aside", place=place, problem=problem)
        return report

    def _registered(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return the content hashes with which parts are registered here; those that have left are left out."""
        paths = tuple(layout.part(self._context.replica, name) for name in names)
        many: Many = self._context.performer.perform(GetMany(paths))
        return {name: content_of(node.value) for name, node in zip(names, many.nodes, strict=True) if node is not None}

    # --- slowly, all the time ---

    def start(self) -> None:
        """Begin to look for rot."""
        if self._context.config.check_interval_s > 0:
            self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop; a check that is running ends with an error."""
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        pause = self._context.config.check_interval_s
        while not self._stopping():
            self._wake.wait(pause)
            begun = time.monotonic()
            try:
                self.check_next()
            except ReplitreeError as error:
                self._context.log.warning("check", problem=str(error))
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the replica live
                self._context.log.defect("check failed")
            pause = REST * (time.monotonic() - begun)
            if not self._has_more:
                pause += self._context.config.check_interval_s

    def check_next(self) -> str | None:
        """Check the part that comes next by name, and return its name; None when there is none.

        Raises
        ------
        CoordinationUnavailable
            Coordination does not answer.
        """
        names = sorted(part.name for part in self._parts.progress.held)
        # First come the parts whose manifests are of an earlier version and were not verified yet; each is tried once.
        self._tried.intersection_update(names)
        first: str | None = None
        for each in (each for each in names if each not in self._tried):
            # The next read of a part with a damaged manifest sets it aside.
            with suppress(CorruptPart):
                is_sealed = self._parts.store.manifest(each).is_sealed
                self._tried.add(each)
                if not is_sealed:
                    first = each
                    break
        self._has_more = first is not None
        name = first or next((each for each in names if each > self._after), names[0] if names else None)
        if name is None or self._stopping():
            return None
        if first is None:
            self._after = name
        for each, content in self._registered((name,)).items():
            if each not in self._parts.lacking:
                self._check_part(each, content)
                self._context.metrics.checked.labels(self._context.replica.table.name).inc()
        return name
