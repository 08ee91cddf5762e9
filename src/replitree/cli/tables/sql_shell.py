"""Several statements for `replitree sql`: of a person at a terminal, or of a file or a pipe.

Guarantees: a statement is run when its semicolon has come, one after the other, each with snapshots of its own.  In the shell
an error is shown and the shell goes on; Ctrl-C cancels what is typed or running.  A script ends at its first error: no later
statement runs.

The shell has the lines of earlier sessions (`history_file`), which only their user may read.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from replitree import private
from replitree.cli.output import print_error, say
from replitree.cli.tables.statements import without_comments
from replitree.errors import ReplitreeError

HISTORY_LINES_MAX = 1000
"""Lines of earlier sessions that are kept."""

PROMPT, MORE_PROMPT = "replitree> ", "      ...> "

HELP = r"""Statements end with a semicolon. Queries: SELECT, WITH, VALUES, FROM, SHOW, DESCRIBE, EXPLAIN.
Changes of a table: DELETE FROM, UPDATE, ALTER TABLE, TRUNCATE TABLE.
  SHOW TABLES;  the tables of the cluster
  help          this text
  \q            leave, as exit, quit and Ctrl-D do
Ctrl-C cancels what is typed or running."""

_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<comment>--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<end>;)"""
    r"""|(?P<open>'|"|`|/\*)"""
    r"""|(?P<other>[^'"`;/-]+|.)""",
    re.DOTALL,
)
"""Pieces of statements; `open` is a quote or a comment that is not closed."""

_LEAVE = frozenset({"\\q", "exit", "quit"})


def split(text: str) -> tuple[list[str], str]:
    r"""Return the statements of a text that have ended, without their semicolons, and what follows the last of them.

    A semicolon in quotes or in a comment ends nothing.

    >>> split("select ';' a; -- one; two\nselect 2;\n sel")
    (["select ';' a", '-- one; two\nselect 2'], 'sel')
    >>> split("select 'it is; open")
    ([], "select 'it is; open")
    """
    found, begin = list[str](), 0
    for piece in _PIECE.finditer(text):
        if piece.lastgroup == "open":
            break
        if piece.lastgroup == "end":
            found.append(text[begin : piece.start()].strip())
            begin = piece.end()
    return [statement for statement in found if without_comments(statement)], text[begin:].strip()


def run_script(run: Callable[[str], None], text: str) -> None:
    """Run the statements of a text; the last one needs no semicolon.

    Parameters
    ----------
    run
        Runs one.
    text
        The statements.

    Raises
    ------
    ReplitreeError
        Of the first statement that fails; those after it are not run.
    """
    statements, rest = split(text)
    for statement in [*statements, *([rest] if without_comments(rest) else [])]:
        run(statement)


def run_shell(
    run: Callable[[str], None],
    tables: Callable[[], Sequence[str]],
    engine: str,
    *,
    as_json: bool,
    read: Callable[[str], str] = input,
) -> None:
    """Run the statements that a person types, until the person leaves.

    Parameters
    ----------
    run
        Runs one.
    tables
        Returns the names of the tables, for the completion of words.
    engine
        What answers queries, for the greeting.
    as_json
        Show errors as JSON.
    read
        Shows a prompt, and returns a line; raises `EOFError` at the end of the input.
    """
    if not as_json:
        say(f"{engine} answers queries; statements end with a semicolon, help shows more, \\q leaves")
    with _line_editing(tables):
        typed = ""
        while True:
            try:
                line = read(MORE_PROMPT if typed else PROMPT)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                typed = ""
                print()
                continue
            word = line.strip().rstrip(";").strip().lower()
            if not typed and word in _LEAVE:
                return
            if not typed and word == "help":
                say(HELP)
                continue
            statements, typed = split(f"{typed}\n{line}" if typed else line)
            for statement in statements:
                _run_one(run, statement, as_json=as_json)


def _run_one(run: Callable[[str], None], statement: str, *, as_json: bool) -> None:
    """Run a statement of the shell, and show its error."""
    begin = time.monotonic()
    try:
        run(statement)
    except ReplitreeError as error:
        print_error(type(error).__name__, str(error), as_json=as_json)
    except typer.Exit:
        # A change that is in the log and was not finished in time; its line has said so.
        return
    except KeyboardInterrupt:
        print_error("Cancelled", "cancelled", as_json=as_json)
    except Exception as error:  # noqa: BLE001 - whatever it is, the session and its Spark are not lost with one statement
        print_error(type(error).__name__, f"unexpected {type(error).__name__}: {error}", as_json=as_json)
    else:
        if not as_json:
            say(f"{time.monotonic() - begin:.2f} s")


def history_file() -> Path:
    """Return the file with the lines of earlier shells."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "replitree" / "sql_history"


@contextlib.contextmanager
def _line_editing(tables: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Let lines be edited and found again, where Python has the module `readline`."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = history_file()
    names: list[str] = []

    def complete(word: str, state: int) -> str | None:
        if state == 0:
            names.clear()
            with contextlib.suppress(ReplitreeError):
                names.extend(name for name in tables() if name.startswith(word))
        return names[state] if state < len(names) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,();=<>")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(HISTORY_LINES_MAX)
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_completer(None)
        # Statements may have data of the tables in them: the folder is for its user alone, as the file is.
        try:
            private.make_folder(file.parent, parents=True, exist_ok=True)
            readline.write_history_file(file)
        except OSError as error:
            print(f"replitree: the history can't be written: {error.strerror}", file=sys.stderr)
