"""The command `replitree`: which commands there are, and what an error looks like.

Guarantees: exit status 0 only when the command did what it was asked for; 2 when the input was wrong, 3 when what it asked
for is in the log and was not finished in time, 4 when no replica could show in time what a read must include, 1 for
everything else, 130 after Ctrl-C.  An error is one line on standard error that says what to do (with `--json` one JSON
document); `--debug`, anywhere on the line, shows where it came from.
`replitree doctor` has the exit statuses of a check for monitoring systems instead (`replitree.cli.cluster.doctor`).

Start-up is quick because only the command that is asked for is imported, and imports Arrow, Spark and the client when it
runs.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Annotated

import typer

from replitree.cli.output import print_error
from replitree.cli.plugins import PluginGroup
from replitree.cli.usage import help_text, usage_message
from replitree.errors import BadInput, ReplicaBehind, ReplitreeError
from replitree.lean import leave_out_pandas

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_BEHIND = 4
EXIT_INTERRUPTED = 130

COMPLETION = "_REPLITREE_COMPLETE"
"""Variable by which a shell asks for the words that may continue a line; `replitree --show-completion` prints what asks."""

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that is full."""


class CliCommands(PluginGroup):
    """The built-in commands, and those of the checker and the benchmarks where these are installed."""

    built_in = MappingProxyType(
        {
            "up": "replitree.cli.cluster.up:up",
            "server": "replitree.cli.cluster.server:server",
            "blobd": "replitree.cli.cluster.blobd:blobd",
            "optimize": "replitree.cli.tables.optimize:optimize",
            "insert": "replitree.cli.tables.insert:insert",
            "sql": "replitree.cli.tables.sql:sql",
            "status": "replitree.cli.cluster.status:status",
            "doctor": "replitree.cli.cluster.doctor:doctor",
            "ui": "replitree.cli.cluster.ui:ui",
            "recover": "replitree.cli.cluster.repair:recover",
            "drop-replica": "replitree.cli.cluster.repair:drop_replica",
            "check": "replitree.cli.cluster.repair:check",
            "fsck": "replitree.cli.cluster.fsck:fsck",
            "restore": "replitree.cli.cluster.restore:restore",
            "demo": "replitree.cli.demo:demo",
            "version": "replitree.cli.version:version",
            "table": "replitree.cli.tables.table:app",
            "streams": "replitree.cli.tables.streams:app",
            "consumers": "replitree.cli.tables.consumers:app",
            "view": "replitree.cli.tables.view:app",
            "shard": "replitree.cli.cluster.shard:app",
            "tablet": "replitree.cli.tablets.tablet:app",
            "token": "replitree.cli.cluster.token:app",
        }
    )
    group = "replitree.commands"
    missing = MappingProxyType(
        {
            "verify": "the checker is not installed: pip install 'replitree[verify]'",
            "bench": "the benchmarks are in no wheel: clone the repository of replitree and run `make bench` there",
        }
    )


app = typer.Typer(
    name="replitree",
    cls=CliCommands,
    help="A replicated columnar table for PySpark: insert at any replica, read with Spark.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Insert at any replica, read with Spark."""


command_line = cache(lambda: typer.main.get_command(app))
"""All commands as one, made once."""


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
    if arguments is None and os.environ.get(COMPLETION):
        # A line that can't be completed is none that a shell should hear an error of.
        with suppress(ReplitreeError):
            command_line().main(prog_name="replitree")
        return EXIT_FAILED
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The process is ours, and the command as well: those of the benchmarks measure pandas, too.
    if arguments is None and not CliCommands.missing.keys() & set(given[:1]):
        leave_out_pandas()
    debug = "--debug" in given
    if debug:
        os.environ["REPLITREE_DEBUG"] = "1"
    else:
        # Log lines of libraries would hide the one line that says what is wrong.
        logging.getLogger().addHandler(logging.NullHandler())
    as_json = "--json" in given
    try:
        # Calling `app` would end without a message after any broken pipe, also one to a server: typer takes each for a
        # reader that has closed our output.
        command = command_line()
        try:
            with command.make_context("replitree", [word for word in given if word != "--debug"]) as context:
                status_code = command.invoke(context)
        except typer.Exit as ended:
            status_code = ended.exit_code
        # `sys.stdout` is None when the process was started without that descriptor.
        if sys.stdout is not None:
            # The flush is done here, so that a full disk shows in the exit status.
            sys.stdout.flush()
        return status_code if isinstance(status_code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where every error becomes a line
        if _is_output_closed(error):
            return _failed(given, EXIT_FAILED)
        if debug:
            traceback.print_exc()
        return _failed(given, _show(error, as_json=as_json, debug=debug))


def _failed(given: list[str], status_code: int) -> int:
    """Return the exit status of a command that failed."""
    command = next((word for word in given if not word.startswith("-")), "")
    if command != "doctor":
        return status_code
    # The doctor's statuses 1 and 2 are findings.
    from replitree.cli.cluster.doctor import EXIT_UNKNOWN

    return EXIT_UNKNOWN


def _is_output_closed(error: Exception) -> bool:
    """Return whether the reader of our output has closed it."""
    if not isinstance(error, BrokenPipeError):
        return False
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, 0)
    # A pipe without a reader reports an error at once.
    if not poll.poll(0):
        return False
    # Python flushes the output at exit, and would report the same error once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def _show(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Print an error as one line; return the exit status."""
    shown = help_text(error)
    if shown is not None and not as_json:
        # A command without arguments shows its help.
        print(shown, file=sys.stderr)
        return EXIT_BAD_INPUT
    usage = usage_message(error)
    if usage is not None:
        print_error("UsageError", usage, as_json=as_json)
        return EXIT_BAD_INPUT
    if isinstance(error, ReplitreeError):
        print_error(type(error).__name__, str(error), as_json=as_json)
        if isinstance(error, ReplicaBehind):
            return EXIT_BEHIND
        return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_FAILED
    if isinstance(error, OSError) and error.filename is not None:
        print_error(type(error).__name__, f"{error.filename}: {error.strerror}", as_json=as_json)
        return EXIT_FAILED
    # Python does not say which file the error is about.
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        print_error(
            type(error).__name__, f"can't write the output or a temporary file: {error.strerror}", as_json=as_json
        )
        return EXIT_FAILED
    hint = "" if debug else " (this is a bug; --debug shows where)"
    print_error(type(error).__name__, f"unexpected {type(error).__name__}: {error}{hint}", as_json=as_json)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
