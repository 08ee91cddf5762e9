"""The data of the demo: this machine's files, a repository's history, or a file of the user's.

Each is read once, by Spark, into a folder of Parquet files, one for each block.  What is loaded, loaded again and compared is
that folder: the machine's files may change in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.demo import git, inventory, questions
from replitree.demo.questions import Question
from replitree.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A machine with few files would be walked for hours.
WALKS_MAX = 1000
INPUT_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoData:
    """Data that lie ready.

    Attributes
    ----------
    table
        Name for the table.
    schema
        Its columns, as DDL.
    order_by, partition_by
        Its keys.
    questions
        What to ask of it.
    blocks
        Parquet files, each one block.
    rows
        In all of them.
    """

    table: str
    schema: str
    order_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    questions: tuple[Question, ...]
    blocks: tuple[Path, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read.

    Attributes
    ----------
    file, repository
        The user's data; when both are None, the files of this machine.
    rows_min
        Rows that the inventory must have.
    blocks
        How many blocks to make.
    root
        Where the inventory begins.
    """

    file: Path | None = None
    repository: Path | None = None
    rows_min: int = 100_000
    blocks: int = 12
    root: str = "/"


def check(wanted: Wanted) -> None:
    """Refuse what can't be read, before anything is started.

    Raises
    ------
    BadInput
        Says what is wrong.
    """
    if wanted.file is not None and wanted.repository is not None:
        raise BadInput("--input and --git name two kinds of data: give one of them")
    if wanted.repository is not None:
        git.check_repository(wanted.repository)
    if wanted.file is not None:
        if wanted.file.suffix.lower() not in INPUT_SUFFIXES:
            raise BadInput(
                f"{wanted.file}: the demo reads {', '.join(INPUT_SUFFIXES)}; convert the file, or use `replitree insert`"
            )
        try:
            with wanted.file.open("rb") as file:
                if not file.read(1):
                    raise BadInput(f"{wanted.file} is empty")
        except FileNotFoundError:
            raise BadInput(f"there is no file {wanted.file}") from None
        except IsADirectoryError:
            raise BadInput(f"{wanted.file} is a folder: name one file") from None
        except OSError as error:
            raise BadInput(f"can't read {wanted.file}: {error.strerror}") from error


def prepare(spark: SparkSession, wanted: Wanted, folder: Path, say: Say) -> DemoData:
    """Read the data into blocks.

    Parameters
    ----------
    spark
        Reads and writes.
    wanted
        What to read.
    folder
        Where the blocks go.
    say
        Told what happens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if wanted.repository is not None:
        return _history(spark, wanted.repository, wanted, folder, say)
    if wanted.file is not None:
        return _file(spark, wanted.file, wanted, folder)
    return _files(spark, wanted, folder, say)


def _files(spark: SparkSession, wanted: Wanted, folder: Path, say: Say) -> DemoData:
    """Walk this machine as often as it takes to have enough rows."""
    walks = [folder / "walk-1"]
    # Each task of the first walk has a fair share of the rows; if that was not enough, tasks may have all of them.
    rows_max = max(inventory.WalkLimits().rows_max, wanted.rows_min)
    share = rows_max // wanted.blocks
    rows = _walk(spark, wanted, 1, walks[0], share)
    if rows < wanted.rows_min:
        rows = _walk(spark, wanted, 1, walks[0], rows_max)
    elif max(map(_rows_of, _blocks(walks[0]))) >= share:
        say(f"the walk stopped after {rows:,} entries; this machine has more")
    if rows == 0:
        raise BadInput(f"nothing below {wanted.root} can be seen: use --input FILE or --git REPOSITORY")
    keys = (inventory.ORDER_BY, inventory.PARTITION_BY)
    # The rows of each task are one block.
    if rows >= wanted.rows_min:
        return DemoData("files", inventory.COLUMNS, *keys, questions.INVENTORY, _blocks(walks[0]), rows)
    say(
        f"this machine has only {rows:,} files, folders and links: the walk is repeated, as for an inventory "
        f"taken every day, until there are {wanted.rows_min:,} rows (column `walk` says which is which)"
    )
    while rows < wanted.rows_min and len(walks) < WALKS_MAX:
        number = len(walks) + 1
        walks.append(folder / f"walk-{number}")
        rows += _walk(spark, wanted, number, walks[-1], inventory.WalkLimits().rows_max)
    say(f"{len(walks)} walks, {rows:,} rows")
    made = DemoData("files", inventory.COLUMNS, *keys, questions.INVENTORY, (), rows)
    return _divide(spark.read.parquet(*map(str, walks)), folder / "blocks", wanted.blocks, made)


def _walk(spark: SparkSession, wanted: Wanted, number: int, target: Path, rows_max: int) -> int:
    """Walk the machine once with Spark's workers, each task up to `rows_max` rows; return the number of rows."""
    from replitree.demo.inventory_source import NAME, InventorySource

    spark.dataSource.register(InventorySource)
    skipped = sorted(inventory.skipped_folders([target.parent.parent]))
    options: dict[str, str | int] = {"root": wanted.root, "walk": number, "skip": json.dumps(skipped)}
    frame = spark.read.format(NAME).options(**options, tasks=wanted.blocks, rows=rows_max).load()
    frame.write.mode("overwrite").parquet(str(target))
    return sum(map(_rows_of, _blocks(target)))


