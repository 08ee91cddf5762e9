"""Very large merges with Spark: its executors make the results, a replica publishes them as its own.

Order; what fails or dies before step 4 leaves an upload, which the replica removes, and parts that are merged later:

1. *plan*      the leader chooses the merges and keeps their parts (`replitree.client.change.planned`)
2. *make*      each merge is cut into ranges of the order key (`replitree.storage.rewrite.key_range`), and each range is one
               task: it reads the parts where they lie, or what it needs of them at replicas, and merges its rows by the code
               that replicas merge with
3. *gather*    the ranges' files, in their order, are the files of the result
4. *publish*   the replica looks at them, proposes the merge, and uses them when it executes it

Where results go into an object store, tasks read and put there (`replitree.spark.merge.store_merge`), and the replica takes the
result by reference.  Where they do not reach it a log says why, and the merge is made as that of a table on disks.

Guarantees: content and order of the rows are what replicas would have made, whatever the policy, the number of tasks and their
memory.  The other replicas make the result themselves or fetch it, as their configuration says; either way they compare.

Where this process does not see the disk of the replica, or executors may not, a task of its own cuts each merge.  A range's
task that does not see the parts asks the replicas for the footers and for the row groups that have rows of its range.  The
first range's task reads all, because it verifies the parts for the others.  Each sends its file to the replica.  A merge that
is not cut fetches its parts whole.

A task that finds a damaged part says so, and the driver reports it to the replica (`replitree.spark.merge.damaged`).

Absent on purpose: a shuffle.  The parts are sorted already.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from replitree import private
from replitree.client.change.change_results import Merged, OptimizeResult
from replitree.client.change.command import COMMAND_S
from replitree.client.change.planned import MergePlan, PlannedMerge, planned_merges, publish_result, published
from replitree.client.insert.stored_upload import PutParts
from replitree.client.insert.upload import Upload, discard_upload, renewed, send_file
from replitree.client.read.near import local_folder
from replitree.client.read.part_cache import PartCache
from replitree.client.read.replica_file import replica_files
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.transport.catalog import this_machine
from replitree.client.transport.http import HttpClient
from replitree.errors import BadInput, SnapshotExpired
from replitree.spark.merge.damaged import Damaged, check_damage, or_damaged
from replitree.spark.merge.store_merge import NotReached, StoreMerge, merged_in_store
from replitree.spark.session.tasks import run_tasks
from replitree.spark.store.located import is_own_local
from replitree.spark.write.write_tasks import scratch_folder
from replitree.storage.files.limits import MERGE_MEMORY_BYTES
from replitree.storage.parts.manifest import FileEntry, data_file
from replitree.storage.rewrite.data_files import reading_part
from replitree.storage.rewrite.key_range import KeyRange, can_be_cut, ranges_of, ranges_of_files
from replitree.storage.rewrite.merge import merge_range
from replitree.storage.rewrite.merge_sources import MergeSource
from replitree.storage.schema.definition import TableDefinition, decode_definition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.table import Table

W = TypeVar("W")
R = TypeVar("R")

log = logging.getLogger(__name__)

RANGE_BYTES = 256 << 20
"""Bytes of the sources' files for each range that a merge is cut into."""

RANGES_MAX = 64
"""Ranges of one merge: a part of many files is slower to read and to merge again."""


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One range of one merge.

    Attributes
    ----------
    definition
        The table, as it is encoded.
    sources, machine, addresses
        The parts, the machine whose disk has them, and the addresses that send them to tasks on other machines.
    key_range, number
        Which rows, and which file of the result they become.
    ranges_max
        Into how many ranges the merge may be cut.
    upload
        Where the file is sent, when `scratch` is None.
    scratch
        Where the file is left.
    """

    definition: tuple[bytes, bytes]
    sources: tuple[SnapshotPart, ...]
    machine: str
    addresses: tuple[str, ...]
    http: HttpClient
    key_range: KeyRange | None
    number: int
    ranges_max: int
    upload: Upload
    scratch: str | None
    memory_bytes: int


class RangeFile(msgspec.Struct, frozen=True):
    """The result of a task: a file, and the path where it was left; empty when it was sent."""

    file: FileEntry
    path: str


Made: TypeAlias = PutParts | Sequence[RangeFile]
"""The result of a merge's tasks: put into the object store, or left for the replica."""


