"""Markdown from what the code has: tables, and docstrings in NumPy's style."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

_SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)
_ROLE = re.compile(r"``([^`]+)``")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table.

    >>> print(table(["a", "b"], [["x|y", "1\n2"]]))
    | a | b |
    | --- | --- |
    | x\|y | 1 2 |
    """
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def document(text: str | None) -> str:
    r"""Return a docstring as Markdown: sections of parameters as lists, examples as code.

    >>> print(document("Do it.\n\nParameters\n----------\nname\n    Which ``one``.\n"))
    Do it.
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    * `name`: Which `one`.
    """
    parts = _SECTION.split(inspect.cleandoc(text or ""))
    pieces = [_prose(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        pieces += [f"**{title}**", _prose(body) if title in {"Notes", "Examples"} else _entries(body)]
    return "\n\n".join(filter(None, pieces))


def _prose(text: str) -> str:
    """Return paragraphs; what is indented after `::`, and examples with a prompt, as code."""
    made, code = list[str](), False
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        is_code = paragraph.startswith(">>> ") or (code and paragraph.startswith(" "))
        if is_code:
            made.append(f"```\n{textwrap.dedent(paragraph)}\n```")
        elif paragraph.strip() != "::":
            made.append(_ROLE.sub(r"`\1`", paragraph.removesuffix("::") + (":" if paragraph.endswith("::") else "")))
        code = paragraph.endswith("::") or (code and is_code)
    return "\n\n".join(filter(None, made))


def _entries(text: str) -> str:
    """Return names and what is indented below each as a list."""
    made = list[str]()
    for line in text.strip("\n").splitlines():
        if line and not line.startswith(" "):
            made.append(f"* `{line.strip()}`: ")
        elif made and line.strip():
            made[-1] += _ROLE.sub(r"`\1`", line.strip()) + " "
    return "\n".join(each.strip() for each in made)
