"""`replitree verify nemesis`: hurt a test cluster while clients write down what they see, and judge that."""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from replitree.cli.options import Cluster, on_cluster
from replitree.cli.output import console
from replitree.errors import BadInput

Duration = Annotated[float, typer.Option("--seconds", metavar="S", min=1.0, help="How long clients act.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="What happens is drawn from it.")]
Visitors = Annotated[int, typer.Option("--clients", metavar="N", min=1, max=1000, help="Clients at once.")]
Faults = Annotated[
    Path | None, typer.Option("--faults", metavar="FILE.toml", help="Commands that hurt the cluster, and heal it.")
]
Settle = Annotated[
    float, typer.Option("--settle", metavar="S", min=0.0, help="How long replicas may take to be well again.")
]
Results = Annotated[
    Path | None, typer.Option("--results", metavar="DIR", help="New folder for history and report, which then stay.")
]
Spark = Annotated[
    bool, typer.Option("--spark", help="Run a driver of Spark, too, with a stream in and a stream out; it is killed.")
]

Shards = Annotated[
    int, typer.Option("--shards", metavar="N", min=0, max=256, help="Not a plain table, but one of N shards.")
]


@on_cluster
def nemesis(  # noqa: PLR0913, PLR0917 - each is an option of the command
    at: Cluster,
    seconds: Duration = 60.0,
    seed: Seed = 1,
    clients: Visitors = 16,
    faults: Faults = None,
    settle: Settle = 60.0,
    results: Results = None,
    spark: Spark = False,
    shards: Shards = 0,
) -> None:
    """Hurt a test cluster under load, and judge what clients saw; exit 0: every promise was kept, 1: not, 3: undecided."""
    import msgspec

    from replitree_verify.cli.history import status_of
    from replitree_verify.histories.report import as_dict, lines
    from replitree_verify.nemesis.run import HISTORY, REPORT, SPARK, Plan, run
    from replitree_verify.nemesis.stream import LOG
    from replitree_verify.nemesis.strikes import read_faults

    plan = Plan(seed, seconds, clients, read_faults(faults) if faults is not None else (), settle, spark, shards)
    folder = results or Path(tempfile.mkdtemp(prefix=f"replitree-nemesis-{seed}-"))
    try:
        folder.mkdir(parents=True, exist_ok=results is None)
    except OSError as error:
        raise BadInput(f"--results {folder} can't be made: {error.strerror}") from error
    # Not on standard output, where programs read the result.
    progress = console(errors=True)
    # As Ctrl-C does: what is struck is healed before this process ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with at.connect() as connection:
            ran = run(connection, plan, folder, progress.print)
    finally:
        with suppress(OSError):
            folder.rmdir()  # it is empty when the cluster was refused
    files = {"history": str(folder / HISTORY), "report": str(folder / REPORT)}
    if spark:
        files["driver"] = str(folder / SPARK / LOG)
    if ran.verdict.fine and results is None:
        shutil.rmtree(folder)
        files = {}
    said = {
        "table": ran.table,
        "replicas": ran.replicas,
        "strikes": ran.strikes,
        **files,
        "verdict": as_dict(ran.verdict),
    }
    told = [
        f"strikes: {', '.join(f'{kind} {count}' for kind, count in ran.strikes.items()) or 'none (--faults names them)'}",
        *(f"{what}: {file}" for what, file in files.items()),
        *([] if ran.verdict.fine else [f"table {ran.table} is still there"]),
        *lines(ran.verdict),
    ]
    at.out.result(msgspec.to_builtins(said), "\n".join(told))
    raise typer.Exit(status_of(ran.verdict))