def optimize_df(
    table: Table,
    spark: SparkSession,
    partition: str | None = None,
    *,
    final: bool = False,
    timeout_s: float = COMMAND_S,
    range_bytes: int = RANGE_BYTES,
) -> OptimizeResult:
    """Merge parts with Spark.

    Parameters
    ----------
    table, spark
        From `Connection.table` and `replitree.spark.spark_session`.
    partition, final
        As `Table.optimize`.
    timeout_s
        How long to wait for replicas, in seconds; the time of the Spark job does not count.
    range_bytes
        Bytes of sources for each task.

    Raises
    ------
    Unavailable
        No replica takes the merges, or the Spark job failed; nothing was merged.
    LeaseLost
        The parts could not be kept until their results were there; nothing was merged.
    CorruptPart
        A part is damaged; nothing was merged.  Its replica repairs it: run it again.
    """
    with ExitStack() as stack:
        plan = stack.enter_context(planned_merges(table, partition, final=final, timeout_s=timeout_s))
        http, uploads = plan.table.http, list[Upload]()
        for _ in plan.merges:
            upload = plan.table.inserter.open_upload(timeout_s)
            # At the end of this call, also of a failed one; an upload that was committed is not there to be discarded.
            stack.callback(discard_upload, upload, http)
            stack.enter_context(renewed(upload, http))
            uploads.append(upload)
        # In the object store where its tasks reach it, or else through the replica.
        made = _put(plan, uploads, spark, range_bytes)
        left = [number for number in range(len(uploads)) if number not in made]
        wholes = [_whole(plan, plan.merges[number], uploads[number], spark, stack, range_bytes) for number in left]
        cuts = _cut(spark, plan, wholes)
        tasks = [
            [replace(whole, key_range=each, number=place) for place, each in enumerate(ranges)]
            for whole, ranges in zip(wholes, cuts, strict=True)
        ]
        # One job for all merges: Spark's scheduler fills its cores with ranges of any of them.
        told = run_tasks(spark, [task for some in tasks for task in some], make_range)
        if uploads:
            check_damage(plan, uploads[0], told)
        files = (each for each in told if isinstance(each, RangeFile))
        for number, some in zip(left, tasks, strict=True):
            made[number] = [next(files) for _ in some]
        # Before anything is published: the sources must have been kept all the time.
        plan.check()
        outcomes, reasons = [], []
        for number, (merge, upload) in enumerate(zip(plan.merges, uploads, strict=True)):
            try:
                outcomes.append(_publish(plan, merge, upload, made[number], timeout_s))
            except (BadInput, SnapshotExpired) as error:
                # Each merge is of parts of its own: the others are published all the same.
                reasons.append(f"partition {merge.partition}: {error}")
    return published(outcomes, [*reasons, *(f"parts of partition {name} are busy" for name in plan.busy)])


def _put(plan: MergePlan, uploads: Sequence[Upload], spark: SparkSession, range_bytes: int) -> dict[int, Made]:
    """Have tasks put results into the object store; return those that are there, by the numbers of their merges."""
    encoded, addresses = _encoded(plan), _addresses(plan)
    wanted = {
        number: StoreMerge(
            encoded, merge.sources, addresses, _http(plan, upload), upload, _ranges_max(merge, range_bytes)
        )
        for number, (merge, upload) in enumerate(zip(plan.merges, uploads, strict=True))
        if upload.store
    }
    if not wanted:
        return {}

    def run(work: Sequence[W], do: Callable[[W], R]) -> list[R]:
        return run_tasks(spark, work, do)

    found: dict[int, Made] = {}
    told = merged_in_store(run, list(wanted.values()))
    check_damage(plan, uploads[0], told)
    for number, each in zip(wanted, told, strict=True):
        if isinstance(each, NotReached):
            merge = plan.merges[number]
            why = "%s: partition %s of table %s is merged through replica %s"
            log.warning(why, each.reason, merge.partition, plan.table.name, uploads[number].replica.name)
        elif isinstance(each, PutParts):
            found[number] = each
    return found


def _whole(
    plan: MergePlan,
    merge: PlannedMerge,
    upload: Upload,
    spark: SparkSession,
    stack: ExitStack,
    range_bytes: int,
) -> RangeTask:
    """Return a merge as one task, which may be cut into several."""
    folder = upload.folder if is_own_local(spark) else None
    return RangeTask(
        _encoded(plan),
        merge.sources,
        plan.machine,
        _addresses(plan),
        _http(plan, upload),
        None,
        0,
        _ranges_max(merge, range_bytes),
        upload,
        None if folder is None else str(stack.enter_context(scratch_folder(folder))),
        MERGE_MEMORY_BYTES,
    )


def _cut(spark: SparkSession, plan: MergePlan, wholes: Sequence[RangeTask]) -> list[Sequence[KeyRange | None]]:
    """Cut merges into ranges: here where the sources' footers are, else in a task for each."""
    cuts: list[Sequence[KeyRange | None]] = [(None,)] * len(wholes)
    away = dict[int, RangeTask]()
    for number, whole in enumerate(wholes):
        if whole.scratch is not None and plan.machine == this_machine():
            parts = [(Path(source.path), source.manifest) for source in whole.sources]
            ranges = or_damaged(whole.sources, partial(ranges_of, parts, plan.definition, whole.ranges_max))
            check_damage(plan, whole.upload, [ranges])
            cuts[number] = () if isinstance(ranges, Damaged) else ranges
        elif whole.ranges_max > 1 and can_be_cut(plan.definition):
            away[number] = whole
    if away:
        found = run_tasks(spark, list(away.values()), cut_merge)
        check_damage(plan, wholes[0].upload, found)
        for number, ranges in zip(away, found, strict=True):
            cuts[number] = () if isinstance(ranges, Damaged) else ranges
    return cuts


