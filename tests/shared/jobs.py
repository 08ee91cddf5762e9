"""A client that inserts as a Spark job does, without Spark: tasks put files into the store, their driver commits.

It is the product's own way (`replitree.spark.write.write_tasks`, `replitree.spark.write.write_commit`): of a job all,
some or none of the tasks reach the store.  Some tasks are attempted twice, some drivers end before they commit.  So
parts have several files; right afterwards a mutation changes the rows of one of them, and the result borrows the others.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

from typing_extensions import override

from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.insert.upload import Upload, discard_upload
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.client.transport.catalog import this_machine
from replitree.client.transport.stored import Through
from replitree.errors import BadInput, OutcomeUnknown, SnapshotExpired, StoreError, Unavailable
from replitree.spark.write.store_write import offered
from replitree.spark.write.write_commit import commit_staged
from replitree.spark.write.write_tasks import StagedMessage, WriteJob, job_of, scratch_folder, write_task
from replitree.storage.files.folder_walk import below
from replitree.wire.identity import process_started
from replitree.wire.upload_life import Writer
from tests.faults.changer import Changer
from tests.faults.workload import INSERT_S, READ_S, Account, rows

NUMBER = 10
"""Of the first of them, among clients that change."""

JOB, BORROWED = "job into the store", "part that borrows"
JOB_PAUSE_S = 0.3
TASKS = (1, 2, 3, 4, 5)
TASK_ROWS = 20
CHANGES = (0, 1, 1, 2, 3)
"""How often rows of a job are changed, drawn from these."""

TWICE, ENDED = 0.2, 0.1
"""Shares of tasks that are attempted twice, and of drivers that end before they commit."""

PARTITIONS, PARTITION_JOBS = 1000, 3
"""So many partitions each of them has at most, and so many of its jobs go into the same one."""

REFUSALS_MAX = 30
"""A job that is refused so often in a row, for what is not a fault, never will be taken."""

LONG_AGO = (1, 1)


class JobWriter(Changer):
    """Inserts by jobs of several tasks, and changes rows of one task each."""

    def __init__(self, number: int, table: Table, names: tuple[str, ...], account: Account, seed: int) -> None:
        super().__init__(NUMBER + number, table, names, account, seed)
        self.name = f"jobs-{number}"
        self._driver = ended_process()
        self._borrowing: set[str] = set()
        self._jobs = 0

    @override
    def _act(self) -> None:
        if self._stop.wait(JOB_PAUSE_S):
            return
        pieces = self.insert()
        for _ in range(self._random.choice(CHANGES) if pieces else 0):
            self.change_one(pieces)
        self._jobs += 1

    @property
    def _partition(self) -> int:
        """Where rows go: into a new partition after some jobs, since what is merged soon does not borrow."""
        return self._number * PARTITIONS + self._jobs // PARTITION_JOBS

    def insert(self) -> dict[str, range]:
        """Insert rows by a job; return what each of its tasks has inserted, which is nothing when that is not certain."""
        token, partition = f"w{self._number}-{self._next}", self._partition
        count = self._random.choice(TASKS)
        starts = [self._next + number * TASK_ROWS for number in range(count + 1)]
        self._next = starts[-1]
        pieces = {f"{token}.{start}": range(start, stop) for start, stop in pairwise(starts)}
        for piece, ids in pieces.items():
            self._account.partition[piece] = str(partition)
            self._account.begin(piece, ids)
        if self._random.random() < ENDED:
            self._end_early(token, pieces)
            return {}
        result = self._until_inserted(token, pieces)
        if result is None:
            return {}
        self._account.count(f"job {result.outcome}")
        for piece in pieces:
            self._account.acknowledge(piece, result.index)
        return pieces

    def change_one(self, pieces: dict[str, range]) -> None:
        """Change the rows of one task, and look whether the result borrows those of the others."""
        piece = self._random.choice(sorted(pieces))
        self._update_rows(piece, pieces[piece])
        for name in self._names:
            with suppress(Unavailable, SnapshotExpired, StoreError):
                self._look(self._table.replica(name).snapshot(min_index=-1, timeout_s=READ_S))

    def _look(self, snapshot: Snapshot) -> None:
        for part in snapshot.parts:
            is_ours = int(part.manifest.partition) // PARTITIONS == self._number
            if is_ours and part.manifest.borrowed and part.part not in self._borrowing:
                self._borrowing.add(part.part)
                self._account.count(BORROWED)

    def _until_inserted(self, token: str, pieces: dict[str, range]) -> InsertResult | None:
        """Run a job with one token, however often it takes; None: given up."""
        refused, problem = 0, Exception()
        while True:
            self.doing = f"job {token}"
            try:
                return self._run_job(token, pieces)
            except (OutcomeUnknown, Unavailable, StoreError, OSError) as error:
                refused, problem = 0, error
            except BadInput as error:  # the upload is gone, or a column: Spark would be told, too
                refused, problem = refused + 1, error
                if refused == REFUSALS_MAX:
                    raise AssertionError(f"{self.doing} failed for good: {error!r}") from error
            self._account.count(f"job {type(problem).__name__}")
            self.doing = f"job {token}: {problem}"
            if self._give_up.wait(JOB_PAUSE_S):
                return None

    def _run_job(self, token: str, pieces: dict[str, range]) -> InsertResult:
        with ExitStack() as stack:
            table, job, messages = self._staged(token, pieces, stack)
            try:
                result = commit_staged(job, table, messages, Terms(token, INSERT_S))
            except OutcomeUnknown:
                raise  # the replica may be about to take it
            except BaseException:
                discard_upload(job.opened, table.http)
                raise
            if all(message.tags for message in messages):
                self._account.count(JOB)
            return result

    def _end_early(self, token: str, pieces: dict[str, range]) -> None:
        """Run the tasks of a job whose driver ends then, and of which nobody has heard for long."""
        with suppress(OutcomeUnknown, Unavailable, StoreError, BadInput, OSError), ExitStack() as stack:
            _, job, _ = self._staged(token, pieces, stack)
            self._account.count("job ended early")
            if job.path is not None:
                let_age(Path(job.path))
        self._account.remove(list(pieces), certain=True)

    def _staged(
        self, token: str, pieces: dict[str, range], stack: ExitStack
    ) -> tuple[Table, WriteJob, list[StagedMessage]]:
        """Open an upload and run the tasks."""
        table = self._somewhere()
        table.refresh()
        upload = table.inserter.open_upload(INSERT_S, self._driver)
        try:
            job = self._job(table, upload)
            if job.folder is not None:
                stack.enter_context(scratch_folder(job.folder))
            return table, job, [self._task(job, ids, token) for ids in pieces.values()]
        except BaseException:
            discard_upload(upload, table.http)
            raise

    def _job(self, table: Table, upload: Upload) -> WriteJob:
        through: Through | None = "store" if upload.store and self._random.random() < 0.5 else None
        names = rows(range(0)).schema.names
        return job_of(table.definition, names, table.http, upload, store=offered(upload, through), through=through)

    def _task(self, job: WriteJob, ids: range, token: str) -> StagedMessage:
        data = rows(ids, (self._partition,), token)
        if self._random.random() < TWICE:
            write_task(job, iter(data.to_batches()))
        return write_task(job, iter(data.to_batches()))


def ended_process() -> Writer:
    """Return who a process was that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        started = process_started(process.pid)
        assert started is not None
        assert process.stdin is not None
        process.stdin.close()
        return Writer(this_machine(), process.pid, started)


def let_age(upload: Path) -> None:
    """Let nobody have been heard of for years who writes an upload."""
    for top in upload.parent.glob(f"{upload.name}*"):
        for path in (top, *below(top)):
            with suppress(FileNotFoundError):
                os.utime(path, LONG_AGO)


def let_all_age(folder: Path) -> None:
    """Do so with all uploads of a cluster."""
    for path in folder.glob("*/data/tables/*/uploads/*"):
        let_age(path)


__all__ = ["BORROWED", "JOB", "JobWriter", "ended_process", "let_age", "let_all_age"]
