"""Merges made by Spark: published by the replica that was asked, the same on all, and nothing left when it goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from replitree.cli.main import main
from replitree.cli.tables import optimize as optimize_command
from replitree.client.change.planned import planned_merges
from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree.errors import BadInput, CorruptPart, Unavailable
from replitree.spark.merge import optimize
from replitree.spark.merge.optimize import RangeFile, RangeTask, make_range, optimize_df
from replitree.spark.session.tasks import run_tasks
from replitree.storage.files.durable import file_checksum
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.schema.definition import TableSettings
from tests.spark.conftest import uploads_left
from tests.spark.test_overwrite import leases, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

POLICIES = ["plain", "replacing(v)", "summing(v)"]


@pytest.fixture(params=POLICIES)
def filled(request: pytest.FixtureRequest, running: LocalCluster, name: str) -> Any:
    """A table with three partitions of three parts each, whose keys overlap."""
    table = running.create_table(
        name,
        "p int, k bigint, v bigint, s string",
        order_by="k",
        partition_by="p",
        policy=request.param,
        settings=TableSettings(row_group_rows=1000),
    )
    for version in range(3):
        keys = range(0, 9000, version + 1)
        columns: dict[str, Any] = {
            "p": pa.array([key % 3 for key in keys], pa.int32()),
            "k": pa.array([key // 2 for key in keys], pa.int64()),
            "v": pa.array([version] * len(keys), pa.int64()),
            "s": [f"{version} {key}" for key in keys],
        }
        table.insert(pa.table(columns))
    yield table
    running.drop_table(name)


def contents(table: Table) -> dict[str, str]:
    """Wait until both replicas have executed everything; return the parts with their content, which must agree."""
    tail = table.status().log_tail

    def parts(replica: str) -> dict[str, str]:
        snapshot = table.replica(replica).snapshot(tail - 1)
        return {part.part: part.manifest.content for part in snapshot.parts}

    wait_until(lambda: all(each.queue == 0 for each in table.status().replicas))
    wait_until(lambda: parts("r1") == parts("r2"))
    return parts("r1")


def kernel_hashes(table: Table, folder: Path) -> dict[str, str]:
    """What the replicas' own code makes of each partition of the present snapshot, by partition."""
    found: dict[str, str] = {}
    snapshot = table.snapshot()
    folder.mkdir()
    for partition in sorted({part.manifest.partition for part in snapshot.parts}):
        parts = [part for part in snapshot.parts if part.manifest.partition == partition]
        parts.sort(key=lambda part: int(part.part.split("_")[1]))
        found[partition] = merge_parts([Path(part.path) for part in parts], table.definition, folder).content
    return found


def test_result_is_what_replicas_make_and_the_same_on_all(
    spark: SparkSession, running: LocalCluster, filled: Table, tmp_path: Path
) -> None:
    table = filled
    expected = kernel_hashes(table, tmp_path / "kernel")
    before = sorted(table.to_arrow(final=True).to_pylist(), key=str)
    result = optimize_df(table, spark, final=True, range_bytes=4096)
    assert (result.finished, result.reason, len(result.merges)) == (True, "", 3)
    found = contents(table)
    assert {part.rsplit("_", 3)[0]: content for part, content in found.items()} == expected
    assert sorted(table.to_arrow().to_pylist(), key=str) == before
    made = {part.part: part for part in table.replica(_planner(table)).snapshot().parts}
    assert all(len(made[merge.result].manifest.files) > 1 for merge in result.merges)
    assert uploads_left(running, table) == []
    assert leases(table) == 0
    assert sorted(table.to_df(spark).collect()) == sorted(
        spark.createDataFrame(pa.Table.from_pylist(before, table.schema)).collect()
    )


def _planner(table: Table) -> str:
    with planned_merges(table, None, final=True, timeout_s=30) as plan:
        return str(plan.table.commander.replicas()[0].name)


