"""`replitree demo`: the whole product on real data of this machine, in about a minute."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replitree import private
from replitree.cli.output import Output, cell, console
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.demo.picture import ReplicaPosition

_CELL_MAX = 60


File = Annotated[
    Path | None, typer.Option("--input", metavar="FILE", help="Load this CSV, JSON lines or Parquet file instead.")
]
Repository = Annotated[
    Path | None, typer.Option("--git", metavar="REPOSITORY", help="Load the history of this repository instead.")
]
RowsMin = Annotated[
    int, typer.Option("--rows-min", metavar="N", min=1, help="Rows that the inventory of this machine must have.")
]
Blocks = Annotated[int, typer.Option("--blocks", metavar="N", min=1, help="Insert the rows in so many blocks.")]
Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Work here; it must be empty.", show_default="a temporary folder"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the verdict as JSON; the story goes to standard error.")]


def demo(
    file: File = None,
    repository: Repository = None,
    rows_min: RowsMin = 100_000,
    blocks: Blocks = 12,
    folder: Folder = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything on disk at the end.")] = False,
    as_json: AsJson = False,
) -> int:
    """Load real data through Spark into three replicas, kill one on the way, compare all of them."""
    from replitree.demo.sources import Wanted
    from replitree.demo.story import run

    try:
        if folder is not None and folder.exists() and any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty: the demo wants a folder of its own")
        if folder is not None:
            private.make_folder(folder, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"can't use the folder {folder}: {error.strerror}") from error
    place = Path(tempfile.mkdtemp(prefix="replitree-demo-")) if folder is None else folder.absolute()
    screen = Screen(errors=as_json)
    try:
        verdict = run(Wanted(file, repository, rows_min, blocks), place, screen)
    finally:
        screen.close()
        # The folder was empty before, so all of it is the demo's own.
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    if keep:
        screen.say(f"everything is still in {place}: `replitree up --dir {place / 'cluster'}` starts the cluster again")
    word = "every comparison held" if verdict.held else "a comparison FAILED"
    value = {"held": verdict.held, "rows": verdict.rows, "seconds": round(verdict.seconds, 1), "checks": verdict.checks}
    Output(as_json).result(value, f"\n{word}; {verdict.rows:,} rows, {verdict.seconds:.0f} s")
    return 0 if verdict.held else 1


class Screen:
    """Shows the story: in colour and in place on a terminal, as plain text elsewhere."""

    def __init__(self, *, errors: bool = False) -> None:
        from rich.live import Live

        self._console = console(errors=errors)
        self._live: Live | None = None
        encoding = (sys.stderr if errors else sys.stdout).encoding or "ascii"
        self._unicode = encoding.lower().replace("-", "").startswith("utf")
        self._steps = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        self.close()
        self._steps += 1
        self._print(f"\n{self._steps}. {title}", "bold")

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        self._print(f"   {text if self._unicode else text.replace('→', '->')}")

    def check(self, text: str, *, held: bool) -> None:
        """Tell what a comparison showed."""
        sign = ("✓" if held else "✗") if self._unicode else ("ok " if held else "FAILED")
        self._print(f"   {sign} {text}", "green" if held else "bold red")

    def rows(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a small table."""
        # The end of a long value says more than its beginning: most long values are paths.
        texts = [[" ".join(cell(value).split()) for value in row] for row in rows]
        short = [[text if len(text) <= _CELL_MAX else f"…{text[-_CELL_MAX + 1 :]}" for text in row] for row in texts]
        shown = [tuple(columns), *map(tuple, short)]
        is_number = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
        widths = [max(len(str(line[i])) for line in shown) for i in range(len(columns))]
        if title:
            self._print(f"   {title}", "italic")
        for number, line in enumerate(shown):
            cells = (
                str(text).rjust(width) if right else str(text).ljust(width)
                for text, width, right in zip(line, widths, is_number, strict=True)
            )
            self._print("     " + "  ".join(cells).rstrip(), "dim" if number == 0 else "")

    def line(self, tail: int, marks: Sequence[ReplicaPosition], *, keep: bool) -> None:
        """Show the number line: in place on a terminal, elsewhere only when it is to be kept."""
        from replitree.demo.picture import ASCII, UNICODE, draw

        text = "\n".join(f"     {line}" for line in draw(tail, marks, signs=UNICODE if self._unicode else ASCII))
        if self._console.is_terminal and not keep:
            from rich.live import Live
            from rich.text import Text

            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(Text(text, style="cyan"), refresh=True)
            return
        self.close()
        if keep:
            self._print(f"\n{text}\n", "cyan")

    def close(self) -> None:
        """Leave the picture that is drawn in place, if there is one."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), soft_wrap=True)
        self._console.file.flush()
