"""`replitree bench`: how fast it is on this machine, beside ClickHouse if that is installed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output, console
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree_bench.kit.report import Report

app = typer.Typer(
    add_completion=False,
    help="Measure this machine; alone, or beside ClickHouse.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class PeerName(StrEnum):
    """Whom to measure beside us."""

    CLICKHOUSE = "clickhouse"


Peer = Annotated[
    PeerName | None,
    typer.Option("--peer", help="Measure this one in the same run, round by round in turn.", show_default=False),
]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="Rounds; medians count.")]
Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Work below this folder.", show_default="the temporary folder"),
]


Scale = Annotated[float, typer.Option("--scale", metavar="F", min=0.001, max=1e3, help="TPC-H's scale.")]
Elsewhere = Annotated[
    bool,
    typer.Option(
        "--cluster", help="Run Spark on a standalone cluster whose executors share no disk with the replicas."
    ),
]


@app.command("inserts")
def inserts(peer: Peer = None, rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure many small inserts by 1, 4, 16 and 64 clients."""
    from replitree_bench import run

    _print(run.run_inserts(peer=peer is not None, rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("bulk")
def bulk(
    peer: Peer = None,
    rounds: Rounds = 3,
    spark: Annotated[bool, typer.Option(help="Also load TPC-H's lineitem through Spark.")] = True,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure one insert of five million rows, and a load through Spark."""
    from replitree_bench import run

    _print(
        run.run_bulk(peer=peer is not None, rounds=rounds, say=_say, folder=_made(folder), spark=spark), as_json=as_json
    )


@app.command("tls")
def tls(rounds: Rounds = 15, folder: Folder = None, as_json: Json = False) -> None:
    """Measure small inserts and a bulk load by TLS, in turn with the same in clear text."""
    from replitree_bench.run import new_cluster
    from replitree_bench.table.secure import tls_report

    place = _made(folder)
    _print(tls_report(lambda settings: new_cluster(place, settings), rounds, _say), as_json=as_json)


@app.command("read")
def read(
    peer: Peer = None,  # noqa: ARG001 - accepted as by the others; plain Spark is the peer of reading
    rounds: Rounds = 3,
    stored: Annotated[
        bool, typer.Option("--stored", help="Read a table on an object store, beside the same rows on a local disk.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="That object store.", show_default="a folder below --dir"),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure reading through Spark against plain Spark on the same files, which is the peer here.

    Of a table on an object store the peer is the same table on local disks.
    """
    from replitree_bench import run

    if stored or store is not None:
        _print(run.run_read_store(rounds=rounds, say=_say, store=_url(store), folder=_made(folder)), as_json=as_json)
        return
    _print(run.run_read(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("engines")
def engines(rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure DuckDB, Polars and pandas on a table, beside their own readers on the same files."""
    from replitree_bench import run

    _print(run.run_engines(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("streams")
def streams(rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure triggers of streams from and into tables, beside Spark's file source and Parquet sink."""
    from replitree_bench import run

    _print(run.run_streams(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("joins")
def joins(rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure joins of sharded tables with equal buckets in Spark, without a shuffle and with one."""
    from replitree_bench import run

    _print(run.run_joins(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("moves")
def moves(
    rounds: Rounds = 1,
    rate: Annotated[float, typer.Option("--rate", metavar="N", min=1.0, help="Inserts per second to try.")] = 100.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure moves of a quarter of the buckets under inserts and reads, also while their process is killed."""
    from replitree_bench import run

    _print(run.run_moves(rounds=rounds, rate=rate, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("packing")
def packing(folder: Folder = None, as_json: Json = False) -> None:
    """Measure packed old parts of many small inserts, beside the same parts in folders."""
    from replitree_bench import run

    _print(run.run_packing(say=_say, folder=_made(folder)), as_json=as_json)


@app.command("sql")
def sql(
    scale: Scale = 0.1,
    rounds: Rounds = 3,
    elsewhere: Elsewhere = False,
    by_format: Annotated[
        bool, typer.Option("--format", help='Read by format("replitree") instead of the catalog.')
    ] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure TPC-H's queries on the catalog, beside plain Parquet files of the same rows in the same session."""
    from replitree_bench import run

    if elsewhere and by_format:
        raise BadInput("--cluster measures the catalog: leave --format out")
    if elsewhere:
        _print(run.run_sql_elsewhere(scale=scale, rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)
        return
    report = run.run_sql(scale=scale, rounds=rounds, say=_say, folder=_made(folder), by_format=by_format)
    _print(report, as_json=as_json)


@app.command("merge-into")
def merge_into(
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=10_000, help="Rows of the table.")] = 1_000_000,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure MERGE INTO of one row in a hundred while two writers insert, and compare the rows with DuckDB's."""
    from replitree_bench import run

    _print(run.run_merge_into(rows=rows, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("write")
def write(
    rounds: Rounds = 3,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="The object store.", show_default="a folder below --dir"),
    ] = None,
    elsewhere: Elsewhere = False,
    scale: Scale = 1.0,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure writing into an object store through Spark: by its tasks, beside the same through a replica.

    With --cluster: TPC-H's lineitem into a table on disks, beside Spark's own sorted Parquet write.
    """
    from replitree_bench import run

    if elsewhere:
        _print(run.run_write_elsewhere(scale=scale, rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)
        return
    _print(run.run_write_store(rounds=rounds, say=_say, store=_url(store), folder=_made(folder)), as_json=as_json)


@app.command("levels")
def levels(rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure what a read costs at each level, on a table at rest and on one that is inserted into."""
    from replitree_bench import run

    _print(run.run_levels(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("sharded")
def sharded(
    peer: Peer = None,
    rounds: Rounds = 3,
    kills: Annotated[
        bool,
        typer.Option(
            "--kills", help="Kill servers meanwhile, and count what is torn, doubled or lost; --peer does that, too."
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="S",
            min=5.0,
            help="With kills: how long each system is written to at most, 30 by default.",
        ),
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option("--blocks", metavar="N", min=1, help="With kills: write so many blocks, however long it takes."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="With kills: which servers are killed.")] = 1,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure inserts into tables of 1 to 64 shards and reads of 4: latency beside one table's, and 64 clients at once.

    With --kills or --peer: two shards with two servers each, which are killed in turn, beside ClickHouse's Distributed.
    """
    from replitree_bench import run

    if kills or peer is not None:
        from replitree_bench.shards.torn import Limits

        limits = Limits.given(seconds, blocks)
        report = run.run_torn(peer=peer is not None, limits=limits, seed=seed, say=_say, folder=_made(folder))
        _print(report, as_json=as_json)
        return
    _print(run.run_sharded(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("growth")
def growth(rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure what an insert costs by the shards that it touches and those that exist, and derive it for 1 to 64 shards."""
    from replitree_bench import run

    _print(run.run_growth(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("stages")
def stages(
    rounds: Rounds = 3,
    shards: Annotated[int, typer.Option("--shards", metavar="N", min=1, max=64, help="Shards of the table.")] = 16,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the CPU time that the stages of an insert into all shards of a table take, on two replicas."""
    from replitree_bench.shards.stages import stages_report

    _print(stages_report(rounds=rounds, shards=shards, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("quorum")
def quorum(peer: Peer = None, rounds: Rounds = 3, folder: Folder = None, as_json: Json = False) -> None:
    """Measure inserts that two replicas must have on disk, by 1 and by 50 clients."""
    from replitree_bench import run

    _print(run.run_quorum(peer=peer is not None, rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("merges")
def merges(
    peer: Peer = None,  # noqa: ARG001 - accepted as by the others; the peer is simulated
    rounds: Rounds = 3,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure merging eight parts into one, and simulate a year of merges beside ClickHouse's selector."""
    from replitree_bench import run

    _print(run.run_merges(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("steady")
def steady(
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", min=0.1, max=1e6, help="How long.")] = 600.0,
    rate: Annotated[float, typer.Option("--rate", metavar="N", min=0.1, max=1e6, help="Inserts per second.")] = 100.0,
    clients: Annotated[int, typer.Option("--clients", metavar="N", min=1, help="Threads that send.")] = 16,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Send inserts at a steady rate while the replicas merge; count the parts and the bytes written."""
    from replitree_bench import run

    _print(run.run_steady(seconds=seconds, rate=rate, clients=clients, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("parts")
def parts(
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=100, max=100_000, help="Partitions, each with one part.")
    ] = 20_000,
    with_all: Annotated[
        bool, typer.Option("--all/--no-all", help="Change rows of every partition, too: minutes.")
    ] = True,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure reads, deletes and a restart of a table with a part in each of many partitions."""
    from replitree_bench import run

    _print(run.run_parts(partitions=partitions, with_all=with_all, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("longlife")
def longlife(
    peer: Peer = None,
    rounds: Rounds = 3,
    recovery_only: Annotated[bool, typer.Option("--recovery-only", help="Measure the recovery alone.")] = False,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure pulling and cleaning a log of 100,000 entries, and the recovery of a replica that was given up."""
    from replitree_bench import run

    report = run.run_longlife(
        peer=peer is not None, rounds=rounds, say=_say, folder=_made(folder), recovery_only=recovery_only
    )
    _print(report, as_json=as_json)


@app.command("tablet")
def tablet(
    peer: Peer = None,  # noqa: ARG001 - accepted as by the others; the peer is a plain loop
    rounds: Rounds = 3,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="An object store instead of directories; 'folder' is one below --dir."
        ),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure commits and recovery of a tablet beside a plain loop: of writes and syncs, or of PUT and GET."""
    if store is not None:
        from replitree_bench.tablet.store import run_tablet_store

        url = None if store == "folder" else _url(store)
        _print(run_tablet_store(rounds=rounds, say=_say, store=url, folder=_made(folder)), as_json=as_json)
        return
    from replitree_bench.tablet.directories import run_tablet

    _print(run_tablet(rounds=rounds, say=_say, folder=_made(folder)), as_json=as_json)


@app.command("shared")
def shared(
    rounds: Rounds = 3,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="The object store.", show_default="a folder below --dir"),
    ] = None,
    mib: Annotated[int, typer.Option("--mib", metavar="N", min=1, help="Size of the part, in MiB.")] = 1024,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure a table on an object store: the fetch of one part, and the copies that three replicas keep."""
    from replitree_bench.store.shared import run_shared

    report = run_shared(rounds=rounds, say=_say, folder=_made(folder), store=_url(store), part_bytes=mib << 20)
    _print(report, as_json=as_json)


class Checker(StrEnum):
    """Whom to measure beside the packed models."""

    TLC = "tlc"


@app.command("verify")
def verify(
    peer: Annotated[
        Checker | None, typer.Option("--peer", help="Let this one search the same models.", show_default=False)
    ] = None,
    rounds: Rounds = 3,
    workers: Annotated[int, typer.Option("--workers", metavar="N", min=1, help="Workers of the peer.")] = 1,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure the search of the published models, alone or beside TLC."""
    from replitree_bench.verify import run_verify

    report = run_verify(peer=peer is not None, rounds=rounds, say=_say, folder=_made(folder), workers=workers)
    _print(report, as_json=as_json)


def _url(store: str | None) -> str | None:
    """Return the URL of an object store; refuse any other one before anything is started."""
    if store is not None:
        from replitree.storage.objects.location import StoreLocation

        StoreLocation.parse(store)
    return store


def _made(folder: Path | None) -> Path | None:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--dir {folder} can't be used ({error.strerror}): name a folder that is there") from error
    return folder


def _say(text: str) -> None:
    console(errors=True).print(text, style="dim")


def _print(report: Report, *, as_json: bool) -> None:
    out = Output(as_json)
    if as_json:
        out.json(report.as_json())
        return
    ratio = report.ratio
    rows = [(key, value, report.peer.get(key), ratio.get(key)) for key, value in report.ours.items()]
    out.table(
        f"{report.name}: medians of {report.rounds} rounds",
        ("what", "ours", report.peer_name or "peer", "ours / peer"),
        rows,
    )
    if report.histogram:
        total = sum(report.histogram.values())
        shares = [(f"{bound} ms", count, round(count / total, 3)) for bound, count in report.histogram.items()]
        out.table(f"{report.name}: latencies of one client", ("at most", "how many", "share"), shares)
    for note in report.notes.values():
        print(f"  {note}")
