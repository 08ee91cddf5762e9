"""`replitree verify history`: judge what clients have written down."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import EXIT_UNFINISHED, Output
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.wire.history_format import Level
    from replitree_verify.histories.judge import Verdict


class Promise(StrEnum):
    """What reads can be judged by."""

    eventual = "eventual"
    sequential = "sequential"
    linearizable = "linearizable"


Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of one history, of one machine's clients.")]
Judged = Annotated[
    Promise | None,
    typer.Option("--level", help="Judge all reads as though they had promised this; by default their own."),
]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Draw what is wrong as time lines.")]
WithSpark = Annotated[bool, typer.Option("--spark", help="Judge it with Spark, when it is too big for one machine.")]


def history(
    files: Files, level: Judged = None, report: Report = None, with_spark: WithSpark = False, as_json: Json = False
) -> int:
    """Judge a recorded history; exit 0 when every promise was kept, 1 when not, 3 when that could not be decided."""
    if report is not None and not report.parent.is_dir():  # said now, and not when all the work is done
        raise BadInput(f"--report {report} can't be written: there is no folder {report.parent}")
    asked: Level | None = None if level is None else level.value
    # Imported only here: NumPy and Spark take seconds, which no other command should.
    if with_spark:
        from replitree.spark.session.session import spark_session
        from replitree_verify.histories.spark_job import check_with_spark

        verdict = check_with_spark(spark_session(app_name="replitree verify history"), files, asked)
    else:
        from replitree_verify.histories.judge import check
        from replitree_verify.histories.reading import read_files

        verdict = check(read_files(files), asked)
    from replitree_verify.histories.report import as_dict, lines

    if report is not None:
        from replitree_verify.histories.timeline import page

        try:
            report.write_text(page(verdict, ", ".join(file.name for file in files)), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"--report {report} can't be written: {error.strerror}") from error
    Output(as_json).result(as_dict(verdict), "\n".join(lines(verdict)))
    return status_of(verdict)


def status_of(verdict: Verdict) -> int:
    """Return the exit status of a verdict: 0 fine, 1 wrong, 3 undecided."""
    if verdict.fine:
        return 0
    return 1 if verdict.counts or verdict.anomalies else EXIT_UNFINISHED
