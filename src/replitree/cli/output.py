"""How results and errors are shown: tables and lines for people, pure JSON for programs.

Guarantees: with `json` nothing but one JSON document goes to standard output; progress and errors go to standard error.

Text is never read as markup: the console that `console` returns interprets neither Rich's tags (``[bold]``) nor its names of
emoji (``:smile:``), and `plain` shows control characters, so a value can't colour, clear or retitle a terminal.  Every console
of the command line is made by `console` (`tests/project/test_markup.py`).
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replitree.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console


PIPE_COLUMNS = 160
"""Width of a table that goes to a pipe or a file, in characters."""

FOLDED_FROM = 24
"""Characters from which on a value may be folded inside of its column."""

EXIT_UNFINISHED = 3
"""The command is in the log and will be executed, but its wait ended before that."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's result goes.

    Attributes
    ----------
    as_json
        Print JSON instead of text.
    """

    as_json: bool = False

    def result(self, value: Any, text: str) -> None:
        """Print the result of a command.

        Parameters
        ----------
        value
            What programs get.
        text
            What people get.
        """
        if self.as_json:
            self.json(value)
        else:
            print(plain(text))

    def done(self, value: Any, text: str, *, finished: bool) -> None:
        """Print the result of a command that is in the log; end with status 3 when it was not finished in time."""
        self.result(value, text)
        if not finished:
            import typer

            raise typer.Exit(EXIT_UNFINISHED)

    def json(self, value: Any) -> None:
        """Print one JSON document on one line; what JSON has no form for becomes text."""
        print(json.dumps(value, ensure_ascii=False, default=str), flush=True)

    def listing(self, value: Any, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print several things of a kind, or that there are none: `value` for programs, a table for people."""
        if self.as_json:
            self.json(value)
        elif rows:
            self.table(title, columns, rows)
        else:
            print(plain(f"{title}: none"))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table for people; numbers stand to the right.  Where it has no room, each row becomes a paragraph."""
        screen = console()
        if screen.is_terminal and width_of(columns, rows) > screen.width:
            print(plain(title))
            for row in rows:
                # A no-break space keeps a name and its value on one line.
                named = zip(columns[1:], row[1:], strict=True)
                pairs = "  ".join(f"{name}\N{NO-BREAK SPACE}{cell(value)}" for name, value in named)
                lines = textwrap.wrap(
                    pairs, screen.width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
                )
                print("\n".join((cell(row[0]), *lines)).replace("\N{NO-BREAK SPACE}", " "))
            return
        from rich.table import Table
        from rich.text import Text

        # Titles, headings and cells are given as `Text`: Rich would parse plain strings for its own markup.
        shown = Text(plain(title)) if title else None
        grid = Table(title=shown, title_justify="left", title_style="bold", header_style="bold")
        for i, column in enumerate(columns):
            numbers = bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
            grid.add_column(Text(plain(column)), justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            grid.add_row(*(Text(cell(value)) for value in row))
        screen.print(grid)

    def vertical(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print each row as a block with one line for each column: for rows with many columns.

        >>> Output().vertical("", ("id", "kind"), [(1, "a"), (2, None)])
        row 1
          id    1
          kind  a
        row 2
          id    2
          kind  -
        """
        if title:
            print(plain(title))
        names = [plain(name).replace("\n", " ") for name in columns]
        width = max((len(name) for name in names), default=0)
        for number, row in enumerate(rows, 1):
            print(f"row {number:,}")
            for name, value in zip(names, row, strict=True):
                print(f"  {name:<{width}}  {cell(value)}".replace("\n", f"\n{'':<{width + 4}}"))

    def fields(self, title: str, fields: Mapping[str, object]) -> None:
        """Print names with their values for people."""
        width = max((len(name) for name in fields), default=0)
        print(plain(title))
        for name, value in fields.items():
            print(f"  {name:<{width}}  {cell(value)}")


def advised(mark: str, text: str, advice: str, width: int) -> str:
    """Return a finding as people read it: one line, and one more with what to do.

    >>> print(advised("NOTICE", "r2 lags 3 entries behind in t", "wait", 8))
    NOTICE    r2 lags 3 entries behind in t
              -> wait
    """
    lines = [f"{mark:<{width}}  {' '.join(text.split())}"]
    if advice:
        lines.append(f"{'':<{width}}  -> {' '.join(advice.split())}")
    return "\n".join(lines)


def width_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Return the width from which on a table can be read: long values are folded, names and short values are not."""
    longest = (max((len(cell(row[i])) for row in rows), default=0) for i in range(len(columns)))
    return 1 + sum(3 + max(len(name), min(most, FOLDED_FROM)) for name, most in zip(columns, longest, strict=True))


def cell(value: object) -> str:
    """Return a value as people read it.

    >>> cell(1234567)
    '1,234,567'
    >>> cell(None)
    '-'
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return plain(str(value))


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, but for the tab and the end of a line."""


def plain(text: str) -> str:
    r"""Return text with its control characters shown as escapes.

    >>> plain("\x1b[31mred\x07")
    '\\x1b[31mred\\x07'
    """
    # A terminal would execute control characters that come from a table or from an error message.
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def confirm(question: str, *, yes: bool, as_json: bool, otherwise: str = "nothing was removed") -> None:
    """Ask on a terminal; a program that does not say --yes did not mean it.

    Parameters
    ----------
    otherwise
        What to say when the answer is no.

    Raises
    ------
    BadInput
        The answer was no, or no terminal is there to ask.
    """
    import typer

    if yes or (not as_json and sys.stdin.isatty() and typer.confirm(question)):
        return
    raise BadInput(f"{otherwise}: say --yes to do it without a question")


def say(text: str) -> None:
    """Print a line for people."""
    print(plain(text))


def counted(count: int | None, noun: str) -> str:
    """Return a number of things in words; None counts as 0.

    >>> counted(1, "part")
    '1 part'
    >>> counted(1200, "row")
    '1,200 rows'
    """
    return f"{count or 0:,} {noun if count == 1 else noun + 's'}"


def byte_size(count: int) -> str:
    """Return a number of bytes with a unit.

    >>> byte_size(1536)
    '1.5 KiB'
    """
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def console(*, errors: bool = False) -> Console:
    """Return a rich console on standard output, or on standard error."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    # A pipe has no width: without one Rich would fold every table to 80 columns.
    return Console(
        file=stream,
        width=None if stream.isatty() else PIPE_COLUMNS,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not stream.isatty(),
    )


def print_error(kind: str, message: str, *, as_json: bool) -> None:
    """Print one error on standard error: one line, or one JSON document."""
    line = " ".join(message.split())
    if as_json:
        print(json.dumps({"error": kind, "message": line}, ensure_ascii=False), file=sys.stderr)
    else:
        print(plain(f"replitree: {line}"), file=sys.stderr)
