"""The command `replitree`: which commands there are, and what an error looks like.

Guarantees: exit status 0 only when the command did what it was asked for, 2 when the input was wrong, 1 for everything
else, 130 after Ctrl-C.  An error is one line on standard error that says what to do (with `--json` one JSON document);
`--debug`, anywhere on the line, shows where it came from.

Start-up is quick because a command imports Arrow, Spark and the client only when it runs.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from replitree.cli import bench, demo, insert, server, sql, status, table, up, verify, version
from replitree.cli.output import print_error
from replitree.errors import BadInput, ReplitreeError

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="replitree",
    help="A replicated columnar table for PySpark: insert at any replica, read with Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("server")(server.server)
app.add_typer(table.app, name="table")
app.command("insert")(insert.insert)
app.command("sql")(sql.sql)
app.command("status")(status.status)
app.add_typer(verify.app, name="verify")
app.add_typer(bench.app, name="bench")
app.command("demo")(demo.demo)
app.command("version")(version.version)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Insert at any replica, read with Spark."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments
        Without the program's name; by default those of this process.

    Returns
    -------
    int
        The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if debug:
        os.environ["REPLITREE_DEBUG"] = "1"
    else:  # what libraries log is not for people; an error is one line
        logging.getLogger().addHandler(logging.NullHandler())
    as_json = "--json" in given
    try:
        status_code = app([word for word in given if word != "--debug"], prog_name="replitree", standalone_mode=False)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where every error becomes a line
        if debug:
            traceback.print_exc()
        return _show(error, as_json=as_json, debug=debug)
    return status_code if isinstance(status_code, int) else 0


def _show(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Print an error as one line; return the exit status."""
    usage = getattr(error, "format_message", None)
    if callable(usage):
        print_error("UsageError", f"{usage()} (replitree --help shows how)", as_json=as_json)
        return EXIT_BAD_INPUT
    if isinstance(error, ReplitreeError):
        print_error(type(error).__name__, str(error), as_json=as_json)
        return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_FAILED
    hint = "" if debug else " (this is a bug; --debug shows where)"
    print_error(type(error).__name__, f"unexpected {type(error).__name__}: {error}{hint}", as_json=as_json)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