def _blocks(folder: Path) -> tuple[Path, ...]:
    """Return the files with rows that Spark wrote."""
    return tuple(file for file in sorted(folder.glob("part-*.parquet")) if _rows_of(file))


def _rows_of(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def _history(spark: SparkSession, repository: Path, wanted: Wanted, folder: Path, say: Say) -> DemoData:
    """Read a repository's history; only git knows how, so this is a pipe into one Parquet file, which Spark then reads."""
    import pyarrow.parquet as pq

    target = folder / "history.parquet"
    with pq.ParquetWriter(target, git.arrow_schema()) as writer:
        for batch in git.batches(repository):
            writer.write_batch(batch)
    frame = spark.read.parquet(str(target))
    rows = frame.count()
    if rows == 0:
        raise BadInput(f"no commit in {repository} changes a file: name another repository")
    if rows < wanted.rows_min:
        say(
            f"this repository has {rows:,} changes of files: fewer than {wanted.rows_min:,}, and that is all there is to load"
        )
    return _divide(
        frame,
        folder / "blocks",
        wanted.blocks,
        DemoData("changes", git.COLUMNS, git.ORDER_BY, git.PARTITION_BY, questions.GIT, (), rows),
    )


def _file(spark: SparkSession, path: Path, wanted: Wanted, folder: Path) -> DemoData:
    """Read the user's file with Spark's own reader."""
    from pyspark.errors import PySparkException

    kind = INPUT_SUFFIXES[path.suffix.lower()]
    try:
        reader = spark.read.option("header", "true").option("inferSchema", "true")
        frame = reader.format(kind).load(str(path.absolute()))
        rows = frame.count()
    except PySparkException as error:
        raise BadInput(f"{path} can't be read as {kind}: {str(error).strip().splitlines()[0]}") from error
    if rows == 0:
        raise BadInput(f"{path} has no rows")
    columns = tuple((name, kind) for name, kind in frame.dtypes)
    keys = tuple(
        name for name, kind in columns if not kind.startswith(("array", "map", "struct", "binary", "variant"))
    )[:1]
    made = DemoData("data", frame.schema.toDDL(), keys, (), questions.about(columns), (), rows)
    return _divide(frame, folder / "blocks", wanted.blocks, made)


def _divide(frame: DataFrame, folder: Path, blocks: int, made: DemoData) -> DemoData:
    """Write the rows as so many files."""
    frame.repartition(max(1, min(blocks, made.rows))).write.parquet(str(folder))
    return replace(made, blocks=_blocks(folder))
