"""The page of the options of Spark's data source, from the table in its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

from replitree.spark.session import option_names
from replitree.spark.session.option_names import NAMES
from tools.pages.markdown import table

SOURCE = Path(option_names.__file__).parents[1] / "source.py"

HEAD = """\
# Options of format("replitree")

Options of `spark.read`, `df.write`, `spark.readStream` and `df.writeStream`. Spark takes any case; all values are text. An
unknown option is refused, and the message names the one that is meant. How they are used: [spark.md](../spark.md), and for
streams [streams.md](../streams.md), [stream-sources.md](../stream-sources.md).
"""


def page() -> str:
    """Return the page."""
    # The module is parsed and not imported: it would load Spark.
    text = ast.get_docstring(ast.parse(SOURCE.read_text(encoding="utf-8"))) or ""
    rows = list[list[str]]()
    body = text.split("\n" + "=" * 26, 1)[1].partition("\n")[2].partition("\n=====")[0]
    for line in body.splitlines():
        if line.startswith("``"):
            rows.append([line[:26].strip(), line[26:].strip()])
        else:
            rows[-1][1] += f" {line.strip()}"
    spelled = {name.lower(): name for name in NAMES}
    named = [[_spelled(name, spelled), _spelled(what, spelled)] for name, what in rows]
    return f"{HEAD}\n{table(['option', 'what it does'], named)}\n"


def _spelled(text: str, spelled: dict[str, str]) -> str:
    """Return a text with options as docs and messages show them."""
    for lower, name in spelled.items():
        text = text.replace(f"``{lower}``", f"`{name}`")
    return text.replace("``", "`")