def _http(plan: MergePlan, upload: Upload) -> HttpClient:
    """Return how a task asks replicas: it may read the table's parts and fill the upload."""
    http = plan.table.http
    return HttpClient(http.ticket(plan.table.name, reads=True, upload=upload.id), http.tls)


def _encoded(plan: MergePlan) -> tuple[bytes, bytes]:
    return plan.definition.encode_metadata(), plan.definition.encode_columns()


def _addresses(plan: MergePlan) -> tuple[str, ...]:
    return tuple(replica.address for replica in plan.table.replicas() if replica.address)


def _ranges_max(merge: PlannedMerge, range_bytes: int) -> int:
    return min(RANGES_MAX, -(-merge.bytes // range_bytes))


def cut_merge(task: RangeTask) -> tuple[KeyRange | None, ...] | Damaged:
    """Cut a merge into ranges, on an executor.  Raises as `make_range`."""

    def ranges() -> tuple[KeyRange | None, ...]:
        definition = decode_definition(*task.definition)
        with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
            sources = _sources(task, definition, Path(temporary), whole=False)
            with reading_part(Path(task.sources[0].part)):
                files = [place for source in sources for place, _ in source.entries]
                return ranges_of_files(files, definition, task.ranges_max)

    return or_damaged(task.sources, ranges)


def make_range(task: RangeTask) -> RangeFile | Damaged:
    """Merge one range, on an executor.

    Raises
    ------
    SnapshotExpired
        A source is gone.
    """
    return or_damaged(task.sources, partial(_range_file, task))


def _range_file(task: RangeTask) -> RangeFile:
    definition = decode_definition(*task.definition)
    with tempfile.TemporaryDirectory(prefix="replitree-task-") as temporary:
        sources = _sources(task, definition, Path(temporary), whole=task.key_range is None)
        attempt = Path(temporary) / "made"
        if task.scratch is not None:
            # Spark may run a task twice, at the same time, too: each attempt has a folder of its own.
            attempt = Path(task.scratch) / f"range-{task.number}-{secrets.token_hex(4)}"
        part = merge_range(sources, definition, attempt, task.key_range, memory_bytes=task.memory_bytes)
        (made,) = part.files
        path = attempt / part.partition / made.name
        file = FileEntry(data_file(task.number), made.rows, made.bytes, made.checksum)
        if task.scratch is not None:
            return RangeFile(file, str(path))
        if file.rows:
            send_file(task.http, task.upload, part.partition, path, file)
        return RangeFile(file, "")


def _sources(task: RangeTask, definition: TableDefinition, folder: Path, *, whole: bool) -> list[MergeSource]:
    """Return the parts as a task reads them: on this disk, else fetched whole, or at the replicas by ranges."""
    cache = PartCache(task.http, definition.name, task.addresses, folder)
    found: list[MergeSource] = []
    for source in task.sources:
        here = None
        # An executor may see other file systems than the replica of its machine; if the part is gone, replicas say so.
        with suppress(SnapshotExpired):
            here = local_folder(source, task.machine, definition.name)
        if here is not None:
            found.append(MergeSource(here, source.manifest))
        elif whole:
            found.append(MergeSource(cache.fetch(source), source.manifest))
        else:
            files = replica_files(cache, task.http, definition.name, source)
            found.append(MergeSource(Path(source.part), source.manifest, files))
    return found


def _publish(plan: MergePlan, merge: PlannedMerge, upload: Upload, made: Made, timeout_s: float) -> Merged:
    """Publish a result: objects of the store as they are, other files after they were moved into the upload."""
    if isinstance(made, PutParts):
        files = [file for manifest in made.manifests for file in manifest.files]
    else:
        files = [each.file for each in made if each.file.rows]
    if not files:
        raise BadInput("the policy leaves no row of these parts; a replica has to merge them")
    if isinstance(made, PutParts):
        return publish_result(plan, merge, upload.id, files, timeout_s=timeout_s, stored=made)
    for each in made:
        if each.file.rows and each.path:
            folder = Path(str(upload.path)) / merge.partition
            private.make_folder(folder, exist_ok=True)
            shutil.move(each.path, folder / each.file.name)
            private.fit(folder / each.file.name)
    return publish_result(plan, merge, upload.id, files, timeout_s=timeout_s)