@pytest.mark.parametrize("filled", ["plain"], indirect=True)
def test_executors_without_the_disk_send_the_result(
    spark: SparkSession, running: LocalCluster, filled: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(optimize, "is_own_local", lambda _: False)
    expected = kernel_hashes(filled, tmp_path / "kernel")
    result = optimize_df(filled, spark, "1", final=True)
    assert [(merge.partition, merge.applied, merge.finished) for merge in result.merges] == [("1", True, True)]
    assert contents(filled)[result.merges[0].result] == expected["1"]
    assert uploads_left(running, filled) == []


@pytest.mark.parametrize("filled", ["summing(v)"], indirect=True)
def test_command_line_tells_what_spark_merged(
    spark: SparkSession,
    running: LocalCluster,
    filled: Table,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(optimize_command, "_spark", lambda: nullcontext(spark))
    said = [filled.name, "--partition", "0", "--final", "--engine", "spark", "--dir", str(running.folder), "--json"]
    assert main(["optimize", *said]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(merge["partition"], merge["finished"]) for merge in found["merges"]] == [("0", True)]
    assert main(["optimize", filled.name, "--engine", "flink"]) != 0
    assert "flink" in capsys.readouterr().err


@pytest.mark.parametrize("filled", ["replacing(v)"], indirect=True)
def test_task_fetches_parts_that_lie_elsewhere(filled: Table, tmp_path: Path) -> None:
    with planned_merges(filled, "2", final=True, timeout_s=30) as plan:
        (merge,) = plan.merges
        upload = plan.table.inserter.open_upload(10)
        addresses = tuple(replica.address for replica in filled.replicas())
        encoded = (filled.definition.encode_metadata(), filled.definition.encode_columns())
        task = RangeTask(
            encoded, merge.sources, "elsewhere", addresses, filled.http, None, 0, 1, upload, str(tmp_path), 32 << 20
        )
        made = make_range(task)
        assert isinstance(made, RangeFile)
        (folder,) = tmp_path.glob("range-0-*")
        assert Path(made.path).parent.parent == folder
        assert made.file.rows < sum(source.manifest.rows for source in merge.sources)


@pytest.mark.parametrize("filled", ["plain"], indirect=True)
def test_failing_job_changes_nothing_and_leaves_nothing(
    spark: SparkSession, running: LocalCluster, filled: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, tail = contents(filled), filled.status().log_tail

    def fails(*_: object) -> list[bytes]:
        assert uploads_left(running, filled)
        return run_tasks(spark, [1, 2], _fail)

    monkeypatch.setattr(optimize, "run_tasks", fails)
    with pytest.raises(Unavailable, match="the Spark job failed: BadInput: as the test wants"):
        filled.optimize(final=True, spark=spark)
    assert (contents(filled), filled.status().log_tail) == (before, tail)
    assert uploads_left(running, filled) == []
    assert leases(filled) == 0


def _fail(number: int) -> bytes:
    raise BadInput("as the test wants")


@pytest.mark.parametrize("filled", ["plain"], indirect=True)
def test_parts_that_change_meanwhile_are_merged_by_nobody(
    spark: SparkSession, running: LocalCluster, filled: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_drop(*args: Any) -> list[bytes]:
        made = run_tasks(*args)
        filled.drop_partition("0")  # the replica that proposes may know of it by then, or not
        return made

    monkeypatch.setattr(optimize, "run_tasks", with_a_drop)
    result = filled.optimize(final=True, spark=spark)
    assert sorted(merge.partition for merge in result.merges) == ["1", "2"]
    assert not result.finished
    assert "partition 0" in result.reason
    assert {part.split("_")[0] for part in contents(filled)} == {"1", "2"}
    wait_until(lambda: uploads_left(running, filled) == [])


@pytest.mark.parametrize("filled", ["plain"], indirect=True)
def test_driver_that_is_killed_leaves_only_what_is_removed_later(running: LocalCluster, filled: Table) -> None:
    """The lease of its parts ends by itself, and what it wrote is an upload whose writer is dead."""
    before = contents(filled)
    program = f"""
        import sys
        from replitree.client import connect
        from replitree.client.change import reserved
        from replitree.spark.merge import optimize
        from replitree.spark import spark_session
        def wait(*_):
            print("ready", flush=True)
            sys.stdin.read()
        optimize.run_tasks, reserved.LEASE_S = wait, 3.0
        with connect({str(running.folder)!r}) as connection:
            optimize.optimize_df(connection.table({filled.name!r}), spark_session(), final=True)
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        assert leases(filled) == 1
        left = uploads_left(running, filled)
        assert len([entry for entry in left if entry.endswith("_scratch")]) == 3
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    assert uploads_left(running, filled) == left
    wait_until(lambda: leases(filled) == 0)
    assert contents(filled) == before
    assert filled.optimize(final=True).finished
    folders = [running.folder / name / "data" / "tables" / filled.definition.folder_name for name in running.names]
    lives = [msgspec.json.decode(path.read_bytes()) for folder in folders for path in folder.glob("uploads/*_life")]
    assert {life["pid"] for life in lives} == {driver.pid}


@pytest.mark.parametrize("filled", ["plain"], indirect=True)
@pytest.mark.parametrize("range_bytes", [4096, 1 << 30])
def test_damaged_part_is_reported_and_the_next_try_merges_it(
    spark: SparkSession, running: LocalCluster, filled: Table, range_bytes: int
) -> None:
    expected, before = contents(filled), sorted(filled.to_arrow().to_pylist(), key=str)
    planner = filled.replica(_planner(filled))
    part = min(planner.snapshot().parts, key=lambda each: each.part)
    path, entry = Path(part.path) / part.manifest.files[0].name, part.manifest.files[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    with pytest.raises(
        CorruptPart, match=rf"{part.part}.* nothing was merged; replica r. repairs .*, then run it again"
    ):
        optimize_df(filled, spark, final=True, range_bytes=range_bytes)
    assert uploads_left(running, filled) == []
    wait_until(lambda: path.exists() and file_checksum(path) == entry.checksum)
    wait_until(lambda: not any(each.lacking for each in filled.status().replicas))
    assert contents(filled) == expected
    result = optimize_df(filled, spark, final=True, range_bytes=range_bytes)
    assert (result.finished, result.reason, len(result.merges)) == (True, "", 3)
    assert sorted(filled.to_arrow().to_pylist(), key=str) == before
